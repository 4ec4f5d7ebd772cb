"""Gradients in batches: ``torch.autograd.grad(..., is_grads_batched=True)``, ``jacobian(..., vectorize=True)``."""

from __future__ import annotations

from torch import Tensor
from torch._C import _functorch


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch of them, whose memory no kernel can read.

    Example:
        >>> import torch
        >>> seen = []
        >>> _ = torch.vmap(lambda row: seen.append(is_batched(row)) or row)(torch.ones(3, 2))
        >>> seen, is_batched(torch.ones(2))
        ([True], False)
    """
    return _functorch.is_batchedtensor(tensor) or _functorch.is_legacy_batchedtensor(tensor)
