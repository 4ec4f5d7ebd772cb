"""Sparse matrices that modules are given or hold: the edges that lead from columns to rows, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor

from pygfuse.compiler import Refused
from pygfuse.compiler.modules.data_objects import Fields
from pygfuse.compiler.modules.sparse_matrices import COLUMNS, EDGES, IS_COALESCED, NUMBERS, ROWS
from pygfuse.graph.adjacency import read, state_of, values_of
from pygfuse.graph.attached import ATTACHED

_LAYOUTS = torch.sparse_coo, torch.sparse_csr
_KEY = ('edges of a matrix',)


def is_matrix(item: Any) -> bool:
    """Whether something is a sparse matrix of PyTorch's, by coordinates or by rows, or one of ``torch_sparse``."""
    is_of_torch = type(item) is Tensor and item.layout in _LAYOUTS and item.dim() == 2
    return is_of_torch or isinstance(item, SparseTensor)


def opened_matrix(name: str, item: Any) -> Fields:
    """What a capture is told of a sparse matrix.

    Args:
        name: Its name.
        item: The matrix.

    Raises:
        Refused: If it has gradients of its own, or a row of numbers for each entry.

    Example:
        >>> found = opened_matrix('a', torch.eye(3).to_sparse()).items
        >>> found['edge_index'].tolist(), found['edge_weight'].tolist(), found['rows']
        ([[0, 1, 2], [0, 1, 2]], [1.0, 1.0, 1.0], 3)
    """
    if isinstance(item, Tensor) and item.requires_grad:
        raise Refused(f'{name} is a sparse matrix that has gradients of its own')
    numbers = values_of(item)
    if numbers is not None and numbers.dim() != 1:
        raise Refused(f'{name} is a sparse matrix with several numbers for each entry')
    rows, columns = item.shape if isinstance(item, Tensor) else item.sparse_sizes()
    is_coalesced = not isinstance(item, Tensor) or item.layout != torch.sparse_coo or item.is_coalesced()
    found = {EDGES: _edges_of(item), ROWS: int(rows), COLUMNS: int(columns), IS_COALESCED: is_coalesced}
    return Fields(type(item), found if numbers is None else {**found, NUMBERS: numbers})


def num_entries(item: Any) -> int:
    """How many entries a sparse matrix has, or how many edges there are."""
    if not is_matrix(item):
        return item.shape[1]
    return item._nnz() if isinstance(item, Tensor) else item.nnz()


def device_of(matrix: Any) -> torch.device:
    """Where a sparse matrix is."""
    return matrix.device if isinstance(matrix, Tensor) else matrix.device()


def sizes_of_matrix(name: str, arguments: Mapping[str, Any]) -> list[int]:
    """The numbers of rows and of columns of a matrix, one if they are the same; none of edges that are no matrix's.

    Args:
        name: The name of the edges.
        arguments: All that a call brings, by name.
    """
    of = name.removesuffix(EDGES)
    sizes = [arguments[of + size] for size in (ROWS, COLUMNS) if of + IS_COALESCED in arguments]
    return list(dict.fromkeys(sizes))


def _edges_of(item: Any) -> Tensor:
    """Rows and columns of the entries, in their order: always the same tensor for the same matrix."""
    found = ATTACHED.get(item, _KEY)
    if found is not None:
        return found
    state = state_of(item)
    with torch.inference_mode(False), torch.no_grad():
        if isinstance(item, Tensor) and item.layout == torch.sparse_coo:
            found = item._indices().detach()
        else:
            found = torch.stack(read(item).targets_and_sources())
    return ATTACHED.keep(item, _KEY, state, found)
