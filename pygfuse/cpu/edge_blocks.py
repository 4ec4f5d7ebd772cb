"""Edges by row in blocks of their other ends, see `pygfuse.mapping.blocks`: each block is edges by row of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.walked_edges import nothing
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import cut


def _count(part, bounds, indptr, index, size, rows, counts):
    """Counts the edges of each of a part's rows in each block."""
    for v in range(bounds[2 * part], bounds[2 * part + 2]):
        for q in range(indptr[v], indptr[v + 1]):
            counts[index[q] // size * rows + v] += 1


def _place(part, bounds, indptr, index, edge_id, size, rows, places, placed, placed_id):
    """Puts the edges of each of a part's rows where `places` says that its next of their block belongs."""
    for v in range(bounds[2 * part], bounds[2 * part + 2]):
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
        csr: The edges by row, of which the parts that they are cut into by default cut no row.
        num_others: Number of nodes at their other ends.
        count: Number of blocks.
        with_ids: Whether the ids of edges are needed.

    Example:
        >>> csr = Csr(torch.tensor([0, 3, 4]), torch.tensor([3, 0, 2, 1]), None)
        >>> [(block.indptr.tolist(), block.index.tolist()) for block in in_blocks(csr, 4, 2, False)]
        [([0, 1, 2], [0, 1]), ([0, 2, 2], [3, 2])]
    """
    return csr.memo.get_or_make(
        ('in blocks', num_others, count, with_ids), lambda: _in_blocks(csr, -(-num_others // count), count, with_ids)
    )


def _in_blocks(csr: Csr, size: int, count: int, with_ids: bool) -> tuple[Csr, ...]:
    rows, parts = csr.num_rows, cut(csr)
    counts = csr.indptr.new_zeros(count * rows + 1)
    _count_kernel(parts.count, parts.bounds, csr.indptr, csr.index, size, rows, counts[1:])
    indptr = counts.cumsum(0, dtype=counts.dtype)
    placed = torch.empty_like(csr.index)
    none = nothing(csr.index.dtype)
    ids = torch.empty_like(csr.index) if with_ids else none
    known = csr.edge_id if with_ids and csr.edge_id is not None else none
    _place_kernel(parts.count, parts.bounds, csr.indptr, csr.index, known, size, rows, indptr[:-1].clone(), placed, ids)
    found = []
    for block in range(count):
        of_block: Tensor = indptr[block * rows : (block + 1) * rows + 1]
        first, last = of_block[0].item(), of_block[-1].item()
        found.append(Csr(of_block - first, placed[first:last], ids[first:last] if with_ids else None))
    return tuple(found)
