"""Tangents of what stages read: directions in which the operands of a network on edges change."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp.edge_rows import EdgeRows
from pygfuse.ops.edge_mlp.operands import Operands


class Tangents:
    """The tangents of the tensors in a network's stages.

    Args:
        operands: The operands.
        tensors: Their tensors, as the operands have them.
        given: The tangent of each, contiguous, or None where it does not change.
        size: Edges of the largest chunk.
    """

    def __init__(
        self, operands: Operands, tensors: Sequence[Tensor], given: Sequence[Tensor | None], size: int
    ) -> None:
        self._tangents = {id(t): tangent for t, tangent in zip(tensors, given, strict=True) if tangent is not None}
        features = {id(rows.tensor) for rows in operands.all_edge_rows()}
        self._edge_rows = {
            place: EdgeRows(tangent, operands.csr, operands.kernels, size, False)
            for place, tangent in self._tangents.items()
            if place in features
        }

    def of(self, tensor: Tensor | None) -> Tensor | None:
        """The tangent of a tensor."""
        return self._tangents.get(id(tensor))

    def rows_of(self, features: Tensor | None) -> Tensor | None:
        """The tangent of features of edges, its rows of the chunk."""
        rows = self._edge_rows.get(id(features))
        return None if rows is None else rows.values

    def begin(self, chunk: EdgeChunk) -> None:
        """Reads the rows of a chunk."""
        for rows in self._edge_rows.values():
            rows.begin(chunk)
