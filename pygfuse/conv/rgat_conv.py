"""The fused relational graph attentional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.modes import ablation
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.relations import LOOKED_AT, relations_of, why_no_relations
from pygfuse.conv._layer.spec import BEFORE_DROPOUT, EdgeFeatures, Spec
from pygfuse.graph.adjacency import values_of
from pygfuse.graph.relations import Relations
from pygfuse.ops import Edges, aggregate, aggregate_with_weights
from pygfuse.ops.nodes.large_sums import mean_of_heads, total
from pygfuse.ops.typed.pairs import gathered, walked
from pygfuse.ops.typed.typed_product import typed_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.multiplicative_gat import MULTIPLICATIVE_GAT
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EdgeProgram

# weights of more times the least normal number are above 0 however they are computed
_NEARLY_NONE = 2.0**20


class RGATConv(FusedConv, torch_geometric.nn.RGATConv):
    r"""`torch_geometric.nn.RGATConv`, fused: the same parameters, options and numbers, no matrix for each edge.

    From the `"Relational Graph Attention Networks" <https://arxiv.org/abs/1904.05811>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{r} \sum_{j \in \mathcal{N}_r(i)} \alpha^{(r)}_{ij} \mathbf{\Theta}_r \mathbf{x}_j,
        \quad \alpha^{(r)}_{ij} = \underset{j}{\mathrm{softmax}} \; \mathrm{LeakyReLU} \left(
        \mathbf{Q}^{\top} \mathbf{\Theta}_r \mathbf{x}_i + \mathbf{K}^{\top} \mathbf{\Theta}_r \mathbf{x}_j \right)

    Neighbours are mapped once for each relation of which they have an edge. Of targets, only the query is: one number
    for each relation and head. One walk over all edges does the rest; within relations, its sums of each relation and
    target are then added up. Across relations, the query of each edge and head is kept for backward.

    ``mod='f-additive'`` adds one to each weight that is not 0: another sum of neighbours, after a look at the weights.

    Args:
        in_channels, out_channels, num_relations, num_bases, num_blocks, mod, attention_mechanism, attention_mode,
            heads, dim, concat, negative_slope, dropout, edge_dim, bias: As in PyG.

    Shapes and errors are those of `FusedConv`; an ``edge_type`` that is no relation raises a ValueError.

    Example:
        >>> import torch
        >>> conv = RGATConv(16, 8, num_relations=2, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_type': OptTensor, 'edge_attr': OptTensor}
    spec = Spec(
        GAT, ('sum',), edge=EdgeFeatures('edge_dim', 'lin_edge'), in_channels='in_channels', maps=('lin_edge',),
        parameter='q', attention=BEFORE_DROPOUT, needs_targets=True, node_dims=(0,),
    )  # fmt: skip

    def reset_parameters(self) -> None:
        super().reset_parameters()
        torch.nn.init.constant_(self.l2, 1 / self.out_channels)  # PyG means to, and leaves it as the memory was

    def forward(
        self, x: Any, edge_index: Any, edge_type: OptTensor = None, edge_attr: OptTensor = None, size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:  # fmt: skip
        """Runs the layer; arguments and results are those of PyG's ``RGATConv.forward``."""
        given = {'edge_type': edge_type, 'edge_attr': edge_attr, 'size': size}
        return self.fused(x, edge_index, **given, return_attention_weights=return_attention_weights)

    def prepare(self) -> tuple[()]:
        return LOOKED_AT

    def why_not_call(self, inputs: Inputs) -> str | None:
        if not is_edge_index(inputs.adjacency) and values_of(inputs.adjacency) is not None:
            return 'a sparse adjacency with values'
        return why_no_relations()

    @property
    def _is_multiplicative(self) -> bool:
        return self.attention_mode == 'multiplicative-self-attention'

    @property
    def _is_within(self) -> bool:
        return self.attention_mechanism == 'within-relation'

    def program(self, edge: EdgeInput | None) -> EdgeProgram:
        return MULTIPLICATIVE_GAT if self._is_multiplicative else GAT

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        relations = relations_of(inputs, edges, self.num_relations)
        x_src, x_dst = (part[:] for part in inputs.x) if is_deferring() else inputs.x
        edge, weight = self.edge_input(inputs, edges), self._weight()
        mapped = typed_product(x_src, weight, gathered(relations.sources))
        query = typed_product(x_dst, self._of_query(weight), gathered(relations.targets))
        graph = relations.between_pairs if self._is_within else relations.from_pairs
        operands = {'x': self._by_head(mapped), 'alpha_src': mapped @ self.k}
        operands |= self._of_targets(query, relations, edge)
        out, weights = self.run(self.program(edge), operands, inputs, walked(graph))
        if self._is_within:
            out = aggregate(NEIGHBOURS, walked(relations.sums), {'x': out}, 1, out.shape[1], flat=True)
        if self.mod == 'f-additive':
            out = out + self._of_weight(self.program(edge), operands, walked(graph), relations).flatten(1)
        return self._modified(out, operands['x'], relations, edges), weights

    def _of_targets(self, query: Tensor, relations: Relations, edge: EdgeInput | None) -> dict[str, OperandValue]:
        """The operands that belong to targets as their relations map them, and to features of edges."""
        of_edge = None if edge is None else self._of_features(edge)
        if self._is_multiplicative:
            query = query.index_select(0, relations.targets.of_edges)
            return {'alpha_edge': query if of_edge is None else query * of_edge}
        slope = {'negative_slope': float(self.negative_slope)}
        if self._is_within:
            return {'alpha_dst': query, 'alpha_edge': of_edge, **slope}
        return {'alpha_edge': total(query.index_select(0, relations.targets.of_edges), of_edge), **slope}

    def _of_features(self, edge: EdgeInput) -> Tensor:
        lin = self.lin_edge
        found = edge.values @ (lin.weight.t() @ self.e)
        return found if lin.bias is None else found + lin.bias @ self.e

    def _weight(self) -> Tensor:
        """The matrix of each relation, or its blocks."""
        if self.num_bases is None:
            return self.weight
        weight = self.att @ self.basis.flatten(1)
        return weight.view(self.num_relations, self.in_channels, self.heads * self.out_channels)

    def _of_query(self, weight: Tensor) -> Tensor:
        """What maps features to queries: the matrices times that of queries."""
        if weight.dim() == 3:
            return weight @ self.q
        return (weight @ self.q.view(weight.shape[1], weight.shape[3], -1)).flatten(1, 2)

    def _by_head(self, mapped: Tensor) -> Tensor:
        """Neighbours for each of the scores that weigh them: a head has as many as its queries have dimensions."""
        mapped = mapped.view(-1, self.heads, self.out_channels)
        return mapped.repeat_interleave(self.dim, dim=1) if self.dim > 1 else mapped

    def _of_weight(
        self, program: EdgeProgram, operands: dict[str, OperandValue], edges: Edges, relations: Relations
    ) -> Tensor:
        """The sum of the neighbours that have a weight: of all, but where the softmax of a score is no number but 0."""
        x = operands['x']
        shape = x.shape[1:]
        with torch.no_grad():
            _, weights = aggregate_with_weights(program, edges, operands, *shape)
            are_all = bool((weights > _NEARLY_NONE * torch.finfo(weights.dtype).tiny).all())
        if are_all:
            return aggregate(NEIGHBOURS, walked(relations.from_pairs), {'x': x}, *shape)
        with torch.no_grad(), ablation(fusion=False):
            # to the last bit above 0, as torch has it
            _, weights = aggregate_with_weights(program, edges, operands, *shape)
        given = {'x': x, 'edge_weight': (weights > 0).to(x.dtype)}
        return aggregate(WEIGHTED_NEIGHBOURS, walked(relations.from_pairs), given, *shape)

    def _modified(self, out: Tensor, mapped: Tensor, relations: Relations, edges: Edges) -> Tensor:
        """What `mod` makes of the sum, which depends on the target only."""
        if self.mod == 'additive':
            plain = aggregate(NEIGHBOURS, walked(relations.from_pairs), {'x': mapped}, *mapped.shape[1:])
            return out + (self.w * plain).flatten(1)
        if self.mod not in ('scaled', 'f-scaled'):
            return out
        degree = edges.graph().degree.to(out.dtype).unsqueeze(1)
        if self.mod == 'f-scaled':
            return out * degree
        scale = self.activation(degree @ self.l1 + self.b1) @ self.l2 + self.b2
        return (out.unflatten(1, (-1, self.out_channels)) * scale.unsqueeze(1)).flatten(1)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        if not self.concat:
            out = mean_of_heads(out.view(len(out), self.heads, out.shape[1] // self.heads))
        return self.with_bias(out)
