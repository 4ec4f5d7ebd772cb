"""Gradients whose values are not in their memory, which is what kernels read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def in_memory(tensor: Any) -> Any:
    """A tensor whose values are in its memory; what is no tensor of torch's own class as it is.

    In torch a derivative that is zero everywhere, as that of `sign`, has no memory, and the imaginary part of a
    conjugate has that of the number, to be negated.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (of_x,) = torch.autograd.grad(x.abs().sum(), x, create_graph=True)
        >>> (zeros,) = torch.autograd.grad(of_x.sum(), x)
        >>> zeros.data_ptr() == 0, in_memory(zeros).data_ptr() == 0
        (True, False)
    """
    if type(tensor) is not Tensor:
        return tensor
    if tensor._is_zerotensor():
        return tensor.clone()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def all_in_memory(gradients: tuple) -> tuple:
    """The same of what autograd gives a ``backward``; torch.compile has no others."""
    return gradients if torch.compiler.is_compiling() else tuple(map(in_memory, gradients))


def given_values(backward: Callable) -> Callable:
    """The ``backward`` of a function of autograd, given gradients whose values are in their memory."""

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        return backward(ctx, *all_in_memory(grads))

    return run
