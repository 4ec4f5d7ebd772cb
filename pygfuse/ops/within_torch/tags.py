"""What PyTorch is told of operators beside their types."""

from __future__ import annotations

import torch

# Of operators that look up edges by the tensor or number that stands for them. A CUDA graph that torch.compile records
# (mode='reduce-overhead') would walk the edges of the first call for ever; and whoever sorts them waits for the GPU.
# The strides of tensors are what they would be without a compiler.
OF_EDGES = torch.Tag.cudagraph_unsafe, torch.Tag.needs_exact_strides
