"""The fused relational graph convolutional operator."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric import backend
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import some_parameter
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.relations import LOOKED_AT, check_indices, relations_of, why_no_relations
from pygfuse.conv._layer.spec import EXTREMES, SUMS, Spec
from pygfuse.graph.relations import Relations
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.typed.basis_rows import basis_rows
from pygfuse.ops.typed.pairs import gathered, scattered, walked
from pygfuse.ops.typed.typed_product import typed_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS

# a row read, and one added to, costs about as much a channel as so many products
_ROW = 10


class RelationalConv(FusedConv):
    """A mixin before ``RGCNConv`` and ``FastRGCNConv``, which compute the same."""

    spec = Spec(NEIGHBOURS, in_channels='in_channels', parameter='weight', needs_targets=True, node_dims=(0,))

    def forward(self, x: Any, edge_index: Any, edge_type: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of that method of PyG's layer."""
        return self.fused(self._with_indices(x), edge_index, edge_type=edge_type)

    def _with_indices(self, x: Any) -> Any:
        """The features, those that are missing as indices of embeddings."""
        first = x[0] if isinstance(x, tuple) and len(x) == 2 else x
        if first is not None:
            return x
        first = torch.arange(self.in_channels_l, device=some_parameter(self).device)
        return (first, x[1]) if isinstance(x, tuple) else first

    def rows_of(self, x: Tensor) -> Tensor:
        """The row of the weight that each node has, from its index."""
        return x.long()

    # What a call brings

    def prepare(self) -> tuple[()]:
        return LOOKED_AT

    def tensors_of_call(self, inputs: Inputs, width: int | None) -> dict[str, Any]:
        given = super().tensors_of_call(inputs, width)
        return {name: tensor for name, tensor in given.items() if tensor.is_floating_point()}

    def why_not_call(self, inputs: Inputs) -> str | None:
        x, adjacency = inputs.x, inputs.adjacency
        if x[0].is_floating_point() != x[1].is_floating_point():
            return 'features of one end and indices of the other'
        if not all(part.is_floating_point() or part.dtype in (torch.int32, torch.int64) for part in x):
            return f'x is of type {x[0].dtype}'
        weight = some_parameter(self)
        if weight is None:
            return 'tensors in place of its parameters'
        if weight.dtype not in (torch.float32, torch.float64):
            return f'parameters of type {weight.dtype}'
        if not x[0].is_floating_point() and self.num_blocks is not None:
            return 'indices with num_blocks'
        return why_no_relations() or fallback.why_not_ties(
            self, adjacency, x[0] if x[0].is_floating_point() else weight
        )

    def check(self, inputs: Inputs, prepared: Any) -> None:
        x, shared = inputs.x, inputs.shared
        if x[0].is_floating_point():
            super().check(inputs, prepared)
            return
        check_indices(self.rows_of(x[0]), self.in_channels_l, 'x' if shared else 'x[0]')
        if self.root is not None:
            check_indices(x[1], self.root.shape[0], 'x' if shared else 'x[1]')

    # The layer

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        relations = relations_of(inputs, edges, self.num_relations)
        x = inputs.x[0][:] if is_deferring() else inputs.x[0]
        if not x.is_floating_point():
            return self._of_mapped(self._embedded(x, relations), relations), None
        weight = self._weight()
        if self._aggregates_first(relations, x.shape[1]):
            sums, _ = self.run(NEIGHBOURS, {'x': x}, inputs, walked(relations.to_pairs))
            sums = sums[:] if is_deferring() else sums
            return typed_product(sums, weight, scattered(relations.targets, edges.num_targets)), None
        return self._of_mapped(typed_product(x, weight, gathered(relations.sources)), relations), None

    def _aggregates_first(self, relations: Relations, width: int) -> bool:
        """Whether neighbours are aggregated before they are mapped, a row for each relation and target, not after."""
        if self.reduction in EXTREMES:
            return True
        edges, out = len(relations.types), self.out_channels
        blocks = self.num_blocks or 1
        first = relations.targets.count * (width * out // blocks + _ROW * out) + edges * width
        second = relations.sources.count * (width * out // blocks + _ROW * width) + edges * out
        return first < second

    def _of_mapped(self, mapped: Tensor, relations: Relations) -> Tensor:
        """The aggregation of neighbours that are mapped, a row for each relation and source."""
        heads, channels = 1, mapped.shape[1]
        reduce = self.reduction
        if reduce in EXTREMES:
            found = aggregate(NEIGHBOURS, walked(relations.between_pairs), {'x': mapped}, heads, channels, reduce)
            return aggregate(NEIGHBOURS, walked(relations.sums), {'x': found}, heads, channels, flat=True)
        operands, program = {'x': mapped}, NEIGHBOURS
        if reduce == 'mean':
            operands['edge_weight'], program = relations.shares(mapped.dtype), WEIGHTED_NEIGHBOURS
        return aggregate(program, walked(relations.from_pairs), operands, heads, channels, flat=True)

    def _weight(self) -> Tensor:
        """The matrix of each relation, or its blocks."""
        weight, comp = self._parameters_read()
        if comp is None:
            return weight
        return (comp @ weight.flatten(1)).view(self.num_relations, self.in_channels_l, self.out_channels)

    def _parameters_read(self) -> tuple[Tensor, OptTensor]:
        """The weight and the coefficients of bases, read as PyG's layer reads them: a parametrization may count."""
        return self.weight, None if self.num_bases is None else self.comp

    def _embedded(self, x: Tensor, relations: Relations) -> Tensor:
        """The embeddings of neighbours, a row for each relation and source."""
        pairs = relations.sources
        nodes = self.rows_of(x).index_select(0, pairs.nodes)
        weight, comp = self._parameters_read()
        if comp is not None:
            return basis_rows(comp, weight, pairs.types, nodes)
        return weight.flatten(0, 1).index_select(0, pairs.types * weight.shape[1] + nodes)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        root = self.root
        if root is not None:
            out = out + (x[1] @ root if x[1].is_floating_point() else root[x[1]])
        return self.with_bias(out)


class RGCNConv(RelationalConv, torch_geometric.nn.RGCNConv):
    r"""`torch_geometric.nn.RGCNConv`, fused: the same parameters, options and numbers, no loop over relations.

    From the `"Modeling Relational Data with Graph Convolutional Networks" <https://arxiv.org/abs/1703.06103>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{\Theta}_{\textrm{root}} \mathbf{x}_i + \sum_{r \in \mathcal{R}}
        \underset{j \in \mathcal{N}_r(i)}{\mathrm{aggr}} \; \mathbf{\Theta}_r \mathbf{x}_j

    Nodes are mapped once for each relation of which they have an edge: neighbours before one walk over all edges, or
    their sums after it, whichever is less work. Bases are combined, of embeddings (``x=None``), for these pairs only.

    Args:
        in_channels, out_channels, num_relations, num_bases, num_blocks, aggr, root_weight, is_sorted, bias: As in PyG.

    Shapes and errors are those of `FusedConv`; an ``edge_type`` that is no relation raises a ValueError.

    Example:
        >>> conv = RGCNConv(16, 8, num_relations=2)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_type_ptr': OptTensor}

    def __prepare_scriptable__(self) -> torch_geometric.nn.MessagePassing:
        # PyG's forward writes it, and TorchScript has to find it there before
        vars(self).setdefault('_use_segment_matmul_heuristic_output', False)
        return super().__prepare_scriptable__()

    def why_not_call(self, inputs: Inputs) -> str | None:
        adjacency = inputs.adjacency
        if not is_edge_index(adjacency) and not is_sparse_tensor(adjacency):
            return 'a torch.sparse adjacency'
        return super().why_not_call(inputs)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        if is_sparse_tensor(inputs.adjacency):
            # PyG's takes the values and nothing else
            inputs = inputs._replace(edge_type=None)
        return super().aggregate_edges(inputs, edges, prepared)

    def _parameters_read(self) -> tuple[Tensor, OptTensor]:
        found = super()._parameters_read()
        if is_parametrized(self, 'weight') and self.num_blocks is None and backend.use_segment_matmul is None:
            self.weight, self.weight  # noqa: B018  its shape, for the choice of a product
        return found


class FastRGCNConv(RelationalConv, torch_geometric.nn.FastRGCNConv):
    r"""`torch_geometric.nn.FastRGCNConv`, fused: the same parameters, options and numbers, no matrix for each edge.

    It computes what `RGCNConv` computes; arguments, shapes and errors are those of that class.

    Example:
        >>> conv = FastRGCNConv(16, 8, num_relations=2)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': Tensor, 'edge_type': OptTensor}
    spec = dataclasses.replace(RelationalConv.spec, reductions=SUMS)

    def rows_of(self, x: Tensor) -> Tensor:
        # PyG's takes the number of a node for its index
        return torch.arange(len(x), device=x.device)
