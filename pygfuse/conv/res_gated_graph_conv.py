"""The fused residual gated graph convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import some_parameter, why_not_as_it_is
from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    check_features,
    checked_edge_attr,
    nodes_of,
    pair_of,
    why_not_map,
    why_not_reduce,
    why_not_reversed,
)
from pygfuse.ops.aggregate import aggregate
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.linear import Counts, apply_weight
from pygfuse.program.library.res_gated import RES_GATED
from pygfuse.program.products import Product

_ACTIVATIONS = {torch.nn.Sigmoid: 'sigmoid', torch.nn.Tanh: 'tanh', torch.nn.ReLU: 'relu'}


class ResGatedGraphConv(FusedConv, torch_geometric.nn.ResGatedGraphConv):
    r"""`torch_geometric.nn.ResGatedGraphConv`, fused: the same parameters, options and numbers.

    From the `"Residual Gated Graph ConvNets" <https://arxiv.org/abs/1711.07553>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \sum_j \sigma (\mathbf{W}_3 \mathbf{x}_i + \mathbf{W}_4
        \mathbf{x}_j) \odot \mathbf{W}_2 \mathbf{x}_j

    The linear maps are taken once a node; their parts for edge features are computed edge by edge in registers. The
    gate may be a ``Sigmoid``, ``Tanh`` or ``ReLU``; other activations run PyG's own path.

    Args:
        in_channels, out_channels, act, edge_dim, root_weight, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> conv = ResGatedGraphConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'k': Tensor, 'q': Tensor, 'v': Tensor, 'edge_attr': OptTensor}

    def why_not(self) -> str | None:
        reason = super().why_not() or why_not_reduce(self.aggr)
        if reason is None and type(self.act) not in _ACTIVATIONS:
            return f'the activation {type(self.act).__name__} has no fused form'
        reason = reason or why_not_as_it_is(self.act, 'act')
        if self.edge_dim is None:  # the maps are called
            return reason
        return reason or why_not_map(self, 'lin_key', 'lin_query', 'lin_value')

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``ResGatedGraphConv.forward``."""
        shared = isinstance(x, Tensor)
        pair = pair_of(x)
        if not self.note(self._why_not_call(edge_index, pair, edge_attr)):
            return super().forward(x, edge_index, edge_attr)
        check_features(self, pair, shared)
        edges, graph = nodes_of(self, pair, edge_index)
        operands: dict[str, Any] = {}
        if self.edge_dim is None:
            operands['gate_dst'] = self.lin_key(pair[1])
            operands['gate'], operands['value'] = self.lin_query(pair[0]), self.lin_value(pair[0])
        else:
            # PyG's maps are of edges where these have features
            as_dst, as_src = counts_of(edges, pair[0])
            edge_attr = checked_edge_attr(edge_index, edge_attr, self.edge_dim, edges, graph)
            if edge_attr is None:
                raise ValueError("Expected 'edge_attr' to be given, as the layer has an 'edge_dim' (got None)")
            operands['gate_dst'], of_key = _taken_apart(self.lin_key, pair[1], self.edge_dim, as_dst)
            operands['gate'], of_query = _taken_apart(self.lin_query, pair[0], self.edge_dim, as_src)
            operands['value'], of_value = _taken_apart(self.lin_value, pair[0], self.edge_dim, as_src)
            operands['gate_edge'] = Product(edge_attr, (of_key + of_query).t())
            operands['value_edge'] = Product(edge_attr, of_value.t())
        program, width = RES_GATED[_ACTIVATIONS[type(self.act)]], operands['value'].shape[1]
        out = aggregate(program, edges, operands, 1, width, REDUCTIONS[self.aggr]).flatten(1)
        if self.root_weight:
            out = out + self.lin_skip(pair[1])
        return out if self.bias is None else out + self.bias

    def _why_not_call(self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None) -> str | None:
        reason = self.why_not_with(adjacency, pair, some_parameter(self.lin_key), edge_attr=edge_attr)
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and edge_attr is not None and self.edge_dim is None:
            return 'edge_attr without edge_dim'
        return reason or why_not_reversed(self.flow, pair)


def _taken_apart(linear: Any, x: Tensor, edge_dim: int, counts: Counts) -> tuple[Tensor, Tensor]:
    """A linear map of [node, edge] features: what it makes of the nodes', and its weight for the edges'."""
    weight = linear.weight
    return apply_weight(x, weight[:, : x.shape[1]], linear.bias, counts), weight[:, -edge_dim:]
