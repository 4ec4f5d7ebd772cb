"""What the nodes of a HAG aggregate."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from pygfuse._lib.backends import sorting_of
from pygfuse.graph.csr import Csr


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """What each of several nodes aggregates: compressed rows, sources first, then aggregation nodes.

    Attributes:
        indptr: Where each row begins, [rows + 1], int32.
        middle: Where each row's aggregation nodes begin, [rows], int32.
        index: Sources and numbers of aggregation nodes, [inputs], int32.
    """

    indptr: Tensor
    middle: Tensor
    index: Tensor

    @property
    def num_rows(self) -> int:
        return self.middle.numel()

    @property
    def num_inputs(self) -> int:
        return self.index.numel()

    @property
    def num_aggregations(self) -> int:
        """Binary aggregations: one less than inputs for each row that has any."""
        return self.num_inputs - int((self.indptr.diff() > 0).sum())

    def of_aggregations(self) -> Tensor:
        """Whether each input is an aggregation node, [inputs]."""
        return torch.arange(self.num_inputs) >= self.middle.long()[self.rows()]

    def rows(self) -> Tensor:
        """The row of each input, [inputs], int64."""
        return Csr(self.indptr, self.index, None).rows()

    def slice(self, first: int, last: int) -> Rows:
        """Rows ``first`` to ``last - 1``."""
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        return Rows(self.indptr[first : last + 1] - begin, self.middle[first:last] - begin, self.index[begin:end])

    @staticmethod
    def of(row: Tensor, index: Tensor, is_aggregation: Tensor, num_rows: int) -> Rows:
        """Rows of inputs in any order; within a row, sources and aggregation nodes keep theirs."""
        # twice as many rows: the sources of row r, then its aggregation nodes
        halves, order, _ = _sorted(2 * row + is_aggregation, index, 2 * num_rows)
        return Rows(halves[::2].contiguous(), halves[1::2].contiguous(), order)

    @staticmethod
    def joined(source_pointer: Tensor, sources: Tensor, pointer: Tensor, aggregations: Tensor) -> Rows:
        """Rows from their sources and their aggregation nodes, each as compressed rows."""
        indptr = source_pointer + pointer
        middle = pointer[:-1] + source_pointer[1:]
        index = torch.empty(sources.numel() + aggregations.numel(), dtype=torch.int32)
        places = torch.arange(sources.numel()) + pointer[:-1].repeat_interleave(source_pointer.diff())
        index[places] = sources.to(torch.int32)
        places = torch.arange(aggregations.numel()) + source_pointer[1:].repeat_interleave(pointer.diff())
        index[places] = aggregations.to(torch.int32)
        return Rows(indptr.to(torch.int32), middle.to(torch.int32), index)


def _sorted(row: Tensor, index: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
    columns = int(index.max()) + 1 if index.numel() else 0
    return sorting_of(row.device).sort_by_target(row.long(), index.long(), num_rows, columns, None, torch.int32)
