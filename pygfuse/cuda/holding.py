"""What captured launches read beside the tensors of the step: rows of graphs, cuts, tiles.

The step's own tensors are the user's, and what it makes while it is captured is the CUDA graph's. Index tensors are
neither: caches have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

_INDEX = (torch.int32, torch.int64)
# what open blocks hold; forward and backward launch from different threads
_HOLDERS: list[list[Tensor]] = []


@contextlib.contextmanager
def holding() -> Iterator[list[Tensor]]:
    """A ``with`` block that collects the index tensors of all launches."""
    held: list[Tensor] = []
    _HOLDERS.append(held)
    try:
        yield held
    finally:
        # not by `remove`, which would compare tensors
        _HOLDERS[:] = [other for other in _HOLDERS if other is not held]


def hold(arguments: object) -> None:
    """Holds the index tensors among the arguments of a launch, if a block is open."""
    if _HOLDERS:
        found = [*_index_tensors(arguments)]
        for held in _HOLDERS:
            held += found


def _index_tensors(argument: object) -> Iterator[Tensor]:
    if isinstance(argument, Tensor) and argument.dtype in _INDEX:
        yield argument
    elif isinstance(argument, tuple):
        for item in argument:
            yield from _index_tensors(item)
