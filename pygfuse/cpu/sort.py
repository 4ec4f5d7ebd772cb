"""Compressed rows on a CPU: a stable counting sort of edges, linear in their number, on all of torch's
threads.

The edges are cut into chunks. Each chunk counts its edges by row, a sum over rows and chunks turns the counts
into places, and each chunk then puts its edges there in their order. The order is that of a stable sort
whatever the number of chunks, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.kernel import Kernel

# edges looked at together: small enough to stay in the first-level cache between the check and the count
BLOCK = 1024
# edges that pay for waking another thread
CHUNK_MINIMUM = 16384
KEEP_LOOPS = -1
# what the sort of few edges reports: an edge out of range, targets out of order, number of edges kept
REPORTED = 3


def _count_edges(part, parts, targets, sources, rows, columns, loops, counts, report):
    """Checks one chunk of edges and counts it by target; says in `report` what is wrong or out of order."""
    edges = len(targets)
    first, last = part * edges // parts, (part + 1) * edges // parts
    base = part * rows
    last_row, last_column = rows - 1, columns - 1
    unsorted = 0
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        # a sign bit stays when an index is negative or beyond the last; no branch, so that it becomes SIMD
        bad = 0
        for edge in range(start, stop):
            target, source = targets[edge], sources[edge]
            bad |= target | (last_row - target) | source | (last_column - source)
        if bad < 0:
            report[0] = 1
            return
        for edge in range(max(start, 1), stop):
            unsorted |= targets[edge] - targets[edge - 1]
        if loops < 0:
            for edge in range(start, stop):
                counts[base + targets[edge]] += 1
        else:
            for edge in range(start, stop):
                target = targets[edge]
                counts[base + target] += target != sources[edge]
    if unsorted < 0:
        report[1] = 1


def _total_rows(part, parts, rows, chunks, counts, loops, totals):
    """The number of edges in one run of rows."""
    first, last = part * rows // parts, (part + 1) * rows // parts
    total = max(0, min(last, loops) - first)
    for chunk in range(chunks):
        for row in range(chunk * rows + first, chunk * rows + last):
            total += counts[row]
    totals[part + 1] = total


def _place_rows(part, parts, rows, chunks, counts, loops, starts, indptr):
    """Turns the counts of one run of rows into the place where each chunk's first edge of each row goes."""
    first, last = part * rows // parts, (part + 1) * rows // parts
    place = starts[part]
    if part == 0:
        indptr[0] = 0
    for row in range(first, last):
        for chunk in range(chunks):
            count = counts[chunk * rows + row]
            counts[chunk * rows + row] = place
            place += count
        place += row < loops
        indptr[row + 1] = place


def _put_edges(part, parts, targets, sources, rows, loops, places, indptr, index, edge_id):
    """Puts one chunk of edges into their rows, and the self-loops of one run of rows at the rows' ends."""
    edges = len(targets)
    base = part * rows
    for edge in range(part * edges // parts, (part + 1) * edges // parts):
        target, source = targets[edge], sources[edge]
        if loops < 0 or target != source:
            place = places[base + target]
            places[base + target] = place + 1
            index[place] = source
            edge_id[place] = edge
    for row in range(part * loops // parts, (part + 1) * loops // parts):
        place = indptr[row + 1] - 1
        index[place] = row
        edge_id[place] = edges + row


def _count_columns(part, parts, index, columns, counts):
    """Counts one chunk of edges by column."""
    edges = len(index)
    base = part * columns
    for edge in range(part * edges // parts, (part + 1) * edges // parts):
        counts[base + index[edge]] += 1


def _put_transposed(part, parts, indptr, index, columns, places, rows_of, position):
    """Puts one chunk of edges, walked row by row, into their columns."""
    edges = len(index)
    edge, last = part * edges // parts, (part + 1) * edges // parts
    base = part * columns
    # the row that holds the chunk's first edge
    row, beyond = 0, len(indptr) - 1
    while beyond - row > 1:
        middle = (row + beyond) // 2
        if indptr[middle] <= edge:
            row = middle
        else:
            beyond = middle
    while edge < last:
        for current in range(edge, min(last, indptr[row + 1])):
            column = index[current]
            place = places[base + column]
            places[base + column] = place + 1
            rows_of[place] = row
            position[place] = current
            edge += 1
        row += 1


def _sort_at_once(part, targets, sources, rows, columns, loops, places, indptr, index, edge_id, report):
    """Checks all edges, and sorts them by target: few edges take less than what several kernels are called for."""
    edges = len(targets)
    last_row, last_column = rows - 1, columns - 1
    bad = 0
    for edge in range(edges):
        target, source = targets[edge], sources[edge]
        bad |= target | (last_row - target) | source | (last_column - source)
    report[0] = bad < 0
    if bad < 0:
        return
    for row in range(rows):
        places[row] = row < loops
    unsorted = 0
    for edge in range(1, edges):
        unsorted |= targets[edge] - targets[edge - 1]
    report[1] = unsorted < 0
    for edge in range(edges):
        target = targets[edge]
        places[target] += loops < 0 or target != sources[edge]
    place = 0
    indptr[0] = 0
    for row in range(rows):
        count = places[row]
        places[row] = place
        place += count
        indptr[row + 1] = place
    report[2] = place
    for edge in range(edges):
        target, source = targets[edge], sources[edge]
        if loops < 0 or target != source:
            place = places[target]
            places[target] = place + 1
            index[place] = source
            edge_id[place] = edge
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
    place = 0
    column_pointer[0] = 0
    for column in range(columns):
        count = places[column]
        places[column] = place
        place += count
        column_pointer[column + 1] = place
    for row in range(rows):
        for edge in range(indptr[row], indptr[row + 1]):
            column = index[edge]
            place = places[column]
            places[column] = place + 1
            rows_of[place] = row
            position[place] = edge


count_edges = Kernel(_count_edges, 'the count of edges by target')
total_rows = Kernel(_total_rows, 'the sums of runs of rows')
place_rows = Kernel(_place_rows, 'the places of rows')
put_edges = Kernel(_put_edges, 'the sort of edges by target')
count_columns = Kernel(_count_columns, 'the count of edges by source')
sort_at_once = Kernel(_sort_at_once, 'the sort of few edges by target')
transpose_at_once = Kernel(_transpose_at_once, 'the sort of few edges by source')
put_transposed = Kernel(_put_transposed, 'the sort of edges by source')


def _chunk_count(edges: int, rows: int) -> int:
    """As many chunks as threads, but few enough that their counts take no more room than the edges."""
    return max(1, min(torch.get_num_threads(), edges // max(rows, 1), edges // CHUNK_MINIMUM))


def _places(counts: Tensor, rows: int, loops: int) -> Tensor:
    """Turns counts [chunks * rows] into places, in their own memory; returns the row pointer [rows + 1]."""
    chunks = counts.numel() // rows if rows else 1
    runs = max(1, min(torch.get_num_threads(), counts.numel() // CHUNK_MINIMUM))
    indptr = counts.new_empty(rows + 1)
    starts = torch.zeros(runs + 1, dtype=torch.int64)
    if runs > 1:
        total_rows(runs, runs, rows, chunks, counts, loops, starts)
        starts = starts.cumsum(0)
    place_rows(runs, runs, rows, chunks, counts, loops, starts, indptr)
    return indptr


def sort_by_target(
    targets: Tensor, sources: Tensor, rows: int, columns: int, loops: int | None, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The edges as compressed rows, one row a target; within a row edges keep their order.

    Args:
        targets: The row of each edge, [edges], int32 or int64, contiguous.
        sources: The column of each edge, of the same shape and type.
        rows: Number of targets.
        columns: Number of sources.
        loops: None to take the edges as they are; a number to drop every edge (v, v) and to end each row
            v < loops with one such edge, whose id is ``edges + v``.
        index_dtype: int32 or int64, the type of what is returned; it must hold every size and every id.

    Returns:
        The row pointer [rows + 1], the column of each place, and the id of the edge at each place, which is
        None where it is the place itself.

    Raises:
        IndexError: If a target is not in [0, rows) or a source not in [0, columns). Nothing has been read by
            it.

    Example:
        >>> sort_by_target(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 2]), 2, 3, None, torch.int32)
        (tensor([0, 1, 3], dtype=torch.int32), tensor([1, 0, 2], ...), tensor([1, 0, 2], ...))
    """
    edges = targets.numel()
    chunks = _chunk_count(edges, rows)
    drop = KEEP_LOOPS if loops is None else loops
    if chunks == 1 and rows < CHUNK_MINIMUM:
        return _sorted_at_once(targets, sources, rows, columns, drop, index_dtype)
    counts = torch.zeros(chunks * rows, dtype=index_dtype)
    report = torch.zeros(2, dtype=torch.int64)
    count_edges(chunks, chunks, targets, sources, rows, columns, drop, counts, report)
    out_of_range, unsorted = report.tolist()
    if out_of_range:
        raise IndexError('an edge names a node that does not exist')
    indptr = _places(counts, rows, drop)
    if loops is None and not unsorted:
        return indptr, sources.to(index_dtype, copy=True), None
    index = torch.empty(int(indptr[-1]), dtype=index_dtype)
    edge_id = torch.empty_like(index)
    put_edges(chunks, chunks, targets, sources, rows, drop, counts, indptr, index, edge_id)
    return indptr, index, edge_id


def _sorted_at_once(
    targets: Tensor, sources: Tensor, rows: int, columns: int, drop: int, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `sort_by_target`, by one kernel."""
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


def _transposed_at_once(indptr: Tensor, index: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `transpose`, by one kernel."""
    places, column_pointer = index.new_empty(columns), index.new_empty(columns + 1)
    rows_of, position = torch.empty_like(index), torch.empty_like(index)
    transpose_at_once(1, indptr, index, columns, places, column_pointer, rows_of, position, threads=1)
    return column_pointer, rows_of, position


def transpose(indptr: Tensor, index: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Compressed columns from compressed rows; within a column edges stand by row.

    Args:
        indptr: Row pointer [rows + 1], int32 or int64.
        index: Column of each place [edges], of the same type, every one in [0, columns).
        columns: Number of columns.

    Returns:
        The column pointer [columns + 1], the row of each place, and the place among the rows of each place
        among the columns, all of the given type.

    Example:
        >>> transpose(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), 2)
        (tensor([0, 1, 3]), tensor([1, 0, 1]), tensor([1, 0, 2]))
    """
    chunks = _chunk_count(index.numel(), columns)
    if chunks == 1 and columns < CHUNK_MINIMUM:
        return _transposed_at_once(indptr, index, columns)
    counts = torch.zeros(chunks * columns, dtype=index.dtype)
    count_columns(chunks, chunks, index, columns, counts)
    column_pointer = _places(counts, columns, KEEP_LOOPS)
    rows_of = torch.empty_like(index)
    position = torch.empty_like(index)
    put_transposed(chunks, chunks, indptr, index, columns, counts, rows_of, position)
    return column_pointer, rows_of, position
