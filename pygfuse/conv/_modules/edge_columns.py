"""Edges that an argument holds by columns, ``[edges, 2]``, as two rows, which are kept with it."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED

_KEY = ('edges by columns',)


def rows_of_columns(columns: Tensor) -> Tensor:
    """Edges by columns as ``[2, edges]``: always the same tensor, until they are written to.

    Example:
        >>> columns = torch.tensor([[0, 1], [1, 2], [2, 0]])
        >>> rows_of_columns(columns).tolist(), rows_of_columns(columns) is rows_of_columns(columns)
        ([[0, 1, 2], [1, 2, 0]], True)
    """
    if torch.compiler.is_compiling():
        return columns.t()
    found = ATTACHED.get(columns, _KEY)
    if found is not None:
        return found
    state = state_of(columns)
    with torch.inference_mode(False), torch.no_grad():
        made = columns.t().contiguous()
    return ATTACHED.keep(columns, _KEY, state, made, held=columns.detach())
