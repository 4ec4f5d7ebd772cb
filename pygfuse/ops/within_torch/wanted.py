"""Which gradients of a backward pass somebody takes: forces are gradients of positions, and none of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def taken(functions: Sequence[tuple[Any, int]], needed: Sequence[bool]) -> tuple[bool, ...]:
    """Which of a function's tensors have a gradient that the backward pass that runs goes on with.

    What nobody asks for is seen where a tensor was computed; a leaf's gradient always counts as taken.

    Args:
        functions: Of the context's ``next_functions`` those of the tensors.
        needed: Which of the tensors need a gradient.
    """
    return tuple([is_needed and _goes_on(function) for is_needed, (function, _) in zip(needed, functions, strict=True)])


def _goes_on(function: Any) -> bool:
    try:
        return torch._C._will_engine_execute_node(function)
    except (RuntimeError, TypeError, AttributeError):
        # a leaf of torch.autograd.grad, of which torch does not say it, or nobody's backward pass
        return True


def no_leaf(tensor: Tensor) -> Tensor:
    """A tensor, as a view of it where it is a leaf that needs a gradient: of a view `taken` knows more."""
    if torch.compiler.is_compiling() or not (tensor.requires_grad and tensor.is_leaf):
        return tensor
    return tensor.view_as(tensor)
