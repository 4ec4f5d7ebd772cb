"""What stages read and differentiate while they run on chunks of edges, and the buffers that chunks share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp.edge_rows import EdgeRows


class Operands:
    """The tensors in a network's stages.

    Args:
        tensors: The tensors, contiguous, no two of which are one object; at least one.
        features: Those with a row for each edge.
        csr: Edges by target.
        size: Edges of the largest chunk.
        is_backward: Whether there will be gradients.
        wanted: Of which somebody wants one, a bool for each tensor.

    Attributes:
        kernels: The kernels on chunks of the tensors' device.
        dtype: Of all tensors.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        features: Sequence[Tensor],
        csr: Csr,
        size: int,
        is_backward: bool,
        wanted: Sequence[bool],
    ) -> None:
        self.csr, self.is_backward, self.kernels = csr, is_backward, edge_chunks_of(tensors[0].device)
        self._tensors, self._size, self.dtype = tensors, size, tensors[0].dtype
        self._wanted = {id(t) for t, is_wanted in zip(tensors, wanted, strict=True) if is_wanted and is_backward}
        self._edge_rows = {id(t): EdgeRows(t, csr, self.kernels, size, self.wants(t)) for t in features}
        of_others = [t for t in tensors if id(t) not in self._edge_rows and self.wants(t)]
        self._gradients = {id(t): torch.zeros_like(t) for t in of_others}

    def new_rows(self, width: int) -> Tensor:
        """A buffer of a row for each edge of a chunk."""
        return self._tensors[0].new_empty(self._size, width)

    def new_products(self, count: int, width: int) -> Tensor:
        """A buffer of so many rows, which are wide."""
        return self.kernels.on_huge_pages(self._tensors[0].new_empty(count, width))

    def edge_rows(self, tensor: Tensor) -> EdgeRows:
        """Features of edges."""
        return self._edge_rows[id(tensor)]

    def all_edge_rows(self) -> Sequence[EdgeRows]:
        """All features of edges."""
        return list(self._edge_rows.values())

    def wants(self, tensor: Tensor | None) -> bool:
        """Whether there is a tensor, and somebody wants its gradient."""
        return id(tensor) in self._wanted

    def gradient(self, tensor: Tensor) -> Tensor:
        """Where the gradients of a tensor that has no row for each edge are added, if somebody wants them."""
        return self._gradients[id(tensor)]

    def add_to_targets(self, chunk: EdgeChunk, tensor: Tensor | None, grad: Tensor) -> None:
        """Adds gradients of edges to those of their targets' rows."""
        if self.wants(tensor):
            self.kernels.add_to_targets(self.csr, chunk, grad, self.gradient(tensor))

    def add_to_sources(self, chunk: EdgeChunk, tensor: Tensor | None, grad: Tensor | None) -> None:
        """Adds gradients of edges to those of their sources' rows."""
        if self.wants(tensor):
            self.kernels.add_to_sources(self.csr, chunk, grad, self.gradient(tensor))

    def add_product(self, weight: Tensor, grad: Tensor, values: Tensor) -> None:
        """Adds the gradient of a weight that mapped values: ``grad.t() @ values``."""
        if self.wants(weight):
            self.kernels.add_over_rows(grad, values, self.gradient(weight))

    def add_total(self, tensor: Tensor | None, grad: Tensor, factor: Tensor | None = None) -> None:
        """Adds the gradient of a row that was added to all edges' values, or multiplied with `factor` on each."""
        if self.wants(tensor):
            self.gradient(tensor).add_((grad if factor is None else grad * factor).sum(dim=0))

    def found(self) -> list[Tensor]:
        """The gradients of all tensors, in their order; empty ones of those of which nobody wants one."""
        return [self._found(t) if self.wants(t) else t.new_empty(0) for t in self._tensors]

    def _found(self, tensor: Tensor) -> Tensor:
        rows = self._edge_rows.get(id(tensor))
        return self.gradient(tensor) if rows is None else rows.gradient
