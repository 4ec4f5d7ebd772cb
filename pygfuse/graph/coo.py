"""Edges as they came, in no order."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Coo:
    """The edges of a graph in the order of their ids, for walks that do without sorting.

    Attributes:
        rows: The row of each edge, [edges], int64: its target, or its source for the adjoint.
        index: The node at its other end, [edges], int64.
        num_rows: Number of rows.
        num_columns: Number of nodes at the other ends.
    """

    rows: Tensor
    index: Tensor
    num_rows: int
    num_columns: int

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.rows.numel()

    def transposed(self) -> Coo:
        """The edges by their other ends."""
        return Coo(self.index, self.rows, self.num_columns, self.num_rows)

    def degree(self) -> Tensor:
        """Number of edges of each row, [num_rows], int64."""
        return torch.bincount(self.rows, minlength=self.num_rows)
