"""Memory of a device as an interpreted kernel sees it, which notices what a GPU would not say.

Each tensor that a launch is given lies far from all others, at an address with the low bits that it has, so that an
access beyond its end, or one that is not aligned, is an error. So are

- a store to what is read by a non-coherent load (``ld.global.nc``), before or after: its cache may keep the old value;
- two different values that two threads store at one address;
- a load of what another team stores, or a store of what another team loads: nothing orders teams of a launch;
- a load of what nobody has written (`unwritten`).

Shared memory of a block has rules of its own (`SharedMemory`). Whether one of these is found does not depend on the
order in which threads run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch

# the distance of tensors, and how many low bits of their addresses are kept
_APART, _KEPT = 40, 256
# what stands where nobody has written, again and again: in floating types of 16 and 32 bits a NaN that no arithmetic
# gives, in others a large number
_UNWRITTEN = 0x7FA5
_NOBODY, _SEVERAL = -1, -2
_WARP = 32


class Fault(AssertionError):
    """What a kernel must not do."""


@contextlib.contextmanager
def unwritten() -> Iterator[None]:
    """A ``with`` block in which tensors that are made empty hold what `DeviceMemory` finds again."""

    def marking(make: Callable) -> Callable:
        def made(*arguments: object, **options: object) -> torch.Tensor:
            tensor = make(*arguments, **options)
            if tensor.device.type == 'cpu' and tensor.numel() and tensor.is_contiguous() and tensor.nbytes % 2 == 0:
                tensor.detach().view(-1).view(torch.int16).fill_(_UNWRITTEN)
            return tensor

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, 'new_empty', marking(torch.Tensor.new_empty))
        patch.setattr(torch, 'empty_like', marking(torch.empty_like))
        patch.setattr(torch, 'empty', marking(torch.empty))
        yield


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor that is contiguous."""
    if not tensor.is_contiguous():
        raise Fault(f'a tensor that is not contiguous: {tuple(tensor.shape)}, strides {tensor.stride()}')
    return tensor.detach().view(-1).view(torch.uint8).numpy()


def held(tensor: torch.Tensor) -> torch.Tensor:
    """What there is in memory: where one number stands for many, as nobody reads them, that one."""
    return tensor.as_strided((1,), (1,)) if tensor.numel() and not any(tensor.stride()) else tensor


class DeviceMemory:
    """The memory of the tensors of one launch.

    Args:
        tensors: Each in the place of its address among the parameters; those that overlap share memory.
        team: How many neighbouring threads work in step.

    Attributes:
        loaded: How many bytes warps have loaded of each tensor.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], team: int) -> None:
        tensors = [held(tensor) for tensor in tensors]
        self._tensors, self._team = tensors, team
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        starts = [tensor.data_ptr() for tensor in tensors]
        self._places = _side_by_side(starts, sizes)
        self._sizes = np.array(sizes, dtype=np.uint64)
        self._low = np.array([start % _KEPT for start in starts], dtype=np.uint64)
        self._items = np.array([tensor.element_size() for tensor in tensors])
        length = max((place + size for place, size in zip(self._places, sizes, strict=True)), default=0)
        self._flat = np.zeros(-(-length // 16) * 16, dtype=np.uint8)
        for place, tensor in zip(self._places, tensors, strict=True):
            self._flat[place : place + tensor.numel() * tensor.element_size()] = bytes_of(tensor)
        # of each two bytes: the thread that has written them, the team that reads them, whether by non-coherent loads
        units = len(self._flat) // 2
        self._written = np.full(units, _NOBODY, dtype=np.int64)
        self._read = np.full(units, _NOBODY, dtype=np.int64)
        self._constant = np.zeros(units, dtype=np.bool_)
        self.loaded = np.zeros(len(tensors), dtype=np.int64)

    def address(self, which: int) -> int:
        """Where a tensor begins."""
        return ((which + 1) << _APART) + int(self._low[which])

    def finish(self) -> None:
        """Writes to the tensors what was stored."""
        for place, tensor in zip(self._places, self._tensors, strict=True):
            size = tensor.numel() * tensor.element_size()
            if (self._written[place // 2 : (place + size) // 2] != _NOBODY).any():
                bytes_of(tensor)[:] = self._flat[place : place + size]

    def load(self, address: np.ndarray, kind: type, count: int, constant: bool, threads: np.ndarray) -> np.ndarray:
        """What threads load: `count` items of a type at an address each."""
        size = np.dtype(kind).itemsize * count
        which, place = self._place(address, size, 'load')
        units, team = _units(place, size), (threads // self._team)[:, None]
        writer = self._written[units]
        if constant:
            _check(writer == _NOBODY, 'a non-coherent load of what this kernel stores')
            self._constant[units] = True
        else:
            _check((writer == _NOBODY) | (writer // self._team == team), 'a load of what another team stores')
            self._note_readers(units, team)
        values = self._flat.view(kind)[(place // np.dtype(kind).itemsize)[:, None] + np.arange(count)]
        for item in np.unique(self._items[which]):
            mark = int.from_bytes(_UNWRITTEN.to_bytes(2, 'little') * (item // 2), 'little')
            found = values[self._items[which] == item].view(f'u{min(item, size)}')
            _check(found != mark, 'a load of what nobody has written')
        # lanes of a warp that load one address load it once
        _, first = np.unique((threads // _WARP << _APART) + place, return_index=True)
        np.add.at(self.loaded, which[first], size)
        return values

    def store(self, address: np.ndarray, values: np.ndarray, threads: np.ndarray) -> None:
        """Stores a row of values at the address of each thread."""
        size = values.dtype.itemsize * values.shape[1]
        _, place = self._place(address, size, 'store')
        units, halves, flat = _units(place, size), values.view(np.uint16), self._flat.view(np.uint16)
        _check(~self._constant[units], 'a store to what this kernel reads by a non-coherent load')
        reader, writer = self._read[units], self._written[units]
        team = (threads // self._team)[:, None]
        _check((reader == _NOBODY) | (reader == team), 'a store to what another team loads')
        others = (writer != _NOBODY) & (writer != threads[:, None])
        _check(~others | (flat[units] == halves), 'two threads store different values at one address')
        flat[units] = halves
        _check(flat[units] == halves, 'two threads store different values at one address')
        self._written[units] = threads[:, None]

    def _note_readers(self, units: np.ndarray, team: np.ndarray) -> None:
        before = self._read[units]
        self._read[units] = np.where((before == _NOBODY) | (before == team), team, _SEVERAL)
        mixed = (self._read[units] != team) | ((before != _NOBODY) & (before != team))
        self._read[units[mixed]] = _SEVERAL

    def _place(self, address: np.ndarray, size: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Which tensor holds each address, and where in the memory of all it lies."""
        _check(address % np.uint64(size) == 0, f'a {what} that is not aligned')
        which = (address >> np.uint64(_APART)).astype(np.int64) - 1
        _check((which >= 0) & (which < len(self._sizes)), f'a {what} outside of all tensors')
        offset = (address & np.uint64((1 << _APART) - 1)) - self._low[which]
        _check(offset + np.uint64(size) <= self._sizes[which], f'a {what} outside of its tensor')
        # of addresses below the first, the difference is beyond any size
        _check(offset < self._sizes[which], f'a {what} outside of its tensor')
        return which, np.array(self._places, dtype=np.int64)[which] + offset.astype(np.int64)


class SharedMemory:
    """What the threads of a block share, of all blocks of a launch.

    Between two barriers nothing orders its warps: errors are a load of what another warp stores there, a store to what
    another warp loads or stores, and a load of what nobody has written.

    Args:
        size: Bytes of a block.
        blocks: How many blocks there are.
        threads: Of a block.
    """

    def __init__(self, size: int, blocks: int, threads: int) -> None:
        self._threads, shape = threads, (blocks, size)
        self._flat = np.zeros(shape, dtype=np.uint8)
        self._is_there = np.zeros(shape, dtype=np.bool_)
        # the warp that has stored each byte since the last barrier, and the one that has loaded it
        self._written, self._read = np.full(shape, _NOBODY), np.full(shape, _NOBODY)

    def ordered(self, blocks: np.ndarray) -> None:
        """All threads of these blocks have waited for each other."""
        self._written[blocks] = self._read[blocks] = _NOBODY

    def load(self, address: np.ndarray, kind: type, count: int, threads: np.ndarray) -> np.ndarray:
        """What threads load: `count` items of a type at an address each."""
        at, warp = self._bytes(address, np.dtype(kind).itemsize * count, threads)
        _check(self._is_there[at], 'a load of shared memory that nobody has written')
        writer, reader = self._written[at], self._read[at]
        _check((writer == _NOBODY) | (writer == warp), 'a load of shared memory that another warp stores')
        self._read[at] = np.where((reader == _NOBODY) | (reader == warp), warp, _SEVERAL)
        # of warps that load at once, one is noted
        mixed = self._read[at] != warp
        self._read[np.broadcast_to(at[0], mixed.shape)[mixed], at[1][mixed]] = _SEVERAL
        return np.ascontiguousarray(self._flat[at]).view(kind)

    def store(self, address: np.ndarray, values: np.ndarray, threads: np.ndarray) -> None:
        """Stores a row of values at the address of each thread."""
        size = values.dtype.itemsize * values.shape[1]
        at, warp = self._bytes(address, size, threads)
        writer, reader = self._written[at], self._read[at]
        _check((writer == _NOBODY) | (writer == warp), 'a store to shared memory that another warp stores to')
        _check((reader == _NOBODY) | (reader == warp), 'a store to shared memory that another warp loads')
        given = np.ascontiguousarray(values).view(np.uint8)
        self._flat[at], self._is_there[at], self._written[at] = given, True, warp
        _check(self._written[at] == warp, 'a store to shared memory that another warp stores to')
        _check(self._flat[at] == given, 'two threads store different values at one address')

    def _bytes(self, address: np.ndarray, size: int, threads: np.ndarray) -> tuple[tuple, np.ndarray]:
        """The bytes at each thread's address, and its warp."""
        _check(address % np.uint64(size) == 0, 'an address of shared memory that is not aligned')
        _check(address + np.uint64(size) <= self._flat.shape[1], 'an address outside of shared memory')
        within = address.astype(np.int64)[:, None] + np.arange(size)
        return ((threads // self._threads)[:, None], within), (threads // _WARP)[:, None]


def _check(holds: np.ndarray, what: str) -> None:
    if not holds.all():
        raise Fault(what)


def _units(place: np.ndarray, size: int) -> np.ndarray:
    return (place // 2)[:, None] + np.arange(size // 2)


def _side_by_side(starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """A place in one memory for each interval of addresses, with its low bits; those that overlap stay so."""
    places, begin, end, free = [0] * len(starts), 0, 0, 0
    for i in sorted(range(len(starts)), key=lambda i: starts[i]):
        if starts[i] >= end:
            # a run of intervals that overlap begins
            begin = starts[i]
            shift = -(-free // _KEPT) * _KEPT + begin % _KEPT
        places[i] = shift + starts[i] - begin
        end = max(end, starts[i] + sizes[i])
        free = max(free, places[i] + sizes[i])
    return places
