"""Counts, on tensors of a CPU, for which operators the host would wait for a GPU."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ATEN = torch.ops.aten
# results whose size the device knows, and numbers that Python reads
WAITING = {
    ATEN._local_scalar_dense, ATEN.nonzero, ATEN.masked_select, ATEN.equal, ATEN.bincount, ATEN._unique, ATEN._unique2,
    ATEN.unique_consecutive, ATEN.unique_dim,
}  # fmt: skip
INDEXING = {ATEN.index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_}


class Waits(TorchDispatchMode):
    """Counts them within a ``with`` block.

    Attributes:
        found: How often each operator made the host wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in WAITING or self._selects(func, args) or self._repeats(func, kwargs or {}):
            self.found[str(func.overloadpacket)] += 1
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _selects(func, args) -> bool:
        """Whether a mask says what is taken."""
        masks = args[1] if func.overloadpacket in INDEXING else ()
        return any(mask is not None and mask.dtype in (torch.bool, torch.uint8) for mask in masks)

    @staticmethod
    def _repeats(func, kwargs) -> bool:
        """Whether numbers on the device say how long the result is."""
        return func is ATEN.repeat_interleave.Tensor and kwargs.get('output_size') is None


@contextlib.contextmanager
def waits() -> Iterator[Counter[str]]:
    """A ``with`` block that counts, reading lists of numbers included."""
    counting, tolist = Waits(), Tensor.tolist

    def listed(tensor: Tensor) -> list:
        counting.found['tolist'] += 1
        return tolist(tensor)

    with counting, mock.patch.object(Tensor, 'tolist', listed):
        yield counting.found
