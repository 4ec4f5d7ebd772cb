"""The fused graph attention operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse._lib.modes import modes
from pygfuse.conv._layer.attention import both_head_products, unreorganised_operands
from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.heads import AttentionConv
from pygfuse.conv._layer.spec import AFTER_DROPOUT, SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import total
from pygfuse.program.library.gat import GAT, UNREORGANISED_GAT
from pygfuse.program.products import OperandValue
from pygfuse.program.program import SOURCE, EdgeProgram


class GATConv(AttentionConv, torch_geometric.nn.GATConv):
    r"""`torch_geometric.nn.GATConv`, fused: the same parameters, options and numbers, in less time and memory.

    From the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{\Theta} \mathbf{x}_j,
        \quad \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \mathrm{LeakyReLU} \left(
        \mathbf{a}^{\top}_s \mathbf{\Theta} \mathbf{x}_j + \mathbf{a}^{\top}_t \mathbf{\Theta} \mathbf{x}_i
        + \mathbf{a}^{\top}_e \mathbf{\Theta}_e \mathbf{e}_{ij} \right)

    The products with the attention vectors are taken once a node (operator reorganisation, "Understanding GNN
    Computational Graph", section 4); the edge term is :math:`\mathbf{e}_{ij}` times one matrix of shape
    :math:`(D, H)`. Scores, softmax and sum are one walk over the edges; backward recomputes them. Saved for backward
    are the inputs, the output and two numbers per node and head.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value, bias,
            residual: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> conv = GATConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'alpha': Tensor}
    edge_updater_type: ClassVar = {'alpha': OptPairTensor, 'edge_attr': OptTensor}
    spec = Spec(
        GAT, SUMS, edge=EdgeFeatures('edge_dim', 'lin_edge', ignored=True), in_channels='in_channels',
        maps=('lin_edge',), parameter='att_src', loops=True, attention=AFTER_DROPOUT, autocast=True,
        node_dims=(0,), sparse=True,
    )  # fmt: skip

    def forward(
        self, x: Any, edge_index: Any, edge_attr: OptTensor = None, size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:  # fmt: skip
        """Runs the layer; arguments and results are those of PyG's ``GATConv.forward``."""
        given = {'edge_attr': edge_attr, 'size': size, 'return_attention_weights': return_attention_weights}
        return self.fused(x, edge_index, **given)

    def prepare(self) -> str | None:
        is_apart = modes().reorganisation or self.lin_edge is None or self.lin_edge.bias is None
        return None if is_apart else 'lin_edge has a bias'

    def program(self, edge: EdgeInput | None) -> EdgeProgram:
        return GAT if modes().reorganisation else UNREORGANISED_GAT

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        if self.lin is None or x[0] is not x[1] or features is not None:
            return None
        others, added = self.added_of_few(1)
        form = Form(
            *(GAT, {'x': (Part(SOURCE, 0),)}, self.heads, self.out_channels), reduce=self.reduction, added=added,
            dots={'alpha_src': 'x', 'alpha_dst': 'x'}, numbers={'negative_slope': float(self.negative_slope)},
            loops=self.add_self_loops,
        )  # fmt: skip
        return FewWalk(form, ('lin', *others), ('att_src', 'att_dst'))

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        (x_src, x_dst), slope = self._mapped(x), float(self.negative_slope)
        # where no edge is left, PyG reads no lin_edge
        edge = edge if edges.num_edges or edges.loops else None
        if not modes().reorganisation:
            return {**unreorganised_operands(self, x_src, x_dst, edge), 'negative_slope': slope}
        att_src, att_dst = self.att_src, None if x_dst is None else self.att_dst
        x_src, alpha_src, alpha_dst = both_head_products((x_src, x_dst), att_src, att_dst)
        alpha_edge = None
        if edge is not None:
            weight, bias, att_edge = self.lin_edge.weight, self.lin_edge.bias, self.att_edge
            # nothing of edges x heads x channels is made
            alpha_edge = edge.times((self.by_head(weight.t()) * att_edge).sum(dim=-1))
            alpha_src = total(alpha_src, None if bias is None else (self.by_head(bias) * att_edge).sum(dim=-1))
        alphas = {'alpha_src': alpha_src, 'alpha_dst': alpha_dst, 'alpha_edge': alpha_edge}
        return {'x': x_src, **alphas, 'negative_slope': slope}

    def _mapped(self, x: NodePair) -> NodePair:
        maps = (self.lin_src, self.lin_dst) if self.lin is None else (self.lin, self.lin)
        return self.both_by_head(x, *maps, is_shared=self.lin is not None)
