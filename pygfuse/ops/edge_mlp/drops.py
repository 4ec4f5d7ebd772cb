"""Dropouts among the stages of a network on edges."""

from __future__ import annotations

from torch import Tensor

from pygfuse.ops.dropout_draws import dropout_draws, edge_marks
from pygfuse.ops.edge_mlp.stages import Drop


class DropsOfEdges:
    """The dropouts of a network on edges, which share their marks.

    Args:
        num_edges: Number of edges.
        like: A tensor of the type and device of values of edges.
    """

    def __init__(self, num_edges: int, like: Tensor) -> None:
        self._num_edges, self._dtype, self._device = num_edges, like.dtype, like.device
        self._marks: Tensor | None = None

    def stage(self, width: int, p: float) -> Drop:
        """A dropout of values of a width, drawn anew.

        Args:
            width: Values of an edge.
            p: The probability of dropping one.
        """
        if self._marks is None:
            self._marks = edge_marks(self._num_edges, self._device, self._dtype)
        return Drop(self._marks, dropout_draws((width,), p, self._dtype, self._device))
