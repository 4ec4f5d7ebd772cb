"""Edges side by side by row."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch_geometric.index import ptr2index

from pygfuse._lib.memo import Memo


class Csr:
    """One direction of an adjacency: the edges of each row side by side.

    Attributes:
        indptr: Where each row begins, [rows + 1], int32 where every size and edge id of the graph fits, else
            int64.
        index: The column of the edge at each place, [edges], of the same type.
        position: For edges by source: the place of the same edge among the edges by target, [edges], of the
            same type. None for edges by target.
    """

    def __init__(
        self,
        indptr: Tensor,
        index: Tensor,
        edge_id: Tensor | None,
        position: Tensor | None = None,
    ) -> None:
        self.indptr = indptr
        self.index = index
        self.position = position
        self._edge_id = edge_id
        # cuts into parts, and the mappings that were chosen
        self.memo = Memo(index.device)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.index.numel()

    @functools.cached_property
    def max_degree(self) -> int:
        """The largest number of edges of one row."""
        return int(self.indptr.diff().max()) if self.num_rows else 0

    @property
    def edge_id(self) -> Tensor | None:
        """The user's number of the edge at each place, [edges]; None where it is the place itself."""
        if self.position is None:
            return self._edge_id
        if self._edge_id is None:
            return self.position
        return self.memo.get_or_make(('edge ids by position',), lambda: self._edge_id[self.position])

    def forget_index(self) -> None:
        """Gives up the index where it can be found again."""

    def rows(self) -> Tensor:
        """The row of the edge at each place, [edges], int64."""
        return ptr2index(self.indptr, output_size=self.num_edges).to(torch.int64)

    def to(self, device: torch.device) -> Csr:
        """A copy on another device."""
        tensors = (self.indptr, self.index, self._edge_id, self.position)
        return Csr(*(None if tensor is None else tensor.to(device) for tensor in tensors))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a copy may be on another device
        self.__dict__.update({**state, 'memo': Memo(state['index'].device)})
