"""Types with few rows each, in groups that are padded to one number of rows: a group is worked on at once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

# types with at most so many rows are padded, to the first of these numbers that holds them
_CAPACITIES = (4, 16, 64)
# so many types at least: fewer are worked on one by one
_LEAST_TYPES = 8


@dataclasses.dataclass(frozen=True, eq=False)
class PaddedGroup:
    """Types that are padded to one number of rows.

    Attributes:
        kinds: The types, int64.
        capacity: The number of rows that each has after padding.
        taken: The row that stands in each padded place, ``[types * capacity]``, int64; in those that pad, one of the
            same type.
        rows: The rows of these types, int64.
        places: The padded place of each of them, int64.
        padding: The places that pad, int64.
    """

    kinds: Tensor
    capacity: int
    taken: Tensor
    rows: Tensor
    places: Tensor
    padding: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class PaddedTypes:
    """All types.

    Attributes:
        groups: Those that are padded.
        others: The numbers of those that are not, with any rows.
    """

    groups: tuple[PaddedGroup, ...]
    others: tuple[int, ...]


def padded_types(bounds: Sequence[int], device: torch.device) -> PaddedTypes:
    """Which types are padded together.

    Args:
        bounds: Where each type's rows begin, and the end.
        device: Where the rows are.

    Example:
        >>> bounds = [*range(0, 27, 3), 1000]
        >>> found = padded_types(bounds, torch.device('cpu'))
        >>> found.others, found.groups[0].kinds
        ((8,), tensor([0, 1, 2, 3, 4, 5, 6, 7]))
        >>> found.groups[0].taken[:8], found.groups[0].places[:6]
        (tensor([0, 1, 2, 2, 3, 4, 5, 5]), tensor([0, 1, 2, 4, 5, 6]))
    """
    sizes = [end - begin for begin, end in itertools.pairwise(bounds)]
    groups, padded = [], set()
    for least, capacity in itertools.pairwise((0, *_CAPACITIES)):
        kinds = [kind for kind, size in enumerate(sizes) if least < size <= capacity]
        if len(kinds) >= _LEAST_TYPES:
            padded.update(kinds)
            groups.append(_group(kinds, sizes, bounds, capacity, device))
    others = (kind for kind, size in enumerate(sizes) if size and kind not in padded)
    return PaddedTypes(tuple(groups), tuple(others))


def _group(
    kinds: Sequence[int], sizes: Sequence[int], bounds: Sequence[int], capacity: int, device: torch.device
) -> PaddedGroup:
    with torch.inference_mode(False):
        counts = torch.tensor([sizes[kind] for kind in kinds], device=device).unsqueeze(1)
        begins = torch.tensor([bounds[kind] for kind in kinds], device=device).unsqueeze(1)
        offsets = torch.arange(capacity, device=device)
        taken = (begins + torch.minimum(offsets, counts - 1)).flatten()
        is_row = (offsets < counts).flatten()
        places = is_row.nonzero().flatten()
        padding = is_row.logical_not().nonzero().flatten()
        return PaddedGroup(torch.tensor(kinds, device=device), capacity, taken, taken[places], places, padding)
