"""Sums, means and extremes over neighbours, for the layers that are little else."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from pygfuse.conv._hag import usable_hag
from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    as_features,
    checked_edge_weight,
    is_edge_index,
    is_sparse_tensor,
    nodes_of,
    why_not_reduce,
    why_not_repeats,
    why_not_reversed,
    why_not_rows,
    why_not_ties,
)
from pygfuse.graph.adjacency import values_of
from pygfuse.ops.aggregate import aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS


class NeighbourConv(FusedConv):
    """A mixin for layers whose message is the neighbour, possibly times an edge weight."""

    runs_under_autocast: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr)

    def why_not_neighbours(
        self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_weight: Tensor | None = None, size: Any = None
    ) -> str | None:
        """The reason, if any, for which a call with these arguments runs PyG's own path."""
        reason = self.why_not_with(adjacency, pair, edge_weight=edge_weight) or why_not_rows(pair[0])
        if reason is None and edge_weight is not None and edge_weight.dim() > 1 and edge_weight[:1].numel() > 1:
            return 'edge weights of more than one number an edge'
        reason = reason or why_not_reversed(self.flow, pair, size)
        before = [self.lin.weight] if getattr(self, 'project', False) else []
        return reason or why_not_repeats(self, adjacency) or why_not_ties(self, adjacency, pair[0], *before)

    def neighbours(
        self,
        pair: tuple[Tensor, Tensor | None],
        adjacency: Any,
        edge_weight: Tensor | None = None,
        size: Any = None,
        ignores_values: bool = False,
    ) -> Tensor:
        """The aggregation of ``x[0]`` over each target's neighbours: ``[targets, channels]``.

        Args:
            pair: Features of both sides; the second may be missing.
            adjacency: What the user passed; a sparse one brings its values as edge weights.
            edge_weight: One number an edge, or None.
            size: PyG's `size`.
            ignores_values: Whether the layer drops the values of a ``SparseTensor``, as some of PyG's do.
        """
        edges, graph = nodes_of(self, pair, adjacency, size)
        if not is_edge_index(adjacency):
            edge_weight = None if ignores_values and is_sparse_tensor(adjacency) else values_of(adjacency)
        weight = checked_edge_weight(edge_weight, edges, graph)
        operands = {'x': pair[0]} if weight is None else {'x': pair[0], 'edge_weight': as_features(weight, pair[0])}
        program = NEIGHBOURS if weight is None else WEIGHTED_NEIGHBOURS
        hag = usable_hag(self, adjacency, edges, None if weight is None else 'its messages have edge weights')
        if hag is not None:
            return hag_aggregate(hag, pair[0], REDUCTIONS[self.aggr])
        with self.noted():
            return aggregate(program, edges, operands, 1, pair[0].shape[1], REDUCTIONS[self.aggr]).flatten(1)
