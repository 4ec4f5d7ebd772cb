"""The choice among mappings: what is forced, else what was measured, else what a cost model says.

Where `pygfuse.group_sizes` names a chooser, that decides how much work a part holds.

The model counts the work of a walk, in ns of one worker: bytes of rows gathered, rows written, pieces combined, parts
dealt out; and, for a graph that is used once, what sorting it would take. It knows the graph's statistics and the width
of a row, and nothing of the number of threads at hand, so that the same graph gets the same mapping, and thereby the
same bits, wherever it is walked.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator

import torch

from pygfuse.call.call import Call
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping import records as measured
from pygfuse.mapping.group_sizes.chooser import with_group_size
from pygfuse.mapping.mapping import (
    EDGE,
    HEAVY_PARTS,
    PART_WORK,
    PARTS_LIMIT,
    SCATTER,
    VERTEX,
    Mapping,
    forced,
    scattered_count,
)
from pygfuse.mapping.records import Shape
from pygfuse.program.program import SOURCE, TARGET


@dataclasses.dataclass(frozen=True)
class Costs:
    """Prices in ns of one worker; those per byte are of the bytes of one row of channels.

    Attributes:
        workers: How many workers the model reckons with.
        edge, edge_byte: Of one edge: gathering a row and adding it.
        row, row_byte: Of beginning and writing one row.
        slot, slot_byte: Of leaving and combining one partial row.
        part: Of dealing out one part.
        sorted_edge: Of sorting one edge.
        scattered_edge, scattered_byte: Of one edge that is added to a row in memory.
        copy_byte: Of clearing and adding up a byte of a part's own rows.
    """

    workers: int = 4
    edge: float = 1.5
    edge_byte: float = 0.011
    row: float = 5.0
    row_byte: float = 0.02
    slot: float = 30.0
    slot_byte: float = 0.05
    part: float = 300.0
    sorted_edge: float = 11.0
    scattered_edge: float = 4.0
    scattered_byte: float = 0.04
    copy_byte: float = 0.25


# a mapping is preferred to a simpler one if it is estimated to save this share of the time
WORTHWHILE = 0.03

# fitted on two cores of an AMD EPYC (Zen 5); docs/performance-notes.md has the measurements
CPU_COSTS = Costs()


def edge_cost(row_bytes: int, costs: Costs = CPU_COSTS) -> float:
    """The estimated time in ns of one worker of gathering a row along an edge and adding it.

    Args:
        row_bytes: Bytes of a row of channels.
        costs: The device's prices.
    """
    return costs.edge + costs.edge_byte * row_bytes


def walk_cost(shape: Shape, row_bytes: int, mapping: Mapping, costs: Costs = CPU_COSTS) -> float:
    """The estimated time in ns of a walk by rows.

    The parts are dealt out to whoever is free, so that a walk takes its workers' even share and, at the end, half of
    its longest part.

    Args:
        shape: The graph.
        row_bytes: Bytes of a row of channels.
        mapping: Vertex- or edge-balanced.
        costs: The device's prices.

    Example:
        >>> regular, hub = Shape(10_000, 200_000, 20), Shape(10_000, 200_000, 100_000)
        >>> walk_cost(regular, 256, Mapping('vertex')) < walk_cost(regular, 256, Mapping('edge'))
        True
        >>> walk_cost(hub, 256, Mapping('vertex')) > walk_cost(regular, 256, Mapping('vertex'))
        True
    """
    work = shape.num_rows + shape.num_edges
    parts = max(1, min(PARTS_LIMIT, -(-work // mapping.part_work)))
    longest, slots = work / parts, 0
    if mapping.balance == EDGE:
        # nearly every boundary lies within a row, which then has two pieces
        slots = 2 * (parts - 1) * min(1.0, shape.num_edges / max(shape.num_rows, 1))
    elif shape.max_degree > HEAVY_PARTS * longest:
        slots, longest = shape.max_degree / longest + 1, (1 + HEAVY_PARTS) * longest
    else:
        longest += shape.max_degree
    edge = edge_cost(row_bytes, costs)
    total = shape.num_edges * edge + shape.num_rows * (costs.row + costs.row_byte * row_bytes)
    total += slots * (costs.slot + costs.slot_byte * row_bytes) + parts * costs.part
    return total / costs.workers + longest * edge / 2 * (parts > 1)


def scatter_cost(shape: Shape, row_bytes: int, costs: Costs = CPU_COSTS) -> float:
    """The estimated time in ns of a walk over edges in no order."""
    copies = scattered_count(shape.num_rows, shape.num_edges)
    total = shape.num_edges * (costs.scattered_edge + costs.scattered_byte * row_bytes)
    total += copies * shape.num_rows * row_bytes * costs.copy_byte
    return total / min(costs.workers, copies)


def sorting_cost(shape: Shape, costs: Costs = CPU_COSTS) -> float:
    """The estimated time in ns of sorting the edges by row."""
    return shape.num_edges * costs.sorted_edge / costs.workers


@functools.lru_cache(maxsize=1024)
def modelled(shape: Shape, row_bytes: int) -> Mapping:
    """The mapping of least estimated cost for a graph that is walked by rows; between near equals the simpler."""
    best = Mapping()
    for balance, part_work in ((VERTEX, PART_WORK // 4), (EDGE, PART_WORK), (EDGE, PART_WORK // 4)):
        other = Mapping(balance, part_work)
        if walk_cost(shape, row_bytes, other) < (1 - WORTHWHILE) * walk_cost(shape, row_bytes, best):
            best = other
    return best


_once: contextvars.ContextVar[bool] = contextvars.ContextVar('pygfuse_used_once', default=False)


@contextlib.contextmanager
def used_once() -> Iterator[None]:
    """Says that graphs met for the first time within a ``with`` block will not be met again.

    Their edges are then summed without being sorted where that is estimated to be cheaper: for few channels, in layers
    that sum or average without softmax. The backward pass of such a call does the same, wherever it runs.

    Example:
        >>> import torch
        >>> from pygfuse.conv import SAGEConv
        >>> conv, x = SAGEConv(8, 8), torch.randn(100, 8)
        >>> with used_once():
        ...     conv(x, torch.randint(100, (2, 500))).shape
        torch.Size([100, 8])
    """
    token = _once.set(True)
    try:
        yield
    finally:
        _once.reset(token)


_recorded: contextvars.ContextVar[set[Shape] | None] = contextvars.ContextVar('pygfuse_recorded', default=None)


@contextlib.contextmanager
def recorded() -> Iterator[set[Shape]]:
    """Collects the shapes of all graphs that are walked by rows within a ``with`` block."""
    shapes: set[Shape] = set()
    token = _recorded.set(shapes)
    try:
        yield shapes
    finally:
        _recorded.reset(token)


def mapping_for(csr: Csr, call: Call) -> Mapping:
    """The mapping of a walk by rows."""
    shapes, chosen = _recorded.get(), forced()
    if shapes is not None:
        shapes.add(Shape.of(csr))
    if chosen is None:
        chosen = csr.memo.get_or_make(
            ('mapping', call.row_bytes, measured.TABLE.generation, torch.get_num_threads()),
            lambda: measured.mapping_of(Shape.of(csr)) or modelled(Shape.of(csr), call.row_bytes),
        )
        chosen = with_group_size(chosen, csr, call.row_bytes)
    return dataclasses.replace(chosen, balance=VERTEX) if chosen.balance == SCATTER else chosen


def choose(call: Call, side: str) -> tuple[Csr | Coo, Mapping]:
    """The edges that a walk by rows of `side` takes, sorted or not, and the mapping."""
    coo = _unsorted(call)
    if coo is not None:
        return (coo if side == TARGET else coo.transposed()), Mapping(SCATTER)
    csr = call.graph.csc if side == SOURCE else call.graph.csr
    return csr, mapping_for(csr, call)


def _unsorted(call: Call) -> Coo | None:
    """The edges as they came, if this call does without sorting them."""
    if call.bound.softmax or call.reduce not in ('sum', 'mean') or call.graph.is_sorted:
        return None
    chosen = forced()
    if chosen is not None:
        return call.graph.unsorted() if chosen.balance == SCATTER else None
    if _once.get():
        call.graph.reused = False
    if call.graph.reused or not _scatter_is_cheaper(call.graph, call.row_bytes):
        return None
    return call.graph.unsorted()


def _scatter_is_cheaper(graph: Graph, row_bytes: int) -> bool:
    shape = Shape(graph.num_targets, graph.num_user_edges, 0)
    return scatter_cost(shape, row_bytes) < sorting_cost(shape) + walk_cost(shape, row_bytes, Mapping())
