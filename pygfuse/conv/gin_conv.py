"""The fused graph isomorphism operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn import Module
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse._lib.backends import row_search_of
from pygfuse._lib.hooks import weight_and_bias, why_not_as_it_is, why_not_linear
from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.copies import EachCopy, OverCopies
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.map_first import has_a_choice, mapped_sources, mapped_width, order_of
from pygfuse.conv._layer.spec import SUMS, EdgeFeatures, EdgeWeight, Spec
from pygfuse.mapping.map_order import AGGREGATE_FIRST
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.mapped_sums import mapped_sum_along
from pygfuse.ops.few_edges.sums import FewEdges, sum_along
from pygfuse.ops.mapped_walk import Form, Part, Weights
from pygfuse.ops.nodes.large_sums import added_to, total
from pygfuse.ops.nodes.linear import apply_linear, apply_weight, are_many_rows
from pygfuse.program.library.gine import GINE
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EDGE, SOURCE


class GINConv(OverCopies, torch_geometric.nn.GINConv):
    r"""`torch_geometric.nn.GINConv`, fused: the same parameters, options and numbers.

    From the `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = h \left( (1 + \epsilon) \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)} \mathbf{x}_j \right)

    Args:
        nn, eps, train_eps: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GINConv(torch.nn.Linear(16, 8))
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor}
    spec = Spec(
        NEIGHBOURS, edge=EdgeWeight(WEIGHTED_NEIGHBOURS, of_sparse_tensor=False), static=True, matrix=True, hag=True,
        autocast=True, sparse=True, saves_rows=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GINConv.forward``."""
        return self.fused(x, edge_index, size=size)

    def form_of_few(self, x: Tensor | NodePair, prepared: Any) -> str | None:
        return self.reduction if self.reduction in SUMS else None

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> Tensor:
        source, target = x
        # a parametrised one is computed each time it is read
        eps = None if target is None else self.eps
        itself = _number_of_times(eps, source) if target is source else None
        if target is None or itself is not None:
            first, *others = _stages(self._modules['nn'])
            return _through(others, mapped_sum_along(first, (source, None), edges, form, itself=itself))
        return self.nn(sum_along(source, edges, form) + _times_one_plus(eps, target))

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        first = _first_map(self.nn, inputs.x[0].shape[1]) if has_a_choice(inputs, edges) else None
        if first is None or order_of(self, first, inputs, edges) == AGGREGATE_FIRST:
            out, weights = super().aggregate_edges(inputs, edges, prepared)
            return _with_itself(self, out, inputs.x[1]), weights
        source, target = _both_mapped(inputs, edges, first.weight)
        out, weights = super().aggregate_edges(inputs._replace(x=(source, target)), edges, prepared)
        return total(_with_itself(self, out, target), first.bias), weights

    def after_sums(self, sums: Tensor, x: Tensor) -> Tensor:
        return self.nn(sums + (1 + self.eps) * x)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        # rows of another width are those that the first map has given
        return _network(self.nn, out) if out.shape[1] == x[0].shape[1] else _after_first_map(self.nn, out)


def _first_map(nn: Module, width: int) -> Module | None:
    """The linear map with which a network begins, if it gives rows of another width and nobody sees the rows before."""
    stages = _stages(nn)
    if not stages or why_not_linear(stages[0], 'nn') is not None or mapped_width(stages[0]) == width:
        return None
    return stages[0]


def _stages(nn: Module) -> list[Module]:
    """The modules that a network calls one after another; itself, if somebody would see that it is not called."""
    is_sequential = type(nn).forward is torch.nn.Sequential.forward and why_not_as_it_is(nn, 'nn') is None
    return (list(nn) or [nn]) if is_sequential else [nn]


def _network(nn: Module, out: Tensor) -> Tensor:
    """``nn(out)``; of many nodes linear maps as those of other layers."""
    return _through(_stages(nn), out) if are_many_rows(out) else nn(out)


def _after_first_map(nn: Module, out: Tensor) -> Tensor:
    return _through(_stages(nn)[1:], out)


def _through(stages: Sequence[Module], out: Tensor) -> Tensor:
    are_many = len(stages) > 0 and are_many_rows(out)
    for module in stages:
        out = apply_linear(module, out) if are_many else module(out)
    return out


def _both_mapped(inputs: Inputs, edges: Edges, weight: Tensor) -> tuple[Tensor, OptTensor]:
    """Features of sources and targets times a weight; where they are the same, once."""
    source, target = inputs.x
    if target is source:
        # a node that has no edge is mapped for itself
        both = apply_weight(source, weight)
        return both, both
    return mapped_sources(weight, source, edges), None if target is None else apply_weight(target, weight)


def _with_itself(conv: Module, out: Tensor, x: OptTensor) -> Tensor:
    """Sums of neighbours and, if there are targets, one and `eps` times themselves."""
    # a parametrised `eps` is computed each time it is read
    return out if x is None else added_to(out, _times_one_plus(conv.eps, x))


def _times_one_plus(eps: Tensor, x: Tensor) -> Tensor:
    """``(1 + eps) * x``: the features themselves where `eps` is 0 and not learned, and nobody waits for the answer."""
    is_number = type(eps) is Tensor and not eps.requires_grad and eps.dtype is x.dtype and eps.numel() == 1
    if is_number and not torch.compiler.is_compiling() and not row_search_of(eps.device).SYNCHRONISES:
        return x if float(eps) == 0.0 else (1 + eps) * x
    return (1 + eps) * x


def _number_of_times(eps: Tensor, x: Tensor) -> float | None:
    """How many times features are added to their sum, if that is a number: not learned and of their type."""
    if type(eps) is not Tensor or eps.requires_grad or eps.dtype is not x.dtype or eps.numel() != 1:
        return None
    return 1.0 + eps.item()


class GINEConv(EachCopy, torch_geometric.nn.GINEConv):
    r"""`torch_geometric.nn.GINEConv`, fused: the same parameters, options and numbers.

    From the `"Strategies for Pre-training Graph Neural Networks" <https://arxiv.org/abs/1905.12265>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = h \left( (1 + \epsilon) \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)} \mathrm{ReLU}
        (\mathbf{x}_j + \mathbf{W} \mathbf{e}_{ji} + \mathbf{b}) \right)

    With ``edge_dim`` the edge's linear map is computed within the walk.

    Args:
        nn, eps, train_eps, edge_dim: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GINEConv(torch.nn.Linear(16, 8), edge_dim=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}
    spec = Spec(
        GINE, edge=EdgeFeatures('edge_dim', 'lin', required=True), maps=('lin',), static=True, matrix=True,
        saves_rows=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GINEConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr, size=size)

    def edge_width(self, x: NodePair) -> int | None:
        return x[0].shape[1] if self.lin is None else super().edge_width(x)

    def operands(self, x: NodePair, edge: EdgeInput, edges: Edges) -> dict[str, OperandValue]:
        if self.lin is None:
            return {'x': x[0], 'edge': edge.values}
        weight, bias = self.lin.weight, self.lin.bias
        if weight.shape[0] != x[0].shape[1]:
            raise ValueError(
                f"Expected 'x' to have {weight.shape[0]} features, as the linear map of edges gives (got shape "
                f'{list(x[0].shape)})'
            )
        # the bias goes to the nodes
        return {'x': x[0] if bias is None else x[0] + bias, 'edge': edge.times(weight.t())}

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        if features is None:
            return None
        made, maps = {'x': (Part(SOURCE),), 'edge': (Part(EDGE),)}, []
        linear = None if self.lin is None else weight_and_bias(self.lin)
        if linear is not None and linear[0].shape[0] != x[0].shape[1]:
            # `operands` says so
            return None
        if self.lin is not None:
            # the bias goes to the nodes
            made = {'x': (Part(SOURCE), Part(None, 0)), 'edge': (Part(EDGE, 0, biased=False),)}
            maps.append('lin')
        # what a learned number of times features are added is no part of the walk, so the network comes after it
        is_learned = self._buffers.get('eps') is None
        first = _stages(self.nn)[0]
        mapped_by = None if is_learned or weight_and_bias(first) is None else len(maps)
        maps += [] if mapped_by is None else ['nn' if first is self.nn else 'nn.0']
        form = Form(GINE, made, 1, x[0].shape[1], reduce=self.reduction, mapped_by=mapped_by)
        return FewWalk(form, tuple(maps), takes_features=True)

    def map_of_few(self, name: str) -> Weights | None:
        # with which a network of several modules begins
        return weight_and_bias(_stages(self._modules['nn'])[0])

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> OptTensor:
        eps = self._buffers.get('eps')
        if eps is None:
            # learned, or computed each time it is read
            out = self.walk_few(x, edges, form)
            return None if out is None else self.nn(out + _times_one_plus(self.eps, x[1]))
        itself = _number_of_times(eps, x[1])
        if itself is None:
            return None
        out = self.walk_few(x, edges, form, itself=itself)
        # behind a network of one map comes nothing
        if out is None or form.maps[-1:] == ('nn',):
            return out
        stages = _stages(self._modules['nn'])
        return _through(stages if form.form.mapped_by is None else stages[1:], out)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return _network(self.nn, _with_itself(self, out, x[1]))
