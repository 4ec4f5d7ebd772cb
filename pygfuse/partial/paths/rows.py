"""The rows of an execution path: the edges that are left, cut as the whole graph's are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Cut, splits


class PathRows:
    """One direction of an execution path: the edges of each row that has any, side by side.

    Attributes:
        rows: The nodes with edges, ascending, of the graph's index type.
        indptr: Where each one's edges begin, and the end.
        index: The node at the other end of each edge.
        edge_id: The user's number of each edge.
    """

    def __init__(self, indptr: Tensor, index: Tensor, edge_id: Tensor) -> None:
        self.rows = (indptr.diff() > 0).nonzero().flatten().to(indptr.dtype)
        self.indptr = torch.cat([indptr[:1], indptr[1:][self.rows]])
        self.index = index
        self.edge_id = edge_id
        self._cuts: dict[Cut, Cut] = {}
        self._csr: Csr | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.index.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in (self.rows, self.indptr, self.index, self.edge_id))

    @property
    def csr(self) -> Csr:
        """The edges as a graph of the rows that have any."""
        if self._csr is None:
            self._csr = Csr(self.indptr, self.index, self.edge_id)
        return self._csr

    def cut(self, parts: Cut, kept_before: Callable[[int, int], int]) -> Cut:
        """The whole graph's parts without the edges left out, in rows of this list.

        A row lies in the same pieces as before, so that its sum is added up in the same order.

        Args:
            parts: Parts of the whole graph.
            kept_before: How many edges of a row are kept of those before a place among the whole graph's.
        """
        found = self._cuts.get(parts)
        if found is None:
            found = self._cuts[parts] = self._cut(parts, kept_before)
        return found

    def _cut(self, parts: Cut, kept_before: Callable[[int, int], int]) -> Cut:
        nodes, places = parts.bounds.view(-1, 2).unbind(1)
        before = torch.zeros_like(nodes)
        for i in torch.isin(nodes, parts.split_rows).nonzero().flatten().tolist():
            before[i] = kept_before(int(nodes[i]), int(places[i]))
        rows = torch.searchsorted(self.rows, nodes.to(self.rows.dtype))
        edges = self.indptr[rows] + before
        ends = self.indptr[(rows + 1).clamp(max=len(self.rows))]
        cuts = (before > 0) & (edges < ends)
        # all that a row keeps lies before the cut: the next part begins with the next row
        rows = torch.where((before > 0) & ~cuts, rows + 1, rows)
        split, *slots = splits(rows, cuts)
        return Cut(torch.stack([rows, edges], dim=1).flatten(), self.rows[split].to(torch.int64), *slots)
