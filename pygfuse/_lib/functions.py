"""Calls of functions of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


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
