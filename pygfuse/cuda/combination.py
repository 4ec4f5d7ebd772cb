"""Rows that lie in several parts: what their pieces left is combined by all teams, level by level.

Of a row with many pieces, teams first combine runs of `FAN_IN` of them, each leaving a piece in a slot of its own, and
then what these left: so a hub's pieces, which may be thousands, never wait for one team. The tree follows from the cut
alone, and so does every bit of the result.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cuda import kernels
from pygfuse.cuda.walks.arguments import COMBINE, FOLD
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Cut

# pieces that a team combines one after another: a level more costs a launch, about as much as some loads that wait
FAN_IN = 32


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """Pieces that are combined side by side, each run of them by one team.

    Attributes:
        into: Where each run goes: a slot, or of the last level a row.
        indptr: Where the slots of each run begin, and the end.
        slots: Of all runs, in the order of edges.
        longest: Pieces of the longest run.
    """

    into: Tensor
    indptr: Tensor
    slots: Tensor
    longest: int


@dataclasses.dataclass(frozen=True, eq=False)
class Levels:
    """How the pieces of the rows of a cut are combined.

    Attributes:
        inner: Levels that leave what they combine in slots.
        last: The level that finishes rows.
        num_slots: Slots of parts and of inner levels.
    """

    inner: tuple[Level, ...]
    last: Level
    num_slots: int

    @property
    def longest_chain(self) -> int:
        """Pieces that are combined one after another before the last row is finished."""
        return sum(level.longest for level in (*self.inner, self.last))


def levels_of(parts: Cut) -> Levels | None:
    """How the rows of a cut are combined, kept with it; None where no row lies in several parts."""
    if not parts.num_slots:
        return None
    return parts.memo.get_or_make(('levels', FAN_IN), lambda: _levels(parts, FAN_IN))


def num_slots(parts: Cut) -> int:
    """Room for what the parts of a cut, and what combines them, leave of rows that lie in several."""
    levels = levels_of(parts)
    return 0 if levels is None else levels.num_slots


def _levels(parts: Cut, fan_in: int) -> Levels:
    indptr, slots, num_slots, inner = parts.split_indptr, parts.slots, parts.num_slots, []
    while (longest := int(indptr.diff().max())) > fan_in:
        runs = (indptr.diff() + fan_in - 1) // fan_in
        first = torch.cat([runs.new_zeros(1), runs.cumsum(0)])
        places = torch.arange(int(first[-1]), device=slots.device)
        row = torch.repeat_interleave(runs, output_size=len(places))
        begins = indptr[row] + (places - first[row]) * fan_in
        into = num_slots + places
        inner.append(Level(into, torch.cat([begins, indptr[-1:]]), slots, fan_in))
        indptr, slots, num_slots = first, into, num_slots + len(places)
    return Levels(tuple(inner), Level(parts.split_rows, indptr, slots, longest), num_slots)


def combine(
    parts: Cut,
    csr: Csr,
    tiling: Tiling,
    row: shared.Row,
    partial: shared.PartialStates,
    results: shared.Results,
    softmax: bool = False,
    reduce: str = 'sum',
) -> None:
    """Finishes the rows that lie in several parts.

    Args:
        parts: The cut.
        csr: What is cut.
        tiling: The tiles of a row.
        row: A row in memory.
        partial: What the parts left, with room for the slots of `levels_of`.
        results: Where rows go.
        softmax: Whether weights are a softmax.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
    """
    levels, device = levels_of(parts), tiling.tiles.device
    if levels is None:
        return
    fold = kernels.fold_kernel(tiling.layout, softmax, reduce)
    for level in levels.inner:
        runs = len(level.into)
        fold(
            *(device, fold.blocks(runs), tiling.count),
            runs,
            *FOLD(shared.SplitRows(tiling.tiles, level.into, level.indptr, level.slots), row, partial),
        )
    last = levels.last
    finish = kernels.combine_kernel(tiling.layout, softmax, reduce)
    finish(
        *(device, finish.blocks(len(last.into)), tiling.count),
        len(last.into),
        *COMBINE(
            shared.SplitRows(tiling.tiles, last.into, last.indptr, last.slots),
            shared.RowPointer(csr.indptr),
            row,
            partial,
            results,
        ),
    )
