"""Calls of functions of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def untransformed(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without its look at what transforms of torch.func have left, for where none is active.

    Example:
        >>> class Twice(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        >>> untransformed(Twice)(torch.ones(2))
        tensor([2., 2.])
    """
    return super(torch.autograd.Function, function).apply


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply(*arguments)``, `untransformed` where that may be.

    Example:
        >>> class Twice(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        >>> applied(Twice, torch.ones(2))
        tensor([2., 2.])
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    return untransformed(function)(*arguments)


def is_unread(result: Tensor) -> bool:
    """Whether no backward pass reads a result: who alone has it may write to it.

    A function of ours says so by the attribute ``reads_result`` of its context; a sum of torch's reads none.

    Args:
        result: What a function of ours gave, perhaps with sums added in place.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> is_unread(x.exp()), is_unread(x.detach().exp())
        (False, True)
    """
    node = result.grad_fn
    if node is None:
        return not result.requires_grad
    while type(node).__name__ == 'AddBackward0':
        node = node.next_functions[0][0]
    return getattr(node, 'reads_result', True) is False
