"""The rows where gradients are, and the edges that lead there, on a GPU by torch's operators.

Masks are tensors of uint8, 1 for what is active.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr

# the host waits for the numbers that a look gives, and whatever else the GPU could have been given waits with it
SYNCHRONISES = True


def active_rows(values: Tensor, indptr: Tensor) -> tuple[Tensor, int, int]:
    """The rows that are not all zero, their number, and that of their edges; see
    `pygfuse.cpu.edges.row_search.active_rows`.

    Example:
        >>> values = torch.tensor([[0.0, 1.0], [0.0, -0.0], [0.0, float('nan')]])
        >>> active_rows(values, torch.tensor([0, 3, 5, 9]))
        (tensor([1, 0, 1], dtype=torch.uint8), 2, 7)
    """
    active = (values != 0).any(dim=1)
    # one transfer for both
    rows, edges = torch.stack([active.sum(), (indptr.diff() * active).sum(dtype=torch.int64)]).tolist()
    return active.to(torch.uint8), rows, edges


def kept_rows(csr: Csr, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The edges of active rows, all rows: row pointer, columns, and the ids of the edges kept.

    Example:
        >>> csr = Csr(torch.tensor([0, 2, 3, 5]), torch.tensor([4, 5, 6, 7, 8]), None)
        >>> kept_rows(csr, torch.tensor([1, 0, 1], dtype=torch.uint8))
        (tensor([0, 2, 2, 4]), tensor([4, 5, 7, 8]), tensor([0, 1, 3, 4]))
    """
    degree = csr.indptr.diff()
    indptr = torch.zeros_like(csr.indptr)
    indptr[1:] = (degree * active).cumsum(0)
    places = active.repeat_interleave(degree.long(), output_size=csr.num_edges).nonzero().flatten()
    ids = places.to(csr.index.dtype) if csr.edge_id is None else csr.edge_id[places]
    return indptr, csr.index[places], ids
