"""The fused graph convolutional operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse.conv._compiled.prepared_edges import prepared_norms
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.copies import OverCopies
from pygfuse.conv._layer.edges import EdgeInput, edges_of
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.map_first import order_of
from pygfuse.conv._layer.normalise import cached_factors, weights_of_few, with_remaining_loops
from pygfuse.conv._layer.spec import SUMS, EdgeWeight, Spec
from pygfuse.mapping.map_order import AGGREGATE_FIRST, MAP_FIRST
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.mapped_sums import mapped_sum, weights_for
from pygfuse.ops.few_edges.sums import FewEdges, sum_along
from pygfuse.ops.hag import hag_aggregate
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.linear import apply_linear
from pygfuse.ops.within_torch import autocast
from pygfuse.ops.within_torch.intercepted import PLAIN
from pygfuse.program.library.neighbours import (
    NEIGHBOURS,
    NORMALISED_NEIGHBOURS,
    NORMALISED_WEIGHTED_NEIGHBOURS,
    WEIGHTED_NEIGHBOURS,
)
from pygfuse.program.program import SOURCE
from pygfuse.program.sums_along_edges import NORMALISED, NORMALISED_WITH_LOOPS, WEIGHTED


class GCNConv(OverCopies, torch_geometric.nn.GCNConv):
    r"""`torch_geometric.nn.GCNConv`, fused: the same parameters, options and numbers.

    From the `"Semi-supervised Classification with Graph Convolutional Networks" <https://arxiv.org/abs/1609.02907>`_
    paper.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}}
        \mathbf{\hat{D}}^{-1/2} \mathbf{X} \mathbf{\Theta}

    The normalisation stays with the nodes: an edge's weight is the product of two factors, formed in registers. Without
    edge weights the factors go with the cached graph (fused graph processing, fuseGNN, section IV); with edge weights
    that require a gradient, it flows through the degrees too.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, improved, cached, add_self_loops, normalize, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GCNConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_weight': OptTensor}
    spec = Spec(
        NEIGHBOURS, edge=EdgeWeight(WEIGHTED_NEIGHBOURS), in_channels='in_channels', before='lin', loops=True,
        bipartite=False, static=True, matrix=True, hag=True, autocast=True, sparse=True,
    )  # fmt: skip

    def forward(self, x: Tensor, edge_index: Any, edge_weight: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GCNConv.forward``."""
        return self.fused(x, edge_index, edge_weight=edge_weight)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return self.with_bias(out)

    def before_sums(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def sums_of(self, inputs: Inputs, edges: Edges, prepared: Any) -> Tensor:
        return self._normalised_sums(inputs, inputs.x[0].dtype, edges, prepared)[0]

    def after_sums(self, sums: Tensor, x: Tensor) -> Tensor:
        return sums if self.bias is None else sums + self.bias

    def why_not_call(self, inputs: Inputs) -> str | None:
        x = inputs.x[0]
        if self.fuse and is_sparse_tensor(inputs.adjacency) and autocast.is_on(x.device) and not x.is_cuda:
            return 'autocast is on, and makes the values of a SparseTensor narrow'
        if not self.fuse and self.normalize and is_sparse_tensor(inputs.adjacency) and inputs.edge is not None:
            return 'edge_weight beside a SparseTensor, with which PyG is told not to multiply'
        return None

    def as_list(self, x: Any, adjacency: Any, given: dict[str, Any]) -> Any:
        # PyG gives loops their weight in a matrix, and in a list without weights not
        return adjacency if self.improved else super().as_list(x, adjacency, given)

    given_of_few: ClassVar = ('edge_weight',)
    maps_sparse_first: ClassVar = True

    def form_of_few(self, x: Tensor | NodePair, prepared: Any) -> str | None:
        if not self.normalize:
            return self.reduction if self.reduction in SUMS else None
        if self.reduction != 'sum':
            return None
        if self.cached:
            return WEIGHTED if _are_summed_as_they_are(self._cached_edge_index, x) else None
        return NORMALISED_WITH_LOOPS if self.add_self_loops else NORMALISED

    def width_of_few(self, width: int, form: Any) -> int:
        return min(width, self.out_channels) if form in _NORMALISED else self.out_channels

    def few_edges(
        self, x: Tensor | NodePair, edge_index: Tensor, given: Mapping[str, Any], forms: tuple | None
    ) -> FewEdges | None:
        if forms is not None and forms[0] == WEIGHTED:
            # those that the layer keeps, whatever it is given
            edge_index, weight = self._cached_edge_index
            given = {**given, 'edge_weight': weight}
        return super().few_edges(x, edge_index, given, forms)

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> OptTensor:
        weight = edges.given['edge_weight']
        if weight is not None and form != WEIGHTED:
            return self._weighted_sum_of_few(x[0], edges, form)
        first = self._map_of_sums(x[0]) if form in _NORMALISED else None
        if first is not None:
            return mapped_sum(*first, x[0], edges, form)
        out = sum_along(apply_linear(self.lin, x[0]), edges, form, weights=weight)
        return out if self.bias is None else out + self.bias

    def _map_of_sums(self, x: Tensor) -> tuple[Tensor, OptTensor] | None:
        """The weight and bias by which sums of features are mapped, where these are no wider than what the map gives:
        both are one node of autograd then. None for a map that somebody watches, which is given the features."""
        found = weights_for(x, self._modules['lin']) if x.shape[1] <= self.out_channels else None
        # a bias that is computed is not read but where PyG reads it
        bias = self._parameters.get('bias', self)
        is_like = bias is None or (type(bias) in PLAIN and bias.dtype is x.dtype)
        return (found[0], bias) if found is not None and found[1] is None and is_like else None

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        if given['edge_weight'] is None or given['edge_weight'].dim() != 1 or not self.normalize or self.cached:
            return None
        is_biased = self.has_bias()
        form = Form(
            *(NORMALISED_WEIGHTED_NEIGHBOURS, {'x': (Part(SOURCE, 0),)}, 1, self.out_channels),
            given=('edge_weight', 'norm_src', 'norm_dst'), reduce=self.reduction, loops=self.add_self_loops,
            added=(Part(None, 1),) if is_biased else (),
        )  # fmt: skip
        return FewWalk(form, ('lin', 'bias') if is_biased else ('lin',))

    def _weighted_sum_of_few(self, x: Tensor, edges: FewEdges, walk: FewWalk) -> OptTensor:
        weight = edges.given['edge_weight'].unsqueeze(1)
        if len(weight) != edges.edge_index.shape[1]:
            return None
        weight, factors = weights_of_few(edges, weight, self._fill if self.add_self_loops else None)
        return self.walk_few((x, x), edges, walk, more=(weight, factors, factors))

    @property
    def _fill(self) -> float:
        """The weight of self-loops that are put in."""
        return 2.0 if self.improved else 1.0

    # the normalisation stays with the nodes

    def find_edges(self, inputs: Inputs) -> tuple[Inputs, Edges]:
        if self.normalize and (self.cached or not is_edge_index(inputs.adjacency)):
            inputs = self._normed_by_pyg(inputs)
        loops = self.normalize and self.add_self_loops and not inputs.is_normalised
        return inputs, edges_of(inputs.x, inputs.adjacency, self.flow, None, loops, inputs.is_known)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        x = inputs.x[0]
        if order_of(self, self.lin, inputs, edges, usual=MAP_FIRST) == AGGREGATE_FIRST:
            out, weights = self._normalised_sums(inputs, x.dtype, edges, prepared)
            return apply_linear(self.lin, out), weights
        mapped = inputs._replace(x=(apply_linear(self.lin, x), None))
        return self._normalised_sums(mapped, x.dtype, edges, prepared)

    def _normalised_sums(
        self, inputs: Inputs, dtype: torch.dtype, edges: Edges, prepared: Any
    ) -> tuple[Tensor, OptTensor]:
        """Sums of neighbours, normalised if the layer says so.

        Args:
            inputs: The call.
            dtype: Of the features that the user passed.
            edges: The edges.
            prepared: What the layer read of itself.
        """
        if not self.normalize or inputs.is_normalised:
            return super().aggregate_edges(inputs, edges, prepared)
        x, edge = inputs.x[0], self.edge_input(inputs, edges)
        # not of x, which may be sparse; degrees are computed in this type
        like = torch.empty(0, dtype=torch.promote_types(dtype, torch.float32), device=x.device)
        hag = self.hag_for(inputs, edges, edge)
        if hag is not None:
            factors = cached_factors(edges, None, like).flatten()
            return hag_aggregate(hag, x, 'sum', factors, factors), None
        if edge is not None and edges.loops is not None:
            edge = EdgeInput(with_remaining_loops(edge.values, edges, self._fill))
        operands, factors = self.operands(inputs.x, edge, edges), cached_factors(edges, edge and edge.values, like)
        program = NORMALISED_NEIGHBOURS if edge is None else NORMALISED_WEIGHTED_NEIGHBOURS
        out, weights = self.run(program, {**operands, 'norm_src': factors, 'norm_dst': factors}, inputs, edges)
        # without edge weights, PyG's factors are of the type of the features
        return out if edge is not None else out.to(torch.promote_types(x.dtype, dtype)), weights

    def why_no_hag(self, edge: EdgeInput | None) -> str | None:
        if edge is None and self.normalize and self.reduction != 'sum':
            return f'aggr={self.aggr!r} of normalised neighbours'
        return super().why_no_hag(edge)

    def _normed_by_pyg(self, inputs: Inputs) -> Inputs:
        """PyG's normalisation: of sparse adjacencies, and where the layer keeps the first one it sees."""
        x, adjacency = inputs.x[0], inputs.adjacency
        # under autocast the factors decide the type of the output
        dtype = x.dtype if autocast.is_on(x.device) else torch.promote_types(x.dtype, torch.float32)
        is_tensor = isinstance(adjacency, Tensor)
        kept = self._cached_edge_index if is_tensor else self._cached_adj_t
        if kept is None:
            kept = prepared_norms(
                adjacency, inputs.edge, x.shape[0], self.improved, self.add_self_loops, self.flow, dtype=dtype
            )
            if self.cached and is_tensor:
                self._cached_edge_index = kept
            elif self.cached:
                self._cached_adj_t = kept
        normed, weight = kept if is_tensor else (kept, None)
        return inputs._replace(adjacency=normed, edge=weight, is_normalised=True)


# sums of normalised neighbours
_NORMALISED = NORMALISED, NORMALISED_WITH_LOOPS


def _are_summed_as_they_are(kept: tuple[Any, Any] | None, x: Tensor) -> bool:
    """Whether edges that a layer keeps, and their weights, are what a sum of few edges takes."""
    if kept is None:
        return False
    edge_index, weight = kept
    is_plain = type(edge_index) is Tensor and type(weight) is Tensor and weight.dtype is x.dtype
    return is_plain and not weight.requires_grad and weight.dim() == 1 and weight.is_contiguous()
