"""The edges that a call's walks take, and how they are cut: by row, of a path, or in no order."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import WalkedEdges
from pygfuse.codegen.packing import Packed, packed_when_met_again
from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cpu import row_tiling
from pygfuse.cpu.edges import paths
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.mapping.choice import choose
from pygfuse.mapping.cost_model import edge_cost
from pygfuse.mapping.mapping import Cut, Mapping, copies_for_adding, cut, in_parts, scattered_bounds
from pygfuse.partial.paths.cuts import grouped
from pygfuse.partial.paths.path import ExecutionPath
from pygfuse.partial.paths.rows import PathRows
from pygfuse.program.adjoint import BackwardPlan

# a row of a path that has fewer edges on average is scored so many edges at a time
FEW_EDGES = 8
# what a thread has to have to do, in ns: less than waking it takes, and waiting for it where the cores are busy
THREAD_WORK = 50_000


def tiling_of(call: Call, registers: int, split_channels: bool, edge_limit: int | None = None) -> Tiling:
    """How a row of a call is cut for registers."""
    shape, least = (call.like.dtype, call.heads, call.channels), row_tiling.least_edges(call.bound)
    return row_tiling.tiling(*shape, registers, split_channels, edge_limit, least)


def edges_of(call: Call, side: str) -> tuple[Csr | Coo, Mapping]:
    """The edges by rows of one side, or in no order, and how they are cut."""
    return choose(call.graph, side, call.row_bytes, call.bound.softmax, call.reduce)


def threads_for(call: Call, num_edges: int) -> int:
    """On how many threads edges of a call are walked: as many as the work is worth, at most torch's.

    The work is cut into the same parts on any number of threads.
    """
    worth = int(num_edges * edge_cost(call.row_bytes) / THREAD_WORK)
    return 1 if worth < 2 else min(worth, torch.get_num_threads())


def needs_ids(call: Call) -> bool:
    """Whether a walk of a call asks which edge is which: along the transpose, that has to be gathered first."""
    return call.dropout is not None or call.weights is not None or call.bound.reads_edges


def words_of(csr: Csr, parts: Cut, tiling: Tiling, with_ids: bool) -> WalkedEdges | Packed:
    """The edges as forward walks take them."""
    return packed_when_met_again(
        csr.memo,
        ('walked edges', parts, tiling, with_ids),
        lambda: WalkedEdges(tiling.tiles, parts.bounds, csr.indptr, csr.index, csr.edge_id if with_ids else None),
    )


def copies_of_heads(call: Call) -> int:
    """How many copies of the targets' heads parts add to, see `copies_for_adding`."""
    return copies_for_adding(call.graph.csr, call.heads * call.like.element_size())


@functools.cache
def nothing(dtype: torch.dtype) -> Tensor:
    """What a walk takes for room that it does not need, or by all rows of a graph for its list of rows."""
    return torch.empty(0, dtype=dtype, device='cpu')


def rows_of_path(
    call: Call, path: ExecutionPath, side: str, parts: Cut, mapping: Mapping | None
) -> tuple[PathRows, Cut]:
    """The path's edges by rows of one side, and the whole graph's parts without the edges left out.

    Args:
        call: The call.
        path: The path.
        side: ``'source'`` or ``'target'``.
        parts: Parts of the whole graph.
        mapping: By which parts that became small are grouped, or None to leave them.
    """
    rows, parts = paths.rows_and_parts(path, call.graph, side, parts)
    return rows, parts if mapping is None else grouped(rows, parts, mapping, call.row_bytes)


class Walked(NamedTuple):
    """The edges that a walk of the adjoint takes.

    Attributes:
        edges: By row, of a path the rows that have any, or in no order.
        tiling: What is held of a row at once.
        parts: The parts of the work; None for edges in no order.
        bounds: The parts' bounds.
        listed: The list of rows.
        with_ids: Whether the walk asks which edge is which.
        pieces: Number of parts.
        slots: Number of partial results.
    """

    edges: Csr | Coo | PathRows
    tiling: Tiling
    parts: Cut | None
    bounds: Tensor
    listed: Tensor
    with_ids: bool
    pieces: int
    slots: int

    @property
    def rows_of(self) -> tuple[Tensor | None, ...]:
        """The list of rows, their pointer, the other ends and the ids of edges, as the walk takes them."""
        edges = self.edges
        if isinstance(edges, Coo):
            return self.listed, edges.rows, edges.index, None
        return self.listed, edges.indptr, edges.index, edges.edge_id if self.with_ids else None


def walked_by(call: Call, plan: BackwardPlan, path: ExecutionPath | None) -> Walked:
    """The edges that a plan's walk takes; of a path, if there is one."""
    edges, mapping = edges_of(call, plan.side)
    tiling = tiling_of(call, row_tiling.BACKWARD_REGISTERS, False)
    if isinstance(edges, Coo):
        bounds, listed = scattered_bounds(edges), nothing(edges.rows.dtype)
        pieces = len(bounds) // 2 - 1
        return Walked(edges, tiling, None, bounds, listed, False, pieces, pieces * edges.num_rows)
    if plan.added:
        mapping = in_parts(edges, mapping, copies_of_heads(call))
    parts, listed = cut(edges, mapping), nothing(edges.indptr.dtype)
    if path is not None:
        # copies that are added to are few
        edges, parts = rows_of_path(call, path, plan.side, parts, None if plan.added else mapping)
        listed = edges.rows
        if edges.num_edges < FEW_EDGES * len(listed):
            tiling = tiling_of(call, row_tiling.BACKWARD_REGISTERS, False, FEW_EDGES)
    return Walked(edges, tiling, parts, parts.bounds, listed, needs_ids(call), parts.count, parts.num_slots)
