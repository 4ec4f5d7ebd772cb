"""The fused graph transformer operator."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pygfuse import autocast
from pygfuse.aggregate import new_seed
from pygfuse.conv.attention import attend, attention_in_order, attention_result
from pygfuse.conv.fused import (
    REDUCTIONS,
    FusedConv,
    check_features,
    edge_map,
    nodes_of,
    pair_of,
    why_not_map,
    why_not_reduce,
    why_not_reversed,
)
from pygfuse.hooks import some_parameter
from pygfuse.linear import apply_linear
from pygfuse.products import Product
from pygfuse.programs.transformer import TRANSFORMER


class TransformerConv(FusedConv, torch_geometric.nn.TransformerConv):
    r"""`torch_geometric.nn.TransformerConv`, fused: the same parameters, options and numbers.

    From the `"Masked Label Prediction: Unified Message Passing Model for Semi-Supervised Classification"
    <https://arxiv.org/abs/2009.03509>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \sum_j \alpha_{ij} \left( \mathbf{W}_2 \mathbf{x}_j +
        \mathbf{W}_6 \mathbf{e}_{ij} \right), \quad \alpha_{ij} = \underset{j}{\mathrm{softmax}} \;
        \frac{(\mathbf{W}_3 \mathbf{x}_i)^{\top} (\mathbf{W}_4 \mathbf{x}_j + \mathbf{W}_6 \mathbf{e}_{ij})}{\sqrt{d}}

    Queries, keys and values are computed once a node; the edge's linear map, the dot, the softmax and the sum are one
    walk over the edges, which backward recomputes.

    Args:
        in_channels, out_channels, heads, concat, beta, dropout, edge_dim, bias, root_weight: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> conv = TransformerConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'query': Tensor, 'key': Tensor, 'value': Tensor, 'edge_attr': OptTensor}
    runs_under_autocast: ClassVar = True
    node_dims: ClassVar = (0,)

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean')) or why_not_map(self, 'lin_edge')

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Runs the layer; arguments and results are those of PyG's ``TransformerConv.forward``."""
        shared = isinstance(x, Tensor)
        pair = pair_of(x)
        if not self.note(self._why_not_call(edge_index, pair, edge_attr, return_attention_weights)):
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        check_features(self, pair, shared)
        shape = (-1, self.heads, self.out_channels)
        edges, graph = nodes_of(self, pair, edge_index)
        dropout = self.dropout if self.training else 0.0
        query = apply_linear(self.lin_query, pair[1]).view(shape)
        if query.is_cuda and autocast.is_on(query.device):
            query = query.float()  # there torch sums the dots in float32, and what they weigh is float32 again
        key = apply_linear(self.lin_key, pair[0]).view(shape)
        value = apply_linear(self.lin_value, pair[0]).view(shape)
        edge = None
        if self.lin_edge is not None:
            parts = edge_map(self.lin_edge, edge_index, edge_attr, edges, graph)
            if parts is None:
                raise ValueError("Expected 'edge_attr' to be given, as the layer has an 'edge_dim' (got None)")
            features, weight, bias = parts
            edge = Product(features, weight)
            if bias is not None:
                bias = bias.to(key.dtype).view(shape)
                key, value = key + bias, value + bias
        operands = {'query': query / math.sqrt(self.out_channels), 'key': key, 'value': value, 'edge': edge}
        arguments = (
            *(TRANSFORMER, edges, operands, self.heads, self.out_channels),
            *(REDUCTIONS[self.aggr], dropout, new_seed(pair[0]) if dropout > 0.0 else None),
        )
        out, weights = attend(*arguments, with_weights=return_attention_weights is not None)
        out = out.to(query.dtype)  # under autocast, what belongs to edges is more precise than PyG's
        out = self._with_root(out.flatten(1) if self.concat else out.mean(dim=1), pair[1])
        if weights is None:
            return out
        # before dropout and, with a torch.sparse matrix, beside it, as in PyG
        alpha = attention_in_order(graph, weights)
        if is_torch_sparse_tensor(edge_index):
            return out, (edge_index, alpha)
        return attention_result(out, edge_index, graph, alpha)

    def _with_root(self, out: Tensor, x_dst: Tensor) -> Tensor:
        if not self.root_weight:
            return out
        root = apply_linear(self.lin_skip, x_dst)
        if self.lin_beta is None:
            return out + root
        beta = self.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
        return beta * root + (1 - beta) * out

    def _why_not_call(
        self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None, weights: bool | None
    ) -> str | None:
        reason = self.why_not_with(adjacency, pair, some_parameter(self.lin_key), edge_attr=edge_attr)
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and weights is not None and torch.compiler.is_compiling():
            return 'return_attention_weights while torch compiles'
        if reason is None and edge_attr is not None and self.lin_edge is None:
            return 'edge_attr without edge_dim'
        return reason or why_not_reversed(self.flow, pair)
