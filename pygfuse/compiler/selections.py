"""Numbers at certain places of each row, by views of the row as far as there are any."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def selected(x: Tensor, take: Sequence[int]) -> Tensor:
    """The numbers of each row at the places `take`, in a row; 0 where a place is -1.

    Example:
        >>> selected(torch.arange(6).view(1, 2, 3), [1, 1, 4, 4]).tolist()
        [[1, 1, 4, 4]]
    """
    flat = x if x.dim() == 2 else x.unsqueeze(-1).flatten(1) if x.dim() else x.reshape(1, 1)
    rows, width = flat.shape
    found = _selection(tuple(take), width)
    part = _part(flat, found)
    if found.each > 1:
        part = part.unsqueeze(-1).expand(rows, part.shape[1], found.each).flatten(1)
    if found.again > 1:
        part = part.unsqueeze(1).expand(rows, found.again, part.shape[1]).flatten(1)
    return part


@dataclasses.dataclass(frozen=True)
class _Selection:
    """Places of a row: `places`, each of them `each` times, and all that `again` times.

    Attributes:
        places: Distinct places, or any.
        each: How often each place follows itself.
        again: How often these follow themselves.
        block: Where a row is seen as rows of `block[0]` numbers, the ranges of rows and of numbers there that `places`
            are; None if they are no such block.
    """

    places: tuple[int, ...]
    each: int
    again: int
    block: tuple[int, slice, slice] | None


def _part(flat: Tensor, found: _Selection) -> Tensor:
    rows, width = flat.shape
    places = found.places
    if places == tuple(range(width)):
        return flat
    if found.block is not None:
        period, first, second = found.block
        return flat.view(rows, width // period, period)[:, first, second].flatten(1)
    if -1 in places:
        flat = F.pad(flat, (0, 1))
    index = torch.tensor([width if i < 0 else i for i in places], dtype=torch.int64, device=flat.device)
    return flat.index_select(1, index)


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


def _block(places: tuple[int, ...], width: int) -> tuple[int, slice, slice] | None:
    """The block that places are of a row that is seen as a matrix."""
    if not places or places[0] < 0:
        return None
    first = places[0]
    size = next((k for k, place in enumerate(places) if place != first + k), len(places))
    if size == len(places):
        return width, slice(0, 1), slice(first, first + size)
    period = places[size] - first
    column = first % period if period > 0 else 0
    if period <= 0 or len(places) % size or width % period or column + size > period:
        return None
    count, row = len(places) // size, first // period
    if places != tuple(first + k * period + i for k in range(count) for i in range(size)):
        return None
    return period, slice(row, row + count), slice(column, column + size)
