"""Gradients that are differentiated themselves, by PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pygfuse.ops.within_torch.batched import is_batched


def is_differentiated(grad: Tensor) -> bool:
    """Whether a gradient is to be differentiated itself, or is a batch of them: no walk does either."""
    return not torch.compiler.is_compiling() and (torch.is_grad_enabled() or is_batched(grad))


def differentiable(
    compute: Callable[..., Tensor | tuple[Tensor, ...]], tensors: Sequence[Tensor | None],
    grad: Tensor | tuple[Tensor, ...], needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of a function's tensors, as functions of them again if gradients are enabled.

    Args:
        compute: The function, by PyTorch's operators.
        tensors: What it is called with.
        grad: The gradient of its result, or of each of its results.
        needed: Which gradients are wanted; the others are None, and those of tensors that the result is no function of.
    """
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # one may be computed from another: views of their own keep their gradients apart
        tensors = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]
        given = [tensor for tensor, is_needed in zip(tensors, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(compute(*tensors), given, grad, create_graph=with_graph, allow_unused=True))
    return [next(found) if is_needed else None for is_needed in needed]
