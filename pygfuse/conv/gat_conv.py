"""The fused graph attention operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse._lib.modes import modes
from pygfuse.conv._attention import attend, attention_in_order, attention_result, head_products
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
from pygfuse.graph.graph import Graph
from pygfuse.ops.aggregate import Edges, new_seed
from pygfuse.ops.linear import apply_linear
from pygfuse.program.library.gat import GAT, UNREORGANISED_GAT
from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram


class GATConv(FusedConv, torch_geometric.nn.GATConv):
    r"""`torch_geometric.nn.GATConv`, fused: the same parameters, options and numbers, in less time and memory.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{\Theta} \mathbf{x}_j,
        \quad \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \mathrm{LeakyReLU} \left(
        \mathbf{a}^{\top}_s \mathbf{\Theta} \mathbf{x}_j + \mathbf{a}^{\top}_t \mathbf{\Theta} \mathbf{x}_i
        + \mathbf{a}^{\top}_e \mathbf{\Theta}_e \mathbf{e}_{ij} \right)

    The products with the attention vectors are taken once a node (operator reorganisation, "Understanding GNN
    Computational Graph", section 4); the edge term is :math:`\mathbf{e}_{ij}` times one matrix of shape
    :math:`(D, H)`. Scores, softmax and sum are one walk over the edges; backward recomputes them. Saved for backward
    are the inputs, the output and one log-sum-exp per node and head.

    Args:
        in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value, bias,
            residual: As in PyG.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or
          :math:`((|\mathcal{V}_s|, F_s), (|\mathcal{V}_t|, F_t))`, any adjacency that PyG takes, edge features
          :math:`(|\mathcal{E}|, D)` *(optional)*
        - **output:** :math:`(|\mathcal{V}_t|, H \cdot F_{out})`, or :math:`(|\mathcal{V}_t|, F_{out})` without
          ``concat``; with ``return_attention_weights`` what PyG returns

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected; the message says which, and what it was.

    Example:
        >>> conv = GATConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'alpha': Tensor}
    edge_updater_type: ClassVar = {'alpha': OptPairTensor, 'edge_attr': OptTensor}
    runs_under_autocast: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean')) or why_not_map(self, 'lin_edge')

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Runs the layer; arguments and results are those of PyG's ``GATConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(pair, edge_index, edge_attr, size, return_attention_weights)):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        check_features(self, pair, shared=isinstance(x, Tensor))
        # first, as in PyG: lazy layers draw in this order
        res = None if self.res is None or pair[1] is None else self.res(pair[1])
        x_src, x_dst = self._transform(pair, shared=isinstance(x, Tensor))
        edges, graph = nodes_of(self, (x_src, x_dst), edge_index, size, self.add_self_loops)
        edge = self._edge_operand(edge_index, edge_attr, edges, graph)
        dropout = self.dropout if self.training else 0.0
        seed = new_seed(x_src) if dropout > 0.0 else None
        arguments = (
            *self._program(x_src, x_dst, edge, edges),
            *(self.heads, self.out_channels, REDUCTIONS[self.aggr], dropout, seed),
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
        self,
        pair: tuple[Tensor, Tensor | None],
        adjacency: Any,
        edge_attr: Tensor | None,
        size: tuple[int, int] | None,
        weights: bool | None,
    ) -> str | None:
        reason = self.why_not_with(
            adjacency, pair, self.att_src, edge_attr=None if self.lin_edge is None else edge_attr
        )
        reason = reason or why_not_reversed(self.flow, pair, size)
        if reason is None and weights and torch.compiler.is_compiling():
            return 'return_attention_weights while torch compiles'
        if reason is None and self.lin_edge is not None and self.add_self_loops and not is_edge_index(adjacency):
            return 'edge features of self-loops need an edge_index'
        return reason

    def _transform(self, pair: tuple[Tensor, Tensor | None], shared: bool) -> tuple[Tensor, Tensor | None]:
        shape = (-1, self.heads, self.out_channels)
        if self.lin is not None:
            x_src = apply_linear(self.lin, pair[0]).view(shape)
            if shared:
                return x_src, x_src
            return x_src, None if pair[1] is None else apply_linear(self.lin, pair[1]).view(shape)
        x_src = apply_linear(self.lin_src, pair[0]).view(shape)
        return x_src, None if pair[1] is None else apply_linear(self.lin_dst, pair[1]).view(shape)

    def _program(
        self, x_src: Tensor, x_dst: Tensor | None, edge: Product | None, edges: Edges
    ) -> tuple[EdgeProgram, Edges, dict[str, Any]]:
        operands: dict[str, Any] = {'x': x_src, 'negative_slope': float(self.negative_slope)}
        if not modes().reorganisation:
            operands |= {'x_dst': x_dst, 'edge': edge, 'att_src': self.att_src, 'att_dst': self.att_dst}
            operands['att_edge'] = None if edge is None else self.att_edge
            return UNREORGANISED_GAT, edges, operands
        if x_dst is x_src:
            operands['alpha_src'], operands['alpha_dst'] = head_products(x_src, self.att_src, self.att_dst)
        else:
            (operands['alpha_src'],) = head_products(x_src, self.att_src)
            (operands['alpha_dst'],) = [None] if x_dst is None else head_products(x_dst, self.att_dst)
        if edge is not None:
            weight = edge.weight.view(-1, self.heads, self.out_channels)
            operands['alpha_edge'] = edge._replace(weight=(weight * self.att_edge).sum(dim=-1))
        return GAT, edges, operands

    def _edge_operand(
        self, adjacency: Any, edge_attr: Tensor | None, edges: Edges, graph: Graph | None
    ) -> Product | None:
        """Edge features times their weight; nothing of edges x heads x channels is made."""
        if self.lin_edge is None:
            return None
        edge_attr = checked_edge_attr(adjacency, edge_attr, self.edge_dim, edges, graph)
        if edge_attr is None:
            return None
        return Product(edge_attr, self.lin_edge.weight.t(), loop_values(edge_attr, self.fill_value, edges))
