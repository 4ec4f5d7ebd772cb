"""Steps under torch.compile, where it gives one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pygfuse.bench.limits import within


def compiled_step(step: Callable[[], None], seconds: int, afresh: bool = True) -> Callable[[], None] | str:
    """A step of modules that torch.compile was given, which has run twice, or why there is none.

    Args:
        step: The step.
        seconds: How long compiling it may take.
        afresh: Whether torch is to forget all that it compiled before.
    """
    if afresh:
        torch.compiler.reset()
    try:
        with within(seconds):
            step()
            step()
    except Exception as error:
        return f'fails: {type(error).__name__}'
    return step
