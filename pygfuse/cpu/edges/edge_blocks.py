"""Edges by row in blocks of their other ends, see `pygfuse.mapping.blocks`: each block is edges by row of its own."""

from __future__ import annotations

import itertools

import torch

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.nodes.rows import zeros
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import cut


def _count(part, bounds, indptr, index, size, rows, counts):
    """Counts the edges of each of a part's rows in each block."""
    for v in range(bounds[2 * part], bounds[2 * part + 2]):
        for q in range(indptr[v], indptr[v + 1]):
            counts[index[q] // size * rows + v] += 1


def _place(part, bounds, indptr, index, edge_id, size, rows, count, starts, places, blocks, placed, placed_id):
    """Puts the edges of each of a part's rows into their blocks, of which `blocks` says where rows begin in each."""
    for v in range(bounds[2 * part], bounds[2 * part + 2]):
        for block in range(count):
            cell = block * rows + v
            places[cell] = starts[cell]
            blocks[cell + block] = starts[cell] - starts[block * rows]
            if v == rows - 1:
                blocks[cell + block + 1] = starts[cell + 1] - starts[block * rows]
        for q in range(indptr[v], indptr[v + 1]):
            cell = index[q] // size * rows + v
            place = places[cell]
            places[cell] = place + 1
            placed[place] = index[q]
            if len(placed_id) > 0:
                placed_id[place] = q
                if len(edge_id) > 0:
                    placed_id[place] = edge_id[q]


_count_kernel = Kernel(_count, 'edges in blocks, counted')
_place_kernel = Kernel(_place, 'edges in blocks, placed')


def in_blocks(csr: Csr, num_others: int, count: int, with_ids: bool) -> tuple[Csr, ...]:
    """The edges in blocks, kept with them; of each row and block in the order in which they were.

    Args:
        csr: The edges by row.
        num_others: Number of nodes at their other ends.
        count: Number of blocks.
        with_ids: Whether the ids of edges are needed.

    Example:
        >>> csr = Csr(torch.tensor([0, 3, 4]), torch.tensor([3, 0, 2, 1]), None)
        >>> [(block.indptr.tolist(), block.index.tolist()) for block in in_blocks(csr, 4, 2, False)]
        [([0, 1, 2], [0, 1]), ([0, 2, 2], [3, 2])]
    """
    key = 'in blocks', num_others, count, with_ids
    found = csr.memo.get(key)
    if found is None:
        found = csr.memo.get_or_make(key, lambda: _in_blocks(csr, -(-num_others // count), count, with_ids))
        # the blocks hold it once more
        csr.forget_index()
    return found


def _in_blocks(csr: Csr, size: int, count: int, with_ids: bool) -> tuple[Csr, ...]:
    rows, parts, none = csr.num_rows, cut(csr), nothing(csr.indptr.dtype)
    index = csr.index
    edges = parts.bounds, csr.indptr, index
    counts = zeros(csr.indptr, count * rows + 1)
    _count_kernel(parts.count, *edges, size, rows, counts[1:])
    starts = counts.cumsum(0, dtype=counts.dtype)
    indptrs, placed = csr.indptr.new_empty(count, rows + 1), on_huge_pages(torch.empty_like(index))
    ids = on_huge_pages(torch.empty_like(index)) if with_ids else none
    known = csr.edge_id if with_ids and csr.edge_id is not None else none
    _place_kernel(parts.count, *edges, known, size, rows, count, starts, counts, indptrs, placed, ids)
    firsts = starts[::rows].tolist()
    return tuple(
        Csr(indptr, placed[first:last], ids[first:last] if with_ids else None)
        for indptr, (first, last) in zip(indptrs, itertools.pairwise(firsts), strict=True)
    )
