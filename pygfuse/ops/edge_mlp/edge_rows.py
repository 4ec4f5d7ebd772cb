"""A tensor of one row an edge, in the user's order, as chunks of edges by target read and differentiate it."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk


class EdgeRows:
    """The rows of one chunk at a time, and where its gradients go.

    Args:
        tensor: ``[edges, width]``.
        csr: Edges by target.
        kernels: The kernels on chunks.
        size: Edges of the largest chunk.
        backward: Whether somebody wants a gradient.

    Attributes:
        values: The rows of the chunk; not to be written to.
        gradient: The gradient of the whole tensor, once `end` was called for each chunk; None if nobody wants it.
    """

    def __init__(self, tensor: Tensor, csr: Csr, kernels: ModuleType, size: int, backward: bool) -> None:
        self.tensor, self._csr, self._kernels = tensor, csr, kernels
        shape = (size, tensor.shape[1])
        self._taken = None if csr.edge_id is None else tensor.new_empty(shape)
        self._grads = tensor.new_empty(shape) if backward and csr.edge_id is not None else None
        self.gradient = kernels.on_huge_pages(torch.empty_like(tensor)) if backward else None

    def begin(self, chunk: EdgeChunk) -> None:
        """Reads the rows of a chunk."""
        self._is_zero = True
        if self._taken is None:
            self.values = self.tensor[chunk.first : chunk.last]
            self._grad = None if self.gradient is None else self.gradient[chunk.first : chunk.last]
            return
        self.values = self._taken[: chunk.edges]
        self._kernels.take_edges(self._csr, chunk, self.tensor, self.values)
        self._grad = None if self._grads is None else self._grads[: chunk.edges]

    def place(self) -> Tensor | None:
        """Where the gradient of the chunk's rows may be written before it is added; None where that does not do."""
        return self._grad if self._is_zero else None

    def add(self, grad: Tensor) -> None:
        """Adds to the gradient of the chunk's rows, if somebody wants it."""
        if self.gradient is None:
            return
        if grad.data_ptr() == self._grad.data_ptr():
            self._is_zero = False
            return
        if self._is_zero:
            self._grad.copy_(grad)
        else:
            self._grad.add_(grad)
        self._is_zero = False

    def end(self, chunk: EdgeChunk) -> None:
        """Writes the gradient of the chunk's rows, if somebody wants it."""
        if self.gradient is None:
            return
        if self._is_zero:
            self._grad.zero_()
        if self._grads is not None:
            self._kernels.put_edges(self._csr, chunk, self._grad, self.gradient)
