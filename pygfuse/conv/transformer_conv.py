"""The fused graph transformer operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.heads import HeadsConv
from pygfuse.conv._layer.spec import BEFORE_DROPOUT, SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.ops.nodes.linear import apply_linear
from pygfuse.ops.nodes.several_maps import apply_at_ends
from pygfuse.ops.within_torch import autocast
from pygfuse.program.library.transformer import TRANSFORMER
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EDGE, SOURCE, TARGET


class TransformerConv(HeadsConv, torch_geometric.nn.TransformerConv):
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
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, heads, concat, beta, dropout, edge_dim, bias, root_weight: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> conv = TransformerConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'query': Tensor, 'key': Tensor, 'value': Tensor, 'edge_attr': OptTensor}
    spec = Spec(
        TRANSFORMER, SUMS, edge=EdgeFeatures('edge_dim', 'lin_edge', required=True), in_channels='in_channels',
        maps=('lin_edge',), parameter='lin_key', attention=BEFORE_DROPOUT, needs_targets=True, autocast=True,
        node_dims=(0,), sparse=True,
    )  # fmt: skip

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        mapped = apply_at_ends(self.lin_query, (self.lin_key, self.lin_value), x)
        query, key, value = (self.by_head(each) for each in mapped)
        if query.is_cuda and autocast.is_on(query.device):
            query = query.float()  # there torch sums the dots in float32, and what they weigh is float32 again
        if edge is not None:
            weight, bias = self.lin_edge.weight, self.lin_edge.bias
            edge = edge.times(weight.t())
            if bias is not None:
                bias = self.by_head(bias.to(key.dtype))
                key, value = key + bias, value + bias
        scale = 1 / math.sqrt(self.out_channels)
        return {'query': query, 'key': key, 'value': value, 'edge': edge, 'scale': scale}

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        is_biased = features is not None and self.lin_edge.bias is not None
        if self.lin_beta is not None or is_biased:
            return None
        made = {'query': (Part(TARGET, 0),), 'key': (Part(SOURCE, 1),), 'value': (Part(SOURCE, 2),)}
        maps, added = ('lin_query', 'lin_key', 'lin_value'), ()
        if features is not None:
            made, maps = {**made, 'edge': (Part(EDGE, 3),)}, (*maps, 'lin_edge')
        if self.root_weight and self.is_side_by_side():
            maps, added = (*maps, 'lin_skip'), (Part(TARGET, len(maps)),)
        numbers = {'scale': 1 / math.sqrt(self.out_channels)}
        form = Form(
            *(TRANSFORMER, made, self.heads, self.out_channels), numbers=numbers, reduce=self.reduction, added=added
        )
        return FewWalk(form, maps, takes_features=features is not None)

    def finish_few(self, out: Tensor, x: NodePair, edges: FewEdges) -> Tensor:
        return out if self.is_side_by_side() else self.finish(out, x, None)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        # what belongs to edges is more precise than PyG's under autocast
        out = self.combined(out.to(autocast.dtype_of_maps(x[1])))
        if not self.root_weight:
            return out
        skip = apply_linear(self.lin_skip, x[1])
        if self.lin_beta is None:
            return added_to(skip, out)
        beta = self.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
        return beta * skip + (1 - beta) * out

    def with_weights(self, out: Tensor, adjacency: Any, edges: Edges, weights: Tensor) -> Any:
        weights = weights.to(out.dtype)  # under autocast those of edges with features are more precise, too
        # a torch.sparse matrix is given back as it came, as in PyG
        if is_torch_sparse_tensor(adjacency):
            return out, (adjacency, weights)
        return super().with_weights(out, adjacency, edges, weights)
