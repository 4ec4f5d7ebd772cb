"""Compressed rows on a CPU: a stable counting sort of edges, linear in their number, on all of torch's
threads.

The edges are cut into chunks. Each chunk counts its edges by row, a sum over rows and chunks turns the counts
into places, and each chunk then puts its edges there in their order. The order is that of a stable sort
whatever the number of chunks, so the result does not depend on the number of threads. Most graphs are sorted by way
of buckets (`pygfuse.cpu.edges.bucket_sort`), few edges by one kernel (`pygfuse.cpu.edges.sort_at_once`).

Edges that come by target already, as loaders and `pygfuse.transforms.ToCSR` give them, are neither counted nor
sorted: one pass sees that they do, another notes where each row ends.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.bucket_sort import MOST_EDGES, are_for_buckets, sorted_by_buckets, transposed_by_buckets
from pygfuse.cpu.edges.sort_at_once import sorted_at_once, transposed_at_once
from pygfuse.cpu.vectors.memory import pointer_at
from pygfuse.cpu.walks.ends import is_any_outside, row_of_place

# edges looked at together: small enough to stay in the first-level cache between the check and the count
BLOCK = 1024
# edges that pay for waking another thread
CHUNK_MINIMUM = 16384
KEEP_LOOPS = -1


def _find_order(part, parts, targets, sources, rows, columns, loops, report):
    """Checks one chunk of edges; says in `report` what is wrong, and whether they have to be sorted."""
    edges = len(targets)
    first, last = part * edges // parts, (part + 1) * edges // parts
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        bad = is_any_outside(pointer_at(targets, start), pointer_at(sources, start), stop - start, rows, columns)
        falls, is_loop = 0, 0
        for edge in range(max(start, 1), stop):
            falls |= targets[edge] - targets[edge - 1]
        if loops >= 0:
            for edge in range(start, stop):
                is_loop |= targets[edge] == sources[edge]
        if bad:
            report[0] = 1
        if falls < 0 or is_loop > 0:
            report[1] = 1
        if bad or falls < 0 or is_loop > 0:
            return


def _mark_ends(part, parts, targets, ends):
    """Notes where the rows end that begin in one chunk of edges that come by target."""
    edges = len(targets)
    edge, last = part * edges // parts, (part + 1) * edges // parts
    # a row belongs to the chunk that it begins in
    while 0 < edge < last and targets[edge] == targets[edge - 1]:
        edge += 1
    if edge == last:
        return
    row = targets[last - 1]
    for current in range(edge, last):
        ends[targets[current]] = current + 1
    while last < edges and targets[last] == row:
        last += 1
    ends[row] = last


def _point_to_rows(part, ends, loops, indptr):
    """The row pointer, from where rows end (0 for those without edges) and the self-loops put in."""
    end = 0
    indptr[0] = 0
    for row in range(len(ends)):
        end = max(end, ends[row])
        indptr[row + 1] = end + max(0, min(row + 1, loops))


def _put_between_loops(part, parts, targets, sources, loops, indptr, index, edge_id):
    """Puts one chunk of edges that come by target into rows that end with self-loops, and some of these."""
    edges = len(targets)
    for edge in range(part * edges // parts, (part + 1) * edges // parts):
        place = edge + min(targets[edge], loops)
        index[place] = sources[edge]
        edge_id[place] = edge
    for row in range(part * loops // parts, (part + 1) * loops // parts):
        place = indptr[row + 1] - 1
        index[place] = row
        edge_id[place] = edges + row


def _count_edges(part, parts, targets, sources, rows, columns, loops, counts, report):
    """Checks one chunk of edges and counts it by target; says in `report` what is wrong."""
    edges = len(targets)
    first, last = part * edges // parts, (part + 1) * edges // parts
    base = part * rows
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        if is_any_outside(pointer_at(targets, start), pointer_at(sources, start), stop - start, rows, columns):
            report[0] = 1
            return
        if loops < 0:
            for edge in range(start, stop):
                counts[base + targets[edge]] += 1
        else:
            for edge in range(start, stop):
                target = targets[edge]
                counts[base + target] += target != sources[edge]


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
    row = row_of_place(indptr, edge)
    while edge < last:
        for current in range(edge, min(last, indptr[row + 1])):
            column = index[current]
            place = places[base + column]
            places[base + column] = place + 1
            rows_of[place] = row
            if len(position) > 0:
                position[place] = current
            edge += 1
        row += 1


def _invert_places(part, parts, position, places):
    """Notes the place of each position of one chunk."""
    edges = len(position)
    for place in range(part * edges // parts, (part + 1) * edges // parts):
        places[position[place]] = place


find_order = Kernel(_find_order, 'the look at the order of edges')
mark_ends = Kernel(_mark_ends, 'the ends of rows')
point_to_rows = Kernel(_point_to_rows, 'the row pointer')
put_between_loops = Kernel(_put_between_loops, 'the self-loops of sorted edges')
count_edges = Kernel(_count_edges, 'the count of edges by target')
total_rows = Kernel(_total_rows, 'the sums of runs of rows')
place_rows = Kernel(_place_rows, 'the places of rows')
put_edges = Kernel(_put_edges, 'the sort of edges by target')
count_columns = Kernel(_count_columns, 'the count of edges by source')
put_transposed = Kernel(_put_transposed, 'the sort of edges by source')
invert_places = Kernel(_invert_places, 'the way back from edges by source')


def _chunks_of(count: int) -> int:
    """How many chunks so many edges, or rows, are worth."""
    return max(1, min(torch.get_num_threads(), count // CHUNK_MINIMUM))


def _chunk_count(edges: int, rows: int) -> int:
    """As many chunks as threads, but few enough that their counts take no more room than the edges."""
    return max(1, min(torch.get_num_threads(), edges // max(rows, 1), edges // CHUNK_MINIMUM))


def _places(counts: Tensor, rows: int, loops: int) -> Tensor:
    """Turns counts [chunks * rows] into places, in their own memory; returns the row pointer [rows + 1]."""
    chunks = counts.numel() // rows if rows else 1
    runs = _chunks_of(counts.numel())
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
    chunks = _chunks_of(edges)
    drop = KEEP_LOOPS if loops is None else loops
    for_buckets = are_for_buckets(edges, rows, chunks, index_dtype)
    if not for_buckets and _chunk_count(edges, rows) == 1 and rows < CHUNK_MINIMUM:
        return sorted_at_once(targets, sources, rows, columns, drop, index_dtype)
    report = torch.zeros(2, dtype=torch.int64)
    find_order(chunks, chunks, targets, sources, rows, columns, drop, report)
    out_of_range, falls = report.tolist()
    if not out_of_range:
        if not falls:
            return _take(targets, sources, rows, drop, index_dtype)
        if for_buckets:
            found = sorted_by_buckets(targets, sources, rows, columns, drop, index_dtype, chunks)
        else:
            found = _sort(targets, sources, rows, columns, drop, index_dtype)
        if found is not None:
            return found
    raise IndexError('an edge names a node that does not exist')


def _take(
    targets: Tensor, sources: Tensor, rows: int, loops: int, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """`sort_by_target` of edges that come by target and, where loops are put in, have none."""
    edges = targets.numel()
    chunks = _chunks_of(edges)
    ends = torch.zeros(rows, dtype=index_dtype)
    indptr = ends.new_empty(rows + 1)
    mark_ends(chunks, chunks, targets, ends)
    point_to_rows(1, ends, loops, indptr)
    if loops < 0:
        return indptr, sources.to(index_dtype, copy=True), None
    index, edge_id = ends.new_empty(2, edges + loops)
    put_between_loops(chunks, chunks, targets, sources, loops, indptr, index, edge_id)
    return indptr, index, edge_id


def _sort(
    targets: Tensor, sources: Tensor, rows: int, columns: int, loops: int, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """`sort_by_target` of edges in any order; None if one names a node that does not exist."""
    chunks = _chunk_count(targets.numel(), rows)
    counts = torch.zeros(chunks * rows, dtype=index_dtype)
    report = torch.zeros(1, dtype=torch.int64)
    count_edges(chunks, chunks, targets, sources, rows, columns, loops, counts, report)
    if report[0]:
        return None
    indptr = _places(counts, rows, loops)
    index = on_huge_pages(torch.empty(int(indptr[-1]), dtype=index_dtype))
    edge_id = on_huge_pages(torch.empty_like(index))
    put_edges(chunks, chunks, targets, sources, rows, loops, counts, indptr, index, edge_id)
    return indptr, index, edge_id


def transpose(
    indptr: Tensor, index: Tensor, columns: int, with_places: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compressed columns from compressed rows; within a column edges stand by row.

    Args:
        indptr: Row pointer [rows + 1], int32 or int64.
        index: Column of each place [edges], of the same type, every one in [0, columns).
        columns: Number of columns.
        with_places: Whether the last result is needed.

    Returns:
        The column pointer [columns + 1], the row of each place, and the place among the rows of each place
        among the columns, all of the given type; the last is None where it is not needed and would take much memory.

    Example:
        >>> transpose(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), 2)
        (tensor([0, 1, 3]), tensor([1, 0, 1]), tensor([1, 0, 2]))
    """
    edges = index.numel()
    chunks = _chunks_of(edges)
    if are_for_buckets(edges, columns, chunks, index.dtype):
        return transposed_by_buckets(indptr, index, columns, chunks)
    chunks = _chunk_count(edges, columns)
    if chunks == 1 and columns < CHUNK_MINIMUM:
        return transposed_at_once(indptr, index, columns)
    counts = torch.zeros(chunks * columns, dtype=index.dtype)
    count_columns(chunks, chunks, index, columns, counts)
    column_pointer = _places(counts, columns, KEEP_LOOPS)
    is_left_out = not with_places and edges > MOST_EDGES
    rows_of = on_huge_pages(torch.empty_like(index))
    position = index[:0] if is_left_out else on_huge_pages(torch.empty_like(index))
    put_transposed(chunks, chunks, indptr, index, columns, counts, rows_of, position)
    return column_pointer, rows_of, None if is_left_out else position


def inverted(position: Tensor) -> Tensor:
    """The permutation that undoes another.

    Args:
        position: Each place once, [edges], int32 or int64.

    Example:
        >>> inverted(torch.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    places = torch.empty_like(position)
    chunks = _chunks_of(position.numel())
    invert_places(chunks, chunks, position, places)
    return places


def order_of(numbers: Tensor, end: int) -> Tensor:
    """The positions of numbers from 0 to `end` in ascending order, those of equal ones as they come.

    They are sorted by some of their bits after others, the lowest first: by as many at once as there are points.
    """
    count = len(numbers)
    order = torch.arange(count)
    bits = (end - 1).bit_length()
    passes = -(-bits // max(8, count.bit_length()))
    width = -(-bits // max(passes, 1))
    for shift in range(0, bits, max(width, 1)):
        digits = (numbers if shift == 0 else numbers[order]) >> shift & ((1 << width) - 1)
        order = sort_by_target(digits, order, 1 << width, count, None, torch.int64)[1]
    return order
