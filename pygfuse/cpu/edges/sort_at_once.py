"""The sorts of few edges: one kernel on the calling thread takes less than what several are called for."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.ends import is_any_outside

# what the sort reports: an edge out of range, targets out of order, number of edges kept
REPORTED = 3


@inlined
def _point_to_places(places, indptr, rows):
    """Turns the counts of rows into the places where they begin, and the row pointer."""
    place = 0
    indptr[0] = 0
    for row in range(rows):
        count = places[row]
        places[row] = place
        place += count
        indptr[row + 1] = place


@inlined
def _count_and_put(targets, sources, rows, loops, places, indptr, index, edge_id):
    """Sorts edges by target, and leaves room for self-loops at the rows' ends."""
    edges = len(targets)
    for row in range(rows):
        places[row] = row < loops
    for edge in range(edges):
        target = targets[edge]
        places[target] += loops < 0 or target != sources[edge]
    _point_to_places(places, indptr, rows)
    for edge in range(edges):
        target, source = targets[edge], sources[edge]
        if loops < 0 or target != source:
            place = places[target]
            places[target] = place + 1
            index[place] = source
            edge_id[place] = edge


@inlined
def _take_as_they_come(targets, sources, rows, loops, indptr, index, edge_id):
    """`_count_and_put` of edges that come by target."""
    edges = len(targets)
    for row in range(rows + 1):
        indptr[row] = 0
    kept = 0
    for edge in range(edges):
        target, source = targets[edge], sources[edge]
        # where an edge is dropped, the next or a self-loop is written over it
        place = kept + max(0, min(target, loops))
        index[place] = source
        edge_id[place] = edge
        kept += loops < 0 or target != source
        indptr[target + 1] = kept
    end = 0
    for row in range(rows):
        end = max(end, indptr[row + 1])
        indptr[row + 1] = end + max(0, min(row + 1, loops))


def _sort_at_once(part, targets, sources, rows, columns, loops, places, indptr, index, edge_id, report):
    """Checks all edges, and sorts them by target."""
    edges = len(targets)
    report[0] = 0
    if is_any_outside(targets, sources, edges, rows, columns):
        report[0] = 1
        return
    unsorted = 0
    for edge in range(1, edges):
        unsorted |= targets[edge] - targets[edge - 1]
    report[1] = unsorted < 0
    if unsorted < 0:
        _count_and_put(targets, sources, rows, loops, places, indptr, index, edge_id)
    else:
        _take_as_they_come(targets, sources, rows, loops, indptr, index, edge_id)
    report[2] = indptr[rows]
    for row in range(max(loops, 0)):
        place = indptr[row + 1] - 1
        index[place] = row
        edge_id[place] = edges + row


def _transpose_at_once(part, indptr, index, columns, places, column_pointer, rows_of, position):
    """Transposes all edges."""
    edges, rows = len(index), len(indptr) - 1
    for column in range(columns):
        places[column] = 0
    for edge in range(edges):
        places[index[edge]] += 1
    _point_to_places(places, column_pointer, columns)
    for row in range(rows):
        for edge in range(indptr[row], indptr[row + 1]):
            column = index[edge]
            place = places[column]
            places[column] = place + 1
            rows_of[place] = row
            position[place] = edge


sort_at_once = Kernel(_sort_at_once, 'the sort of few edges by target')
transpose_at_once = Kernel(_transpose_at_once, 'the sort of few edges by source')


def sorted_at_once(
    targets: Tensor, sources: Tensor, rows: int, columns: int, drop: int, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What `pygfuse.cpu.edges.sort.sort_by_target` returns, by one kernel.

    Args:
        targets, sources, rows, columns, index_dtype: As there.
        drop: The number of self-loops put in, negative to take edges as they are.
    """
    places, indptr = torch.empty(rows, dtype=index_dtype), torch.empty(rows + 1, dtype=index_dtype)
    index = torch.empty(targets.numel() + max(drop, 0), dtype=index_dtype)
    edge_id, report = torch.empty_like(index), torch.empty(REPORTED, dtype=torch.int64)
    sort_at_once(1, targets, sources, rows, columns, drop, places, indptr, index, edge_id, report, threads=1)
    out_of_range, unsorted, kept = report.tolist()
    if out_of_range:
        raise IndexError('an edge names a node that does not exist')
    if drop < 0:
        return indptr, index, edge_id if unsorted else None
    return (indptr, index, edge_id) if kept == index.numel() else (indptr, index[:kept], edge_id[:kept])


def transposed_at_once(indptr: Tensor, index: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `pygfuse.cpu.edges.sort.transpose` returns, by one kernel."""
    places, column_pointer = index.new_empty(columns), index.new_empty(columns + 1)
    rows_of, position = torch.empty_like(index), torch.empty_like(index)
    transpose_at_once(1, indptr, index, columns, places, column_pointer, rows_of, position, threads=1)
    return column_pointer, rows_of, position
