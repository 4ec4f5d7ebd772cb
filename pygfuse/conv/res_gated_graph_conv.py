"""The fused residual gated graph convolutional operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import why_not_as_it_is
from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.copies import EachCopy
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.fallback import why_not_maps
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.spec import EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.ops.nodes.linear import Counts, apply_linear, apply_weight
from pygfuse.ops.nodes.several_maps import apply_at_ends
from pygfuse.program.library.res_gated import RES_GATED
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EDGE, SOURCE, TARGET, EdgeProgram

_ACTIVATIONS = {torch.nn.Sigmoid: 'sigmoid', torch.nn.Tanh: 'tanh', torch.nn.ReLU: 'relu'}


class ResGatedGraphConv(EachCopy, torch_geometric.nn.ResGatedGraphConv):
    r"""`torch_geometric.nn.ResGatedGraphConv`, fused: the same parameters, options and numbers.

    From the `"Residual Gated Graph ConvNets" <https://arxiv.org/abs/1711.07553>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \sum_j \sigma (\mathbf{W}_3 \mathbf{x}_i + \mathbf{W}_4
        \mathbf{x}_j) \odot \mathbf{W}_2 \mathbf{x}_j

    The linear maps are taken once a node; their parts for edge features are computed within the walk. The
    gate may be a ``Sigmoid``, ``Tanh`` or ``ReLU``; other activations run PyG's own path.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, act, edge_dim, root_weight, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> conv = ResGatedGraphConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'k': Tensor, 'q': Tensor, 'v': Tensor, 'edge_attr': OptTensor}
    spec = Spec(
        None, edge=EdgeFeatures('edge_dim', required=True), in_channels='in_channels', parameter='lin_key',
        needs_targets=True, static=True, sparse=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``ResGatedGraphConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr)

    def prepare(self) -> str | None:
        act = self.act
        if type(act) not in _ACTIVATIONS:
            return f'the activation {type(act).__name__} has no fused form'
        maps = () if self.edge_dim is None else ('lin_key', 'lin_query', 'lin_value')  # else they are called
        return why_not_as_it_is(act, 'act') or why_not_maps(self, maps)

    def program(self, edge: EdgeInput | None) -> EdgeProgram:
        return RES_GATED[_ACTIVATIONS[type(self.act)]]

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        if edge is None:
            gate_dst, gate, value = apply_at_ends(self.lin_key, (self.lin_query, self.lin_value), x)
            return {'gate': gate, 'value': value, 'gate_dst': gate_dst}
        # PyG's maps are of edges where these have features
        as_dst, as_src = counts_of(edges, x[0])
        gate_dst, of_key = _taken_apart(self.lin_key, x[1], self.edge_dim, as_dst)
        gate, of_query = _taken_apart(self.lin_query, x[0], self.edge_dim, as_src)
        value, of_value = _taken_apart(self.lin_value, x[0], self.edge_dim, as_src)
        of_edges = {'gate_edge': edge.times((of_key + of_query).t()), 'value_edge': edge.times(of_value.t())}
        return {'gate': gate, 'value': value, 'gate_dst': gate_dst, **of_edges}

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        widths, of_edges = (x[1].shape[1], x[0].shape[1]), features is not None
        dst, src = ((0, width) if of_edges else None for width in widths)
        made = {
            'gate_dst': (Part(TARGET, 0, dst),),
            'gate': (Part(SOURCE, 1, src),),
            'value': (Part(SOURCE, 2, src),),
        }
        if of_edges:
            key, query, value = (
                Part(EDGE, place, (width, self.edge_dim), biased=False)
                for place, width in enumerate((widths[0], widths[1], widths[1]))
            )
            made |= {'gate_edge': (key, query), 'value_edge': (value,)}
        others = ('lin_skip',) if self.root_weight else ()
        others = (*others, 'bias') if self.has_bias() else others
        maps = 'lin_key', 'lin_query', 'lin_value', *others
        added = tuple(Part(TARGET if name == 'lin_skip' else None, place) for place, name in enumerate(others, 3))
        channels = self.out_channels
        form = Form(self.program(None), made, 1, channels, reduce=self.reduction, added=added, of_edges=of_edges)
        return FewWalk(form, maps, takes_features=of_edges)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        if not self.root_weight:
            return self.with_bias(out)
        return self.with_bias(added_to(out, apply_linear(self.lin_skip, x[1])))


def _taken_apart(linear: Any, x: Tensor, edge_dim: int, counts: Counts) -> tuple[Tensor, Tensor]:
    """A linear map of [node, edge] features: what it makes of the nodes', and its weight for the edges'."""
    weight = linear.weight
    return apply_weight(x, weight[:, : x.shape[1]], linear.bias, counts), weight[:, -edge_dim:]
