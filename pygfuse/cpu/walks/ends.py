"""The ends of edges as an ``edge_index`` lists them, whether all of them are nodes, and the row of a place."""

from __future__ import annotations

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.memory import pointer_at


@inlined
def ends_of(edges, target_row):
    """The targets and the sources of a contiguous ``[2, edges]`` of which one row holds targets, and their number."""
    num_edges = len(edges) // 2
    first, second = target_row * num_edges, num_edges - target_row * num_edges
    return pointer_at(edges, first), pointer_at(edges, second), num_edges


@inlined
def is_any_outside(targets, sources, num_edges, num_targets, num_sources):
    """Whether an edge names a node that is not there."""
    last_target, last_source = num_targets - 1, num_sources - 1
    # a sign bit stays when a node is negative or beyond the last; no branch, so that it becomes SIMD
    outside = 0
    for edge in range(num_edges):
        target, source = targets[edge], sources[edge]
        outside |= target | (last_target - target) | source | (last_source - source)
    return outside < 0


@inlined
def row_of_place(indptr, place):
    """The row that holds a place of compressed rows, by bisection."""
    row, beyond = 0, len(indptr) - 1
    while beyond - row > 1:
        middle = (row + beyond) // 2
        if indptr[middle] <= place:
            row = middle
        else:
            beyond = middle
    return row
