"""The fused heterogeneous graph attention operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from pygfuse._lib.hooks import some_parameter, why_not_linear
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import SUMS, Spec
from pygfuse.conv._layer.typed_nodes import EdgeType, TypedNodes, why_not_typed
from pygfuse.conv._layer.untraced import NOT_TRACED, are_apart
from pygfuse.graph.relations import Pairs, Relations
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.ops import aggregate, new_seed
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.ops.typed.pairs import gathered, walked
from pygfuse.ops.typed.typed_product import typed_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.neighbours import WEIGHTED_NEIGHBOURS

# all nodes are multiplied with the vectors of all types, where of so many products one is needed
_MOST_OTHERS = 4

ByType = dict[str, Tensor | None]


class HANConv(FusedConv, torch_geometric.nn.HANConv):
    r"""`torch_geometric.nn.HANConv`, fused: the same parameters, options and numbers, one walk for all types of edges.

    From the `"Heterogenous Graph Attention Network" <https://arxiv.org/abs/1903.07293>`_ paper.

    The softmax over each target's edges of a type, and the sum, are one walk for all types, which backward recomputes.
    What a type of edges gives is there for the targets that have such edges; of the others it is known, also in the
    mean that decides how much a type counts. All types of edges are joined once, as long as no ``edge_index`` is
    written to.

    Args:
        in_channels: The width of the features of each type, or :obj:`-1` to derive the size from the first input(s).
        out_channels, metadata, heads, negative_slope, dropout: As in PyG.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` by type of nodes; any adjacency by type of edges
        - **output:** :math:`(|\mathcal{V}|, F_{out})` by type of nodes, as PyG's

    Errors are those of `FusedConv`.

    Example:
        >>> conv = HANConv(16, 8, (['a', 'b'], [('a', 'to', 'b')]), heads=2)
        >>> x = {'a': torch.randn(3, 16), 'b': torch.randn(2, 16)}
        >>> conv(x, {('a', 'to', 'b'): torch.tensor([[0, 1, 2], [1, 0, 1]])})['b'].shape
        torch.Size([2, 8])
    """

    propagate_type: ClassVar = {'x': tuple[Tensor, Tensor], 'alpha': tuple[Tensor, Tensor]}
    spec = Spec(GAT, SUMS, parameter='q', node_dims=(0,))

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[EdgeType, Any],
        return_semantic_attention_weights: bool = False,
    ) -> ByType | tuple[ByType, ByType]:
        """Runs the layer; arguments and results are those of PyG's ``HANConv.forward``."""
        reason = self._why_not_call(x_dict, edge_index_dict)
        if reason == NOT_TRACED and are_apart(edge_index_dict.values()):
            return _forward_untraced(self, x_dict, edge_index_dict, return_semantic_attention_weights)
        if not self.runs_fused(reason):
            edges = {kind: fallback.adjacency_for_pyg(given) for kind, given in edge_index_dict.items()}
            return super().forward(x_dict, edges, return_semantic_attention_weights)
        _check_edge_types(edge_index_dict, self.lin_src)
        if is_deferring():
            x_dict = {kind: x[:] for kind, x in x_dict.items()}
        nodes = TypedNodes.of(x_dict)
        x = torch.cat([self.proj[kind](features) for kind, features in x_dict.items()])
        _graph, relations = nodes.joined(edge_index_dict)
        with self.noted():
            out = self._attend(x, relations, [*edge_index_dict]).relu()
            attention = self._of_types(out, relations, nodes, [*edge_index_dict])
            out = _weighed(out, attention, relations, [*edge_index_dict])
        reached = {kind[-1] for kind in edge_index_dict}
        found = {kind: nodes.of_type(out, kind) if kind in reached else None for kind in x_dict}
        weights = {kind: attention.get(kind) for kind in x_dict}
        return (found, weights) if return_semantic_attention_weights else found

    def _why_not_call(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Any]) -> str | None:
        """The reason, if any, for which a call runs PyG's path."""
        are_so_few = fallback.are_so_few(edge_index_dict.values(), self.out_channels)
        if are_so_few and self._note is not None and self._note.reason is SO_FEW_EDGES:
            # PyG's path is right for every call: nothing else has to be looked at
            return SO_FEW_EDGES
        reason = why_not_typed(self, x_dict, edge_index_dict, some_parameter(self, 'q'))
        return reason or (SO_FEW_EDGES if are_so_few else None)

    def why_not_reduce(self) -> str | None:
        # PyG's reads them for each type of nodes
        if is_parametrized(self.k_lin) or is_parametrized(self, 'q'):
            return 'a parametrization of k_lin or q may count how often it is read'
        return super().why_not_reduce() or why_not_linear(self.k_lin, 'k_lin')

    def _attend(self, x: Tensor, relations: Relations, edge_types: list[EdgeType]) -> Tensor:
        """The sum of weighed neighbours for each type of edges and target that has such."""
        pairs = relations.sources
        # in PyG's order: a parametrization may draw at each read
        names = ['__'.join(kind) for kind in edge_types]
        vectors = zip(*((self.lin_src[name], self.lin_dst[name]) for name in names), strict=True)
        of_sources, of_targets = (torch.cat(found) for found in vectors)
        alpha_src = self._scores(x, of_sources, pairs)
        alpha_dst = self._scores(x, of_targets, relations.targets)
        operands = {'alpha_dst': alpha_dst, 'negative_slope': float(self.negative_slope)}
        # whichever is less: features of pairs, or the scores of edges
        if pairs.count * self.out_channels < len(relations.types) * self.heads:
            graph = relations.between_pairs
            operands |= {'x': x.index_select(0, pairs.nodes), 'alpha_src': alpha_src}
        else:
            graph = relations.to_pairs
            operands |= {'x': x, 'alpha_edge': alpha_src.index_select(0, pairs.of_edges)}
        dropout = self.dropout if self.training else 0.0
        seed = new_seed(x) if dropout > 0.0 else None
        shape = self.heads, self.out_channels // self.heads
        return aggregate(GAT, walked(graph), operands, *shape, self.reduction, dropout, seed, flat=True)

    def _scores(self, x: Tensor, vectors: Tensor, pairs: Pairs) -> Tensor:
        """The dots of the heads of each pair's node with the vectors of its type of edges, ``[pairs, H]``.

        Args:
            x: Features of all nodes.
            vectors: ``[types, H, C]``.
            pairs: The pairs.
        """
        if len(vectors) * len(x) > _MOST_OTHERS * pairs.count:
            matrices = vectors.unsqueeze(-1) if self.heads > 1 else vectors.transpose(1, 2)
            return typed_product(x, matrices, gathered(pairs))
        identity = torch.eye(self.heads, dtype=x.dtype, device=x.device).view(self.heads, 1, 1, self.heads)
        matrix = vectors.permute(1, 2, 0).unsqueeze(-1) * identity
        found = apply_weight(x, matrix.flatten(2).flatten(0, 1).t()).view(-1, self.heads)
        return found.index_select(0, pairs.nodes * len(vectors) + pairs.types)

    def _of_types(
        self, out: Tensor, relations: Relations, nodes: TypedNodes, edge_types: list[EdgeType]
    ) -> dict[str, Tensor]:
        """How much each type of edges counts, by type of targets, in the order of the types of edges."""
        bias, query, pairs = self.k_lin.bias, self.q[0], relations.targets
        scores = F.linear(out, self.k_lin.weight, bias).tanh() @ query
        # a sum over many nodes, one after another
        sums = scores.new_zeros(len(edge_types), dtype=torch.float64).index_add(0, pairs.types, scores.double())
        if bias is not None:
            counts = torch.tensor(pairs.bounds, device=out.device).diff()
            others = torch.tensor([nodes.sizes[kind[-1]] for kind in edge_types], device=out.device) - counts
            sums = sums + others * (bias.tanh() @ query).double()
        found = {}
        for kind in dict.fromkeys(kind[-1] for kind in edge_types):
            places = [place for place, edge_type in enumerate(edge_types) if edge_type[-1] == kind]
            if nodes.sizes[kind] > 0:
                found[kind] = F.softmax(sums[places] / nodes.sizes[kind], dim=0).to(out.dtype)
        return found


_forward_untraced = torch.compiler.disable(HANConv.forward)


def _weighed(out: Tensor, attention: dict[str, Tensor], relations: Relations, edge_types: list[EdgeType]) -> Tensor:
    """The sum over types of edges, weighed, for each node."""
    nobody = out.new_zeros(())
    of_types = {kind: iter(weights.unbind()) for kind, weights in attention.items()}
    weights = torch.stack([next(of_types.get(kind[-1], iter(())), nobody) for kind in edge_types])
    of_pairs = weights.index_select(0, relations.targets.types).unsqueeze(1)
    operands = {'x': out, 'edge_weight': of_pairs}
    return aggregate(WEIGHTED_NEIGHBOURS, walked(relations.sums), operands, 1, out.shape[1], flat=True)


def _check_edge_types(edge_index_dict: Mapping[EdgeType, Any], known: Mapping[str, Any]) -> None:
    for edge_type in edge_index_dict:
        if '__'.join(edge_type) not in known:
            raise ValueError(f"Expected 'edge_index_dict' to hold types of edges of the metadata (got {edge_type})")
