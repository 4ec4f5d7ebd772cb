"""Memory that runs out at a chosen place."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType
from typing import Any

import torch


class Failure:
    """How many calls there were, and whether one failed.

    Attributes:
        calls: How many calls that may fail there were.
        happened: Whether one did.
    """

    calls = 0
    happened = False


def of_torch(frame: FrameType, function: Any) -> bool:
    """Whether a call is one of torch's functions that compute a tensor, from the package's code."""
    if 'pygfuse' not in frame.f_globals.get('__name__', ''):
        return False
    owner = getattr(function, '__self__', None)
    return isinstance(owner, torch.Tensor) or owner is torch._C._VariableFunctions or owner is torch._C._nn


def of_anything(frame: FrameType, function: Any) -> bool:
    """Any call of a function that is written in C."""
    return isinstance(function, BuiltinFunctionType)


@contextlib.contextmanager
def out_of_memory(
    at: int | None, may_fail: Callable[[FrameType, Any], bool] = of_torch, error: type[Exception] = MemoryError
) -> Iterator[Failure]:
    """A ``with`` block in which one call of this thread fails as if there was no memory.

    Args:
        at: Which of the calls that may fail, from 0; None for none.
        may_fail: Tells whether a call may, from the frame that calls and the function.
        error: What it raises.
    """
    failure, before = Failure(), sys.getprofile()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event != 'c_call' or not may_fail(frame, argument):
            return
        failure.calls += 1
        if failure.calls - 1 == at:
            failure.happened = True
            sys.setprofile(before)
            raise error('no memory, says the test')

    sys.setprofile(watch)
    try:
        yield failure
    finally:
        sys.setprofile(before)
