"""What stages read and differentiate while they run on chunks of edges, and the buffers that chunks share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse.graph.csr import Csr
from pygfuse.ops.edge_mlp.edge_rows import EdgeRows


class Operands:
    """The tensors in a network's stages.

    Args:
        tensors: The tensors, contiguous, no two of which are one object; at least one.
        features: Those with a row for each edge.
        csr: Edges by target.
        size: Edges of the largest chunk.
        is_backward: Whether there will be gradients.
        wanted: Of which features somebody wants one, a bool for each tensor.

    Attributes:
        kernels: The kernels on chunks of the tensors' device.
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
        self._tensors, self._size = tensors, size
        unwanted = {id(t) for t, is_wanted in zip(tensors, wanted, strict=True) if not is_wanted}
        self._edge_rows = {
            id(t): EdgeRows(t, csr, self.kernels, size, is_backward and id(t) not in unwanted) for t in features
        }
        of_others = [t for t in tensors if id(t) not in self._edge_rows] if is_backward else []
        self._gradients = {id(t): torch.zeros_like(t) for t in of_others}

    def new_rows(self, width: int) -> Tensor:
        """A buffer of a row for each edge of a chunk."""
        return self._tensors[0].new_empty(self._size, width)

    def edge_rows(self, tensor: Tensor) -> EdgeRows:
        """Features of edges."""
        return self._edge_rows[id(tensor)]

    def all_edge_rows(self) -> Sequence[EdgeRows]:
        """All features of edges."""
        return list(self._edge_rows.values())

    def gradient(self, tensor: Tensor) -> Tensor:
        """Where the gradients of a tensor that has no row for each edge are added."""
        return self._gradients[id(tensor)]

    def found(self) -> list[Tensor]:
        """The gradients of all tensors, in their order; empty ones of features of which nobody wants one."""
        found = [
            self._edge_rows[id(t)].gradient if id(t) in self._edge_rows else self.gradient(t) for t in self._tensors
        ]
        return [t.new_empty(0) if grad is None else grad for t, grad in zip(self._tensors, found, strict=True)]
