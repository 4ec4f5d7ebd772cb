"""What functions and attributes of tensors tell of a shape and type, and nothing of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_PROPERTIES = (
    'device', 'dtype', 'is_cpu', 'is_cuda', 'is_meta', 'is_nested', 'is_quantized', 'is_sparse',
    'is_sparse_csr', 'itemsize', 'layout', 'names', 'nbytes', 'ndim', 'requires_grad', 'shape',
)  # fmt: skip
OF_SHAPE = {getattr(Tensor, name).__get__ for name in _PROPERTIES if hasattr(Tensor, name)} | {
    *(Tensor.dim, Tensor.element_size, Tensor.get_device, Tensor.is_complex, Tensor.is_floating_point, Tensor.__len__),
    *(Tensor.is_inference, Tensor.ndimension, Tensor.nelement, Tensor.numel, Tensor.size),
    *(torch.is_floating_point, torch.is_complex, torch.numel),
}


def told_by_shape(function: Callable, args: tuple, kwargs: Mapping[str, Any] | None) -> Any:
    """The answer of one of `OF_SHAPE`, asked of a subclass of Tensor."""
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **(kwargs or {}))
