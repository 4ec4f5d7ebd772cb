"""What walks are estimated to cost.

The model counts the work of a walk, in ns of one worker: bytes of rows gathered, rows written, pieces combined, parts
dealt out; and, for a graph that is used once, what sorting it would take. It knows the graph's statistics and the width
of a row, and nothing of the number of threads at hand, so that the same graph gets the same mapping, and thereby the
same bits, wherever it is walked.
"""

from __future__ import annotations

import dataclasses
import functools

from pygfuse.mapping.mapping import (
    EDGE_BALANCED,
    HEAVY_PARTS,
    PART_WORK,
    PARTS_LIMIT,
    VERTEX_BALANCED,
    Mapping,
    scattered_count,
)
from pygfuse.mapping.records import Shape


@dataclasses.dataclass(frozen=True)
class Costs:
    """Prices in ns of one worker; those per byte are of the bytes of one row of channels.

    Attributes:
        workers: How many workers the model assumes.
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
    if mapping.balance == EDGE_BALANCED:
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
    for balance, part_work in (
        (VERTEX_BALANCED, PART_WORK // 4),
        (EDGE_BALANCED, PART_WORK),
        (EDGE_BALANCED, PART_WORK // 4),
    ):
        other = Mapping(balance, part_work)
        if walk_cost(shape, row_bytes, other) < (1 - WORTHWHILE) * walk_cost(shape, row_bytes, best):
            best = other
    return best
