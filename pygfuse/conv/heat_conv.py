"""The fused heterogeneous edge-enhanced graph attentional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import why_not_as_it_is
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.relations import LOOKED_AT, check_indices, relations_of, why_no_relations
from pygfuse.conv._layer.spec import SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges, aggregate, new_seed
from pygfuse.ops.typed.activated_product import activated_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.activation import Activation
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.heat import HEAT_EDGES


class HEATConv(FusedConv, torch_geometric.nn.HEATConv):
    r"""`torch_geometric.nn.HEATConv`, fused: the same parameters, options and numbers.

    From the `"Heterogeneous Edge-Enhanced Graph Attention Network For Multi-Agent Trajectory Prediction"
    <https://arxiv.org/abs/2106.07161>`_ paper.

    The attention vectors are contracted with nodes, with the embeddings of types and, a block of edges at a time, with
    those of edges' features: a number for each head of an edge. Two walks weigh neighbours and the embeddings of edges,
    which are computed in registers and mapped once they are added up.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, num_node_types, num_edge_types, edge_type_emb_dim, edge_dim, edge_attr_emb_dim,
            heads, concat, negative_slope, dropout, root_weight, bias: As in PyG.

    Shapes and errors are those of `FusedConv`; a type that there is not raises a ValueError.

    Example:
        >>> conv = HEATConv(16, 8, 2, 3, edge_type_emb_dim=4, edge_dim=5, edge_attr_emb_dim=6, heads=2)
        >>> edge_index, types = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 2])
        >>> conv(torch.randn(3, 16), edge_index, torch.tensor([0, 1, 0]), types, torch.randn(3, 5)).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_type_emb': Tensor, 'edge_attr': OptTensor}
    spec = Spec(
        GAT, SUMS, edge=EdgeFeatures('edge_dim', map='edge_attr_emb', required=True), in_channels='in_channels',
        maps=('edge_attr_emb', 'att', 'lin'), parameter='hetero_lin', bipartite=False, node_dims=(0,),
    )  # fmt: skip

    def forward(
        self, x: Tensor, edge_index: Any, node_type: Tensor, edge_type: Tensor, edge_attr: OptTensor = None
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``HEATConv.forward``."""
        return self.fused(x, edge_index, node_type=node_type, edge_type=edge_type, edge_attr=edge_attr)

    def prepare(self) -> str | tuple[()]:
        module = self.edge_type_emb
        if type(module).forward is not torch.nn.Embedding.forward:
            return f'edge_type_emb is no Embedding but a {type(module).__name__}'
        if module.max_norm is not None or module.padding_idx is not None or module.scale_grad_by_freq or module.sparse:
            return 'edge_type_emb does more than looking up rows'
        return why_not_as_it_is(module, 'edge_type_emb') or LOOKED_AT

    def tensors_of_call(self, inputs: Inputs, width: int | None) -> dict[str, Any]:
        given = super().tensors_of_call(inputs, width)
        given.pop('node_type', None)
        return given

    def why_not_call(self, inputs: Inputs) -> str | None:
        return why_no_relations()

    def are_so_few(self, adjacency: Any) -> bool:
        return fallback.are_so_few([adjacency], self.heads * self.out_channels)

    def check(self, inputs: Inputs, prepared: Any) -> None:
        super().check(inputs, prepared)
        node_type, x = inputs.others['node_type'], inputs.x[0]
        # a module in place of the map may not say how many types it knows
        check_indices(node_type, getattr(self.hetero_lin, 'num_types', 2**63 - 1), 'node_type')
        if len(node_type) != len(x) or node_type.is_floating_point():
            raise ValueError(
                f"Expected 'node_type' to hold {len(x)} integers, one for each node (got {list(node_type.shape)} of "
                f'{node_type.dtype})'
            )

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        types = relations_of(inputs, edges, self.edge_type_emb.num_embeddings).types
        edge, slope, heads, width = self.edge_input(inputs, edges), self.negative_slope, self.heads, self.out_channels
        x = self.hetero_lin(inputs.x[0][:] if is_deferring() else inputs.x[0], inputs.others['node_type'])
        # in PyG's order: a parametrization may draw at each read
        of_types, of_features = F.leaky_relu(self.edge_type_emb.weight, slope), self.edge_attr_emb.weight.t()
        parts = width, width, of_types.shape[1], of_features.shape[1]
        target, source, by_type, by_features = self.att.weight.split(parts, dim=1)
        alpha_dst, alpha_src = F.linear(x, torch.cat([target, source])).split(heads, dim=1)
        act = Activation('leaky_relu', (float(slope),))
        scores = {
            'alpha_src': alpha_src,
            'alpha_dst': alpha_dst,
            'alpha_edge': (of_types @ by_type.t()).index_select(0, types)
            + activated_product(edge.values, of_features, by_features.t(), act),
            'negative_slope': float(slope),
        }
        of_nodes, of_edges = self.lin.weight.split((width, of_features.shape[1]), dim=1)
        mapped = F.linear(x, of_nodes, self.lin.bias).repeat(1, heads)
        dropout = self.dropout if self.training else 0.0
        given = self.reduction, dropout, new_seed(x) if dropout > 0.0 else None
        out = aggregate(GAT, edges, {**scores, 'x': mapped}, heads, width, *given)
        operands = {**scores, 'edge': edge.times(of_features.repeat(1, heads))}
        embedded = aggregate(HEAT_EDGES, edges, operands, heads, of_features.shape[1], *given)
        out = torch.addmm(out.flatten(0, 1), embedded.flatten(0, 1), of_edges.t())
        return self._joined(out.unflatten(0, (-1, heads)), x), None

    def _joined(self, out: Tensor, x: Tensor) -> Tensor:
        """The heads side by side or their mean, and what a node adds of itself."""
        if not self.concat:
            out = out.mean(dim=1)
            return out + x if self.root_weight else out
        return (out.add_(x.unsqueeze(1)) if self.root_weight else out).flatten(1)
