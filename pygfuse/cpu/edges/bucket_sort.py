"""Counting sorts by way of buckets: runs of rows whose edges fit a core's cache.

Edges that are put straight into their rows miss the first cache with each store, and threads that put different edges
into the same rows wait for each other's lines. Here each thread deals its chunk of edges to buckets, which are written
one number after another, and each bucket is then sorted by one thread. Both keep the order of edges, so the result is
that of a stable sort, whatever the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.memory import pointer_at
from pygfuse.cpu.walks.ends import is_any_outside, row_of_place

# from how many edges on one thread, or several, take less than by another way; beyond the most, the copy is much memory
LEAST_OF_ONE, LEAST_OF_SEVERAL, MOST_EDGES = 2**17, 2**15, 2**22
# edges of a bucket, where there are not too many buckets to write to at a time
BUCKET_EDGES, MOST_BUCKETS = 2**12, 2**5
# edges looked at together, which stay in the first cache
BLOCK = 2**10
# numbers of an edge in its bucket: its row, its column and its id
ITEM = 3


def _count_buckets(part, parts, targets, sources, rows, columns, loops, shift, buckets, counts, report):
    """Checks one chunk of edges and counts it by bucket; says in `report` what is wrong."""
    edges = len(targets)
    last = (part + 1) * edges // parts
    found = np.empty(buckets, np.int64)
    for bucket in range(buckets):
        found[bucket] = 0
    for start in range(part * edges // parts, last, BLOCK):
        stop = min(start + BLOCK, last)
        if is_any_outside(pointer_at(targets, start), pointer_at(sources, start), stop - start, rows, columns):
            report[0] = 1
            return
        for edge in range(start, stop):
            target = targets[edge]
            found[target >> shift] += loops < 0 or target != sources[edge]
    for bucket in range(buckets):
        counts[part * buckets + bucket] = found[bucket]


def _count_buckets_of_columns(part, parts, index, shift, buckets, counts):
    """Counts one chunk of edges by bucket of columns."""
    edges = len(index)
    found = np.empty(buckets, np.int64)
    for bucket in range(buckets):
        found[bucket] = 0
    for edge in range(part * edges // parts, (part + 1) * edges // parts):
        found[index[edge] >> shift] += 1
    for bucket in range(buckets):
        counts[part * buckets + bucket] = found[bucket]


@inlined
def _find_places(part, parts, buckets, counts, starts, places):
    """Where this chunk's first edge of each bucket goes, and where buckets begin."""
    place = 0
    for bucket in range(buckets):
        if part == 0:
            starts[bucket] = place
        for chunk in range(parts):
            if chunk == part:
                places[bucket] = place
            place += counts[chunk * buckets + bucket]
    if part == 0:
        starts[buckets] = place


def _fill_buckets(part, parts, targets, sources, loops, shift, buckets, counts, starts, items):
    """Deals one chunk of edges to buckets."""
    edges = len(targets)
    places = np.empty(buckets, np.int64)
    _find_places(part, parts, buckets, counts, starts, places)
    for edge in range(part * edges // parts, (part + 1) * edges // parts):
        target, source = targets[edge], sources[edge]
        if loops < 0 or target != source:
            place = places[target >> shift]
            places[target >> shift] = place + 1
            items[ITEM * place] = target
            items[ITEM * place + 1] = source
            items[ITEM * place + 2] = edge


def _fill_buckets_of_columns(part, parts, indptr, index, shift, buckets, counts, starts, items):
    """Deals one chunk of edges, walked row by row, to buckets of columns."""
    edges = len(index)
    edge, last = part * edges // parts, (part + 1) * edges // parts
    places = np.empty(buckets, np.int64)
    _find_places(part, parts, buckets, counts, starts, places)
    row = row_of_place(indptr, edge)
    while edge < last:
        for current in range(edge, min(last, indptr[row + 1])):
            column = index[current]
            place = places[column >> shift]
            places[column >> shift] = place + 1
            items[ITEM * place] = column
            items[ITEM * place + 1] = row
            items[ITEM * place + 2] = current
            edge += 1
        row += 1


def _sort_bucket(part, starts, items, rows, edges, loops, shift, indptr, index, edge_id):
    """Sorts one bucket by row, and ends its rows with self-loops."""
    first, last = part << shift, min((part + 1) << shift, rows)
    begin, end = starts[part], starts[part + 1]
    places = np.empty(last - first, np.int64)
    for row in range(last - first):
        places[row] = 0
    for q in range(begin, end):
        places[items[ITEM * q] - first] += 1
    if part == 0:
        indptr[0] = 0
    place = begin + max(0, min(first, loops))
    for row in range(first, last):
        count = places[row - first]
        places[row - first] = place
        place += count
        if row < loops:
            index[place] = row
            edge_id[place] = edges + row
            place += 1
        indptr[row + 1] = place
    for q in range(begin, end):
        row = items[ITEM * q] - first
        place = places[row]
        places[row] = place + 1
        index[place] = items[ITEM * q + 1]
        edge_id[place] = items[ITEM * q + 2]


count_buckets = Kernel(_count_buckets, 'the count of edges by bucket of targets')
count_buckets_of_columns = Kernel(_count_buckets_of_columns, 'the count of edges by bucket of sources')
fill_buckets = Kernel(_fill_buckets, 'edges dealt to buckets of targets')
fill_buckets_of_columns = Kernel(_fill_buckets_of_columns, 'edges dealt to buckets of sources')
sort_bucket = Kernel(_sort_bucket, 'the sort of buckets')


def are_for_buckets(edges: int, rows: int, chunks: int, index_dtype: torch.dtype) -> bool:
    """Whether so many edges of so many rows are sorted by way of buckets, in so many chunks."""
    least = LEAST_OF_ONE if chunks == 1 else LEAST_OF_SEVERAL
    return least <= edges <= MOST_EDGES and rows > 0 and index_dtype is torch.int32


def _shift_of(edges: int, rows: int) -> int:
    """A bucket has 2 to the power of so many rows."""
    buckets = max(1, min(MOST_BUCKETS, edges // BUCKET_EDGES))
    return (-(-rows // buckets) - 1).bit_length()


def sorted_by_buckets(
    targets: Tensor, sources: Tensor, rows: int, columns: int, loops: int, index_dtype: torch.dtype, chunks: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """What `pygfuse.cpu.edges.sort.sort_by_target` returns, of edges in any order; None if one names a node that does
    not exist.

    Args:
        targets, sources, rows, columns, index_dtype: As there.
        loops: The number of self-loops put in, negative to take edges as they are.
        chunks: Chunks of edges, each for a thread.
    """
    edges = targets.numel()
    shift = _shift_of(edges, rows)
    buckets = -(-rows // 2**shift)
    counts = targets.new_empty(chunks * buckets, dtype=torch.int64)
    report = counts.new_zeros(1)
    count_buckets(chunks, chunks, targets, sources, rows, columns, loops, shift, buckets, counts, report)
    if report[0]:
        return None
    starts, items = counts.new_empty(buckets + 1), on_huge_pages(targets.new_empty(ITEM * edges, dtype=index_dtype))
    fill_buckets(chunks, chunks, targets, sources, loops, shift, buckets, counts, starts, items)
    kept = edges if loops < 0 else int(starts[-1]) + loops
    return _sorted(starts, items, rows, edges, kept, loops, shift)


def transposed_by_buckets(indptr: Tensor, index: Tensor, columns: int, chunks: int) -> tuple[Tensor, Tensor, Tensor]:
    """What `pygfuse.cpu.edges.sort.transpose` returns.

    Args:
        indptr, index, columns: As there.
        chunks: Chunks of edges, each for a thread.
    """
    edges = index.numel()
    shift = _shift_of(edges, columns)
    buckets = -(-columns // 2**shift)
    counts = index.new_empty(chunks * buckets, dtype=torch.int64)
    count_buckets_of_columns(chunks, chunks, index, shift, buckets, counts)
    starts, items = counts.new_empty(buckets + 1), on_huge_pages(index.new_empty(ITEM * edges))
    fill_buckets_of_columns(chunks, chunks, indptr, index, shift, buckets, counts, starts, items)
    return _sorted(starts, items, columns, edges, edges, -1, shift)


def _sorted(
    starts: Tensor, items: Tensor, rows: int, edges: int, kept: int, loops: int, shift: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The row pointer, the columns and the ids, from `items` in buckets that begin at `starts`."""
    indptr, index = items.new_empty(rows + 1), on_huge_pages(items.new_empty(kept))
    edge_id = on_huge_pages(torch.empty_like(index))
    sort_bucket(len(starts) - 1, starts, items, rows, edges, loops, shift, indptr, index, edge_id)
    return indptr, index, edge_id
