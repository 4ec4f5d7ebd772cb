"""The fused dynamic graph attention operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from pygfuse.conv._attention import attend, attention_in_order, attention_result
from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    check_features,
    checked_edge_attr,
    is_edge_index,
    nodes_of,
    why_not_map,
    why_not_reduce,
    why_not_reversed,
)
from pygfuse.conv._self_loops import loop_values
from pygfuse.ops.aggregate import new_seed
from pygfuse.ops.linear import apply_linear
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.products import Product


class GATv2Conv(FusedConv, torch_geometric.nn.GATv2Conv):
    r"""`torch_geometric.nn.GATv2Conv`, fused: the same parameters, options and numbers, in less time and memory.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_j \alpha_{ij} \mathbf{\Theta}_s \mathbf{x}_j, \quad
        \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \mathbf{a}^{\top} \mathrm{LeakyReLU} \left(
        \mathbf{\Theta}_s \mathbf{x}_j + \mathbf{\Theta}_t \mathbf{x}_i + \mathbf{\Theta}_e \mathbf{e}_{ij} \right)

    The linear maps of nodes are taken once a node; what is nonlinear in both ends, the edge's linear map included, is
    computed edge by edge in registers, and again in backward.

    Args:
        in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value, bias,
            share_weights, residual: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> conv = GATv2Conv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'x': PairTensor, 'alpha': Tensor}
    edge_updater_type: ClassVar = {'x': PairTensor, 'edge_attr': OptTensor}
    runs_under_autocast: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean')) or why_not_map(self, 'lin_edge')

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Runs the layer; arguments and results are those of PyG's ``GATv2Conv.forward``."""
        shared = isinstance(x, Tensor)
        pair = (x, x) if shared else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(pair, edge_index, edge_attr, return_attention_weights)):
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        check_features(self, pair, shared)
        res = None if self.res is None else self.res(pair[1])  # first, as in PyG: lazy layers draw in this order
        shape = (-1, self.heads, self.out_channels)
        x_src = apply_linear(self.lin_l, pair[0]).view(shape)
        x_dst = x_src if shared and self.share_weights else apply_linear(self.lin_r, pair[1]).view(shape)
        edges, graph = nodes_of(self, (x_src, x_dst), edge_index, None, self.add_self_loops)
        edge = None
        if self.lin_edge is not None:
            edge_attr = checked_edge_attr(edge_index, edge_attr, self.edge_dim, edges, graph)
            if edge_attr is not None:
                loops = loop_values(edge_attr, self.fill_value, edges)
                edge = Product(edge_attr, self.lin_edge.weight.t(), loops)
        dropout = self.dropout if self.training else 0.0
        seed = new_seed(x_src) if dropout > 0.0 else None
        operands = {'x': x_src, 'x_dst': x_dst, 'edge': edge, 'att': self.att}
        operands['negative_slope'] = float(self.negative_slope)
        arguments = (
            *(GATV2, edges, operands, self.heads, self.out_channels),
            *(REDUCTIONS[self.aggr], dropout, seed),
        )
        with self.noted():
            out, weights = attend(*arguments, with_weights=bool(return_attention_weights))
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if res is not None:
            out = out + res
        if self.bias is not None:
            out = out + self.bias
        if weights is None:
            return out
        return attention_result(out, edge_index, graph, attention_in_order(graph, weights, dropout, seed))

    def _why_not_call(
        self, pair: tuple[Tensor, Tensor | None], adjacency: Any, edge_attr: Tensor | None, weights: bool | None
    ) -> str | None:
        reason = self.why_not_with(adjacency, pair, self.att, edge_attr=edge_attr)
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and weights and torch.compiler.is_compiling():
            return 'return_attention_weights while torch compiles'
        reason = reason or why_not_reversed(self.flow, pair)
        if reason is None and edge_attr is not None and self.lin_edge is None:
            return 'edge_attr without edge_dim'
        if reason is None and self.lin_edge is not None and self.add_self_loops and not is_edge_index(adjacency):
            return 'edge features of self-loops need an edge_index'
        return reason
