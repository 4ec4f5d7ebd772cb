"""The fused residual gated graph convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    check_features,
    checked_edge_attr,
    nodes_of,
    why_not_map,
    why_not_reduce,
    why_not_reversed,
)
from pygfuse.ops.aggregate import aggregate
from pygfuse.program.library.res_gated import RES_GATED
from pygfuse.program.products import Product

_ACTIVATIONS = {torch.nn.Sigmoid: 'sigmoid', torch.nn.Tanh: 'tanh', torch.nn.ReLU: 'relu'}


class ResGatedGraphConv(FusedConv, torch_geometric.nn.ResGatedGraphConv):
    r"""`torch_geometric.nn.ResGatedGraphConv`, fused: the same parameters, options and numbers.

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
        return reason or why_not_map(self, 'lin_key', 'lin_query', 'lin_value')

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``ResGatedGraphConv.forward``."""
        shared = isinstance(x, Tensor)
        pair = (x, x) if shared else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(edge_index, pair, edge_attr)):
            return super().forward(x, edge_index, edge_attr)
        check_features(self, pair, shared)
        edges, graph = nodes_of(self, pair, edge_index)
        operands: dict[str, Any] = {
            'gate': _of_nodes(self.lin_query, pair[0]),
            'value': _of_nodes(self.lin_value, pair[0]),
            'gate_dst': _of_nodes(self.lin_key, pair[1]),
        }
        if self.edge_dim is not None:
            edge_attr = checked_edge_attr(edge_index, edge_attr, self.edge_dim, edges, graph)
            if edge_attr is None:
                raise ValueError("Expected 'edge_attr' to be given, as the layer has an 'edge_dim' (got None)")
            of_gate = self.lin_key.weight[:, -self.edge_dim :] + self.lin_query.weight[:, -self.edge_dim :]
            operands['gate_edge'] = Product(edge_attr, of_gate.t())
            operands['value_edge'] = Product(edge_attr, self.lin_value.weight[:, -self.edge_dim :].t())
        program = RES_GATED[_ACTIVATIONS[type(self.act)]]
        with self.noted():
            out = aggregate(program, edges, operands, 1, self.out_channels, REDUCTIONS[self.aggr]).flatten(1)
        if self.root_weight:
            out = out + self.lin_skip(pair[1])
        return out if self.bias is None else out + self.bias

    def _why_not_call(self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None) -> str | None:
        reason = self.why_not_with(adjacency, pair, self.lin_key.weight, edge_attr=edge_attr)
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and edge_attr is not None and self.edge_dim is None:
            return 'edge_attr without edge_dim'
        return reason or why_not_reversed(self.flow, pair)


def _of_nodes(linear: Any, x: Tensor) -> Tensor:
    """The part of a linear map of [node, edge] features that concerns the node."""
    return F.linear(x, linear.weight[:, : x.shape[1]], linear.bias)
