"""The fused dynamic graph attention operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.heads import AttentionConv
from pygfuse.conv._layer.spec import AFTER_DROPOUT, SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EDGE, SOURCE, TARGET


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    r"""`torch_geometric.nn.GATv2Conv`, fused: the same parameters, options and numbers, in less time and memory.

    From the `"How Attentive are Graph Attention Networks?" <https://arxiv.org/abs/2105.14491>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_j \alpha_{ij} \mathbf{\Theta}_s \mathbf{x}_j, \quad
        \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \mathbf{a}^{\top} \mathrm{LeakyReLU} \left(
        \mathbf{\Theta}_s \mathbf{x}_j + \mathbf{\Theta}_t \mathbf{x}_i + \mathbf{\Theta}_e \mathbf{e}_{ij} \right)

    The linear maps of nodes are taken once a node; what is nonlinear in both ends, the edge's linear map included, is
    computed within the walk, and again in backward.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, heads, concat, negative_slope, dropout, add_self_loops, edge_dim, fill_value, bias,
            share_weights, residual: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> conv = GATv2Conv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'x': PairTensor, 'alpha': Tensor}
    edge_updater_type: ClassVar = {'x': PairTensor, 'edge_attr': OptTensor}
    spec = Spec(
        GATV2, SUMS, edge=EdgeFeatures('edge_dim', 'lin_edge'), in_channels='in_channels', maps=('lin_edge',),
        parameter='att', loops=True, attention=AFTER_DROPOUT, needs_targets=True, autocast=True,
        node_dims=(0,), sparse=True,
    )  # fmt: skip

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        is_looped = self.add_self_loops and (features is not None or x[0] is not x[1])
        is_biased = features is not None and self.lin_edge.bias is not None
        if self.share_weights or is_looped or is_biased:
            return None
        made, maps = {'x': (Part(SOURCE, 0),), 'x_dst': (Part(TARGET, 1),)}, ('lin_l', 'lin_r')
        if features is not None:
            made, maps = {**made, 'edge': (Part(EDGE, 2),)}, (*maps, 'lin_edge')
        others, added = self.added_of_few(len(maps))
        form = Form(
            *(GATV2, made, self.heads, self.out_channels), given=('att',), reduce=self.reduction, added=added,
            numbers={'negative_slope': float(self.negative_slope)}, loops=self.add_self_loops,
        )  # fmt: skip
        return FewWalk(form, maps + others, ('att',), features is not None)

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        x_src, x_dst = self.both_by_head(x, self.lin_l, self.lin_r, is_shared=self.share_weights)
        if edge is not None:
            weight, bias = self.lin_edge.weight, self.lin_edge.bias
            edge = edge.times(weight.t())
            # to the targets, which only the scores read
            x_dst = x_dst if bias is None else x_dst + self.by_head(bias.to(x_dst.dtype))
        slope = float(self.negative_slope)
        return {'x': x_src, 'x_dst': x_dst, 'edge': edge, 'att': self.att, 'negative_slope': slope}
