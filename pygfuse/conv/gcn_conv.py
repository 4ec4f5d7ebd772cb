"""The fused graph convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor

from pygfuse.conv._hag import usable_hag
from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    as_features,
    check_features,
    checked_edge_weight,
    is_edge_index,
    nodes_of,
    why_not_reduce,
    why_not_repeats,
    why_not_rows,
    why_not_ties,
)
from pygfuse.conv._norm_cache import cached_factors
from pygfuse.conv._normalise import with_remaining_loops
from pygfuse.graph.adjacency import values_of
from pygfuse.ops.aggregate import Edges, aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.ops.linear import apply_linear
from pygfuse.program.library.neighbours import (
    NEIGHBOURS,
    NORMALISED_NEIGHBOURS,
    NORMALISED_WEIGHTED_NEIGHBOURS,
    WEIGHTED_NEIGHBOURS,
)


class GCNConv(FusedConv, torch_geometric.nn.GCNConv):
    r"""`torch_geometric.nn.GCNConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}}
        \mathbf{\hat{D}}^{-1/2} \mathbf{X} \mathbf{\Theta}

    The normalisation stays with the nodes: an edge's weight is the product of two factors, formed in registers. Without
    edge weights the factors go with the cached graph (fused graph processing, fuseGNN, section IV); with edge weights
    that require a gradient, it flows through the degrees too.

    Args:
        in_channels, out_channels, improved, cached, add_self_loops, normalize, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = GCNConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_weight': OptTensor}
    runs_under_autocast: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GCNConv.forward``."""
        if not isinstance(x, Tensor) or not self.runs_fused(
            self.why_not_with(edge_index, (x, None), edge_weight=edge_weight)
            or why_not_rows(x)
            or why_not_repeats(self, edge_index)
            or why_not_ties(self, edge_index, x, self.lin.weight)
        ):
            return super().forward(x, edge_index, edge_weight)
        check_features(self, (x, None), shared=True)
        # not of x, which may be sparse
        like = torch.empty(0, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        out = self._aggregated(apply_linear(self.lin, x), edge_index, edge_weight, like)
        return out if self.bias is None else out + self.bias

    def _aggregated(self, x: Tensor, adjacency: Any, edge_weight: Tensor | None, like: Tensor) -> Tensor:
        """The sum over neighbours; degrees are computed in the type of `like`."""
        if self.normalize and not self.cached and is_edge_index(adjacency):
            edges, graph = nodes_of(self, (x, x), adjacency, None, self.add_self_loops)
            weight = checked_edge_weight(edge_weight, edges, graph)
            hag = usable_hag(self, adjacency, edges, self._why_no_hag(weight))
            if hag is not None:
                factors = cached_factors(edges, None, like).flatten()
                return hag_aggregate(hag, x, 'sum', factors, factors)
            return self._normalised(x, edges, None if weight is None else as_features(weight, x), like)
        if self.normalize:
            adjacency, edge_weight = self._normed_by_pyg(x, adjacency, edge_weight, like.dtype)
        elif not is_edge_index(adjacency):
            edge_weight = values_of(adjacency)
        edges, graph = nodes_of(self, (x, x), adjacency)
        weight = checked_edge_weight(edge_weight, edges, graph)
        hag = usable_hag(self, adjacency, edges, None if weight is None else 'its messages have edge weights')
        if hag is not None:
            return hag_aggregate(hag, x, REDUCTIONS[self.aggr])
        if weight is None:
            return self._run(NEIGHBOURS, edges, {'x': x})
        return self._run(WEIGHTED_NEIGHBOURS, edges, {'x': x, 'edge_weight': as_features(weight, x)})

    def _why_no_hag(self, weight: Tensor | None) -> str | None:
        if weight is not None:
            return 'its messages have edge weights'
        return None if REDUCTIONS[self.aggr] == 'sum' else f'aggr={self.aggr!r} of normalised neighbours'

    def _normalised(self, x: Tensor, edges: Edges, weight: Tensor | None, like: Tensor) -> Tensor:
        if weight is not None and edges.loops is not None:
            weight = with_remaining_loops(weight, edges, 2.0 if self.improved else 1.0)
        factors = cached_factors(edges, weight, like)
        operands = {'x': x, 'norm_src': factors, 'norm_dst': factors}
        if weight is None:
            return self._run(NORMALISED_NEIGHBOURS, edges, operands)
        return self._run(NORMALISED_WEIGHTED_NEIGHBOURS, edges, {**operands, 'edge_weight': weight})

    def _run(self, program: Any, edges: Edges, operands: dict[str, Tensor]) -> Tensor:
        with self.noted():
            return aggregate(program, edges, operands, 1, operands['x'].shape[1], REDUCTIONS[self.aggr]).flatten(1)

    def _normed_by_pyg(
        self, x: Tensor, adjacency: Any, edge_weight: Tensor | None, dtype: torch.dtype
    ) -> tuple[Any, Tensor | None]:
        """PyG's normalisation: of sparse adjacencies, and where the layer keeps the first one it sees."""
        plain = isinstance(adjacency, Tensor)
        kept = self._cached_edge_index if plain else self._cached_adj_t
        if kept is None:
            kept = gcn_norm(
                adjacency, edge_weight, x.shape[0], self.improved, self.add_self_loops, self.flow, dtype=dtype
            )
            if self.cached and plain:
                self._cached_edge_index = kept
            elif self.cached:
                self._cached_adj_t = kept
        normed, weight = kept if plain else (kept, None)
        return normed, values_of(normed) if weight is None else weight
