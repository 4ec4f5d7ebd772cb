"""Edges side by side by row, and runs of rows as units of work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.index import ptr2index

# edges and rows that make one part of the work by default, and the largest number of parts
PART_WORK = 4096
PARTS_LIMIT = 256


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
        self._edge_id_by_position: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.index.numel()

    @property
    def edge_id(self) -> Tensor | None:
        """The user's number of the edge at each place, [edges]; None where it is the place itself."""
        if self.position is None:
            return self._edge_id
        if self._edge_id is None:
            return self.position
        if self._edge_id_by_position is None:
            self._edge_id_by_position = self._edge_id[self.position]
        return self._edge_id_by_position

    def rows(self) -> Tensor:
        """The row of the edge at each place, [edges], int64."""
        return ptr2index(self.indptr, output_size=self.num_edges).to(torch.int64)

    def parts(self, count: int | None = None) -> Tensor:
        """Boundaries of runs of rows that hold about the same work, an edge and a row counting alike.

        Args:
            count: Number of runs; by default it follows from the graph alone, not from the number of threads.

        Returns:
            ``[count + 1]``, int64, from 0 to the number of rows. Runs may be empty: a row is never cut, so a
            run holds at most its share and one row more.

        Raises:
            ValueError: If count is not positive.

        Example:
            >>> Graph.of(torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2]])).csr.parts(2)
            tensor([0, 1, 4])
        """
        count = self.default_parts() if count is None else count
        found = self._parts.get(count)
        return self._parts.setdefault(count, self._cut(count)) if found is None else found

    def default_parts(self) -> int:
        """The number of parts when none is asked for."""
        work = self.num_edges + self.num_rows
        return max(1, min(PARTS_LIMIT, self.num_rows, -(-work // PART_WORK)))

    def _cut(self, count: int) -> Tensor:
        if count < 1:
            raise ValueError(f"Expected 'count' to be at least 1 (got {count})")
        work_before = self.indptr + torch.arange(self.num_rows + 1, dtype=torch.int64)
        total = self.num_edges + self.num_rows
        shares = torch.arange(count + 1, dtype=torch.int64) * total // count
        boundaries = torch.searchsorted(work_before, shares, right=True) - 1
        boundaries[-1] = self.num_rows
        return boundaries

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_parts': {}, '_edge_id_by_position': None}
