"""Layers in which a linear map meets a sum over edges: which comes first does not matter to the sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import why_not_linear
from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.copies import OverCopies
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import REDUCTIONS, SUMS
from pygfuse.mapping.map_order import AGGREGATE_FIRST, MAP_FIRST, USUAL_DEGREE, MappedSum, cheaper, forced_order
from pygfuse.ops import Edges
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.few_edges.mapped_sums import mapped_sum_along
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import added, added_to
from pygfuse.ops.nodes.linear import Counts, apply_linear, apply_weight
from pygfuse.ops.nodes.several_maps import Map, apply_both, bias_of_both, maps_of_rows
from pygfuse.ops.sparse_features import SparseFeatures
from pygfuse.ops.within_torch import autocast
from pygfuse.ops.within_torch.intercepted import is_intercepted
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.program import SOURCE

# so few edges are summed before the orders are compared
_FEW_EDGES = 1024
# rows and edges that stand for those that are not known while something traces
_ROWS, _EDGES = 1000, 1000 * USUAL_DEGREE


class MappedSums(OverCopies):
    """A mixin for layers that map what they have aggregated, or aggregate what they have mapped: what costs less."""

    # the layer's attributes that hold the map, and that of the targets themselves
    sums_mapped_by: ClassVar[str]
    root_mapped_by: ClassVar[str]

    def has_root(self) -> bool:
        """Whether the layer adds its targets, mapped by themselves."""
        return True

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        linear, (source, target) = self._modules[self.sums_mapped_by], inputs.x
        if order_of(self, linear, inputs, edges) == AGGREGATE_FIRST:
            out, weights = super().aggregate_edges(inputs, edges, prepared)
            return self.mapped_with_root(out, target), weights
        root = self._modules[self.root_mapped_by] if self.has_root() else None
        if root is None or target is not source or not _is_like(root, linear):
            mapped = mapped_sources(linear.weight, source, edges)
            out, weights = super().aggregate_edges(inputs._replace(x=(mapped, None)), edges, prepared)
            out = out if linear.bias is None else added_to(out, linear.bias)
            is_added = root is not None and target is not None
            return added(out, apply_linear(root, target)) if is_added else out, weights
        maps = Map(linear.weight, None, as_sources(edges, source)), Map(root.weight, bias_of_both(linear, root))
        mapped, of_root = maps_of_rows(source, maps)
        out, weights = super().aggregate_edges(inputs._replace(x=(mapped, None)), edges, prepared)
        return added_to(out, of_root), weights

    def form_of_few(self, x: Tensor | NodePair, prepared: Any) -> str | None:
        return self.reduction if self.reduction in SUMS else None

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        maps = (self.sums_mapped_by, self.root_mapped_by) if self.has_root() else (self.sums_mapped_by,)
        form = Form(
            *(NEIGHBOURS, {'x': (Part(SOURCE),)}, 1, x[0].shape[1]), reduce=self.reduction, mapped_by=0,
            root=1 if self.has_root() else None,
        )  # fmt: skip
        return FewWalk(form, maps)

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> OptTensor:
        linear, root = self._modules[self.sums_mapped_by], None
        if self.has_root():
            root = self._modules[self.root_mapped_by]
        if type(form) is FewWalk:
            # a bias of targets is none of the result's
            is_taken = root is None or root._parameters.get('bias') is None
            out = self.walk_few(x, edges, form) if is_taken else None
            return None if out is None else self.finish(out, x, None)
        return self.finish(mapped_sum_along(linear, x, edges, form, root=root), x, None)

    def after_sums(self, sums: Tensor, x: Tensor) -> Tensor:
        out = self._modules[self.sums_mapped_by](sums)
        return out + self._modules[self.root_mapped_by](x) if self.has_root() else out

    def mapped_with_root(self, out: Tensor, target: OptTensor) -> Tensor:
        """Sums, mapped, and, if the layer adds them, mapped targets."""
        linear = self._modules[self.sums_mapped_by]
        if target is None or not self.has_root():
            return apply_linear(linear, out)
        return apply_both(linear, out, self._modules[self.root_mapped_by], target)


def _is_like(linear: Module, other: Module) -> bool:
    """Whether a module is a linear map, of the type of another."""
    weight, like = linear._parameters.get('weight'), other._parameters.get('weight')
    if weight is None or like is None or why_not_linear(linear, 'it') is not None:
        return False
    return weight.dtype is like.dtype and weight.shape[1:] == like.shape[1:]


def mapped_sources(weight: Tensor, x: Tensor, edges: Edges) -> Tensor:
    """Features of sources times the weight of a map that PyG's layer applies to their sums.

    Args:
        weight: The weight.
        x: The features.
        edges: The edges, without which a source is nowhere in a sum.
    """
    return apply_weight(x, weight, counts=as_sources(edges, x))


def as_sources(edges: Edges, x: Tensor) -> Counts | None:
    """Gives the number of edges that each node is a source of; None where something compiles."""
    return None if torch.compiler.is_compiling() else counts_of(edges, x)[1]


def order_of(conv: FusedConv, linear: Module, inputs: Inputs, edges: Edges, usual: str = AGGREGATE_FIRST) -> str:
    """Whether a layer maps its features before it aggregates them or after it.

    Args:
        conv: The layer.
        linear: What maps them.
        inputs: The call.
        edges: Its edges.
        usual: The order of PyG's layer.
    """
    if not has_a_choice(inputs, edges):
        return usual
    x, aggr, forced = inputs.x[0], conv.aggr, forced_order()
    if not isinstance(aggr, str) or REDUCTIONS.get(aggr) not in SUMS or why_not_linear(linear, 'it') is not None:
        return usual
    if isinstance(x, SparseFeatures):
        # an aggregation would make them dense
        return MAP_FIRST
    if usual == MAP_FIRST and linear._parameters.get('bias', linear) is not None:
        # a bias would be summed, too
        return usual
    weight = linear._parameters.get('weight')
    # of a parametrised map each read computes the weight
    dtype = x.dtype if weight is None else weight.dtype
    if dtype is not x.dtype or dtype not in (torch.float32, torch.float64) or autocast.is_on(x.device):
        return usual
    if forced is not None or is_deferring():
        return forced or usual
    return cheaper(_work(linear, weight, inputs, edges), usual)


def has_a_choice(inputs: Inputs, edges: Edges) -> bool:
    """Whether it is worth comparing the orders of a call: of few edges they hardly differ."""
    if isinstance(inputs.x[0], SparseFeatures) or forced_order() is not None or is_intercepted():
        return True
    return edges.num_edges >= _FEW_EDGES


def _work(linear: Module, weight: OptTensor, inputs: Inputs, edges: Edges) -> MappedSum:
    x, trains = inputs.x[0], torch.is_grad_enabled()
    sizes = edges.num_sources, edges.num_targets, edges.num_edges
    if is_intercepted():
        # numbers of nodes and edges may be symbols, which a comparison would bind
        sizes = _ROWS, _ROWS, _EDGES
    return MappedSum(
        *sizes,
        x.shape[1],
        mapped_width(linear),
        x.element_size(),
        trains and x.requires_grad,
        trains and (weight is None or weight.requires_grad),
        trains and inputs.edge is not None and inputs.edge.requires_grad,
    )


def mapped_width(linear: Module) -> int:
    """How wide the rows are that a map gives."""
    weight = linear._parameters.get('weight')
    if weight is not None:
        return weight.shape[0]
    return getattr(linear, 'out_channels', getattr(linear, 'out_features', -1))
