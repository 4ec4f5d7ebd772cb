"""Whether a walk takes its edges in blocks of their other ends, so that what it gathers stays in a core's cache.

A walk by rows gathers values of nodes at random places. Where those of all nodes are larger than a core's second cache,
most of them come from farther away, and several tensors together soon are: an adjoint's rows of features and of
gradients. In blocks, all rows are walked along their edges from the first nodes, then along those from the next ones,
and so on; what was found of a row is read and written again for each block, so a row has to have some edges in each.
"""

from __future__ import annotations

from pygfuse.graph.csr import Csr

# what a block's nodes take at most, somewhat more than a core's second cache: some nodes are met far more than others
BLOCK_BYTES = 3 * 2**20
# edges that a row has in each block, on average
LEAST_RUN = 8
# where rows have too few edges for that, blocks are so many times larger at most, many blocks still larger: what they
# gather is in the third cache, and their pages are known
WIDER, MANY, WIDER_OF_MANY = 2, 8, 6


def count_of_blocks(csr: Csr, num_others: int, other_bytes: int) -> int:
    """In how many blocks a walk takes its edges; 1 where that gains nothing. It follows from the graph and the call.

    Args:
        csr: The edges by row.
        num_others: Number of nodes at the edges' other ends.
        other_bytes: Bytes that the walk gathers of one of them.

    Example:
        >>> import torch
        >>> csr = Csr(torch.tensor([0, 500_000]), torch.zeros(500_000, dtype=torch.int64), None)
        >>> count_of_blocks(csr, 40_000, 256), count_of_blocks(csr, 10_000, 256)
        (4, 1)
    """
    all_bytes = num_others * other_bytes
    if all_bytes <= BLOCK_BYTES:
        return 1
    # edges in blocks are kept, so widths that are nearly the same have the same blocks; a few heads do not count
    rounded = 1 << (other_bytes * 8 // 9 - 1).bit_length()
    count = min(-(-num_others * rounded // BLOCK_BYTES), csr.num_edges // (LEAST_RUN * max(csr.num_rows, 1)))
    wider = WIDER_OF_MANY if count >= MANY else WIDER
    return count if count > 1 and all_bytes <= wider * BLOCK_BYTES * count else 1
