"""Numbers at certain places of each row, by views of the row as far as there are any."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def selected(x: Tensor, take: Sequence[int]) -> Tensor:
    """The numbers of each row at the places `take`, in a row; 0 where a place is -1.

    Example:
        >>> selected(torch.arange(6).view(1, 2, 3), [1, 1, 4, 4]).tolist()
        [[1, 1, 4, 4]]
    """
    flat = _in_rows(x)
    found = _known(_selection)(tuple(take), flat.shape[1])
    return _repeated(_part(flat, found), found)


def parts(x: Tensor, takes: Sequence[Sequence[int]]) -> list[Tensor]:
    """`selected` for several lists of places: parts of rows that are apart by one split, whose gradient is one tensor.

    Example:
        >>> [part.tolist() for part in parts(torch.arange(6).view(1, 6), [[0, 1], [3, 4, 5]])]
        [[[0, 1]], [[3, 4, 5]]]
    """
    flat = _in_rows(x)
    found = [_known(_selection)(tuple(take), flat.shape[1]) for take in takes]
    places = _known(_split_of)(tuple([one.block for one in found]))
    if places is None:
        return [_repeated(_part(flat, one), one) for one in found]
    period, first, last, *_ = found[0].block
    sizes, order = places
    pieces = flat.view(flat.shape[0], flat.shape[1] // period, period)[:, first:last].split(sizes, dim=2)
    return [_repeated(pieces[k].flatten(1), one) for k, one in zip(order, found, strict=True)]


def _known(function: Callable) -> Callable:
    """A function that remembers what it gave; without its memory while torch compiles, which warns of one."""
    return function.__wrapped__ if torch.compiler.is_compiling() else function


def _in_rows(x: Tensor) -> Tensor:
    return x if x.dim() == 2 else x.unsqueeze(-1).flatten(1) if x.dim() else x.reshape(1, 1)


def _repeated(part: Tensor, found: _Selection) -> Tensor:
    rows = part.shape[0]
    if found.each > 1:
        part = part.unsqueeze(-1).expand(rows, part.shape[1], found.each).flatten(1)
    if found.again > 1:
        part = part.unsqueeze(1).expand(rows, found.again, part.shape[1]).flatten(1)
    return part


class _Block(NamedTuple):
    """Columns `start` to `end` of the rows `first` to `last` of a matrix of `period` columns, ends exclusive."""

    period: int
    first: int
    last: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class _Selection:
    """Places of a row: `places`, each of them `each` times, and all that `again` times.

    Attributes:
        places: Distinct places, or any.
        each: How often each place follows itself.
        again: How often these follow themselves.
        block: What `places` are of a row that is seen as a matrix; None if they are no block of one.
    """

    places: tuple[int, ...]
    each: int
    again: int
    block: _Block | None


def _part(flat: Tensor, found: _Selection) -> Tensor:
    rows, width = flat.shape
    places = found.places
    if places == tuple(range(width)):
        return flat
    if found.block is not None:
        period, first, last, start, end = found.block
        return flat.view(rows, width // period, period)[:, first:last, start:end].flatten(1)
    if -1 in places:
        flat = F.pad(flat, (0, 1))
    index = torch.tensor([width if i < 0 else i for i in places], dtype=torch.int64, device=flat.device)
    return flat.index_select(1, index)


@functools.lru_cache(maxsize=1024)
def _split_of(blocks: tuple[_Block | None, ...]) -> tuple[list[int], list[int]] | None:
    """The sizes of a split, and which of its pieces each block is; None if they are not parts of the same rows."""
    if None in blocks or len({block[:3] for block in blocks}) > 1:
        return None
    sizes, pieces, reached = [], {}, 0
    for start, end in sorted({(block.start, block.end) for block in blocks}):
        if start < reached:
            return None
        if start > reached:
            sizes.append(start - reached)
        pieces[start] = len(sizes)
        sizes.append(end - start)
        reached = end
    if reached < blocks[0].period:
        sizes.append(blocks[0].period - reached)
    return sizes, [pieces[block.start] for block in blocks]


@functools.lru_cache(maxsize=1024)
def _selection(take: tuple[int, ...], width: int) -> _Selection:
    places, again = _period(take)
    each = next((k for k, place in enumerate(places) if place != places[0]), len(places))
    if each == 0 or len(places) % each or places != tuple(place for place in places[::each] for _ in range(each)):
        each = 1
    places = places[::each]
    return _Selection(places, each, again, _block(places, width))


def _period(take: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The fewest places that give all when they are repeated, and how often."""
    count = len(take)
    for size in (k for k in range(1, count) if count % k == 0 and len(set(take)) <= k):
        if take == take[:size] * (count // size):
            return take[:size], count // size
    return take, 1


def _block(places: tuple[int, ...], width: int) -> _Block | None:
    """The block that places are of a row that is seen as a matrix."""
    if not places or places[0] < 0:
        return None
    first = places[0]
    size = next((k for k, place in enumerate(places) if place != first + k), len(places))
    if size == len(places):
        return _Block(width, 0, 1, first, first + size)
    period = places[size] - first
    column = first % period if period > 0 else 0
    if period <= 0 or len(places) % size or width % period or column + size > period:
        return None
    count, row = len(places) // size, first // period
    if places != tuple(first + k * period + i for k in range(count) for i in range(size)):
        return None
    return _Block(period, row, row + count, column, column + size)
