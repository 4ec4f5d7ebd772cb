"""The fused heterogeneous graph transformer operator."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.dense import HeteroLinear

from pygfuse._lib.hooks import some_parameter, why_not_as_it_is, why_not_linear
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import SUMS, Spec
from pygfuse.conv._layer.typed_nodes import EdgeType, TypedNodes, why_not_typed
from pygfuse.conv._layer.untraced import NOT_TRACED, are_apart
from pygfuse.ops import aggregate
from pygfuse.ops.typed.pairs import gathered, walked
from pygfuse.ops.typed.typed_product import TypedRows, typed_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.transformer import TRANSFORMER


class HGTConv(FusedConv, torch_geometric.nn.HGTConv):
    r"""`torch_geometric.nn.HGTConv`, fused: the same parameters, options and numbers, one walk for all types of edges.

    From the `"Heterogeneous Graph Transformer" <https://arxiv.org/abs/2003.01332>`_ paper.

    Keys and values are mapped once for each source that has an edge of a type, the prior of the type with the key. The
    softmax over all edges of a target, whatever their types, and the sum are one walk, which backward recomputes. All
    types of edges are joined once, as long as no ``edge_index`` is written to.

    Args:
        in_channels: The width of the features of each type, or :obj:`-1` to derive the size from the first input(s).
        out_channels, metadata, heads: As in PyG.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` by type of nodes; any adjacency by type of edges
        - **output:** :math:`(|\mathcal{V}|, F_{out})` by type of nodes, as PyG's

    Errors are those of `FusedConv`.

    Example:
        >>> conv = HGTConv(16, 8, (['a', 'b'], [('a', 'to', 'b')]), heads=2)
        >>> x = {'a': torch.randn(3, 16), 'b': torch.randn(2, 16)}
        >>> conv(x, {('a', 'to', 'b'): torch.tensor([[0, 1, 2], [1, 0, 1]])})['b'].shape
        torch.Size([2, 8])
    """

    propagate_type: ClassVar = {'k': Tensor, 'q': Tensor, 'v': Tensor, 'edge_attr': Tensor}
    spec = Spec(TRANSFORMER, SUMS, parameter='k_rel', node_dims=(0,))

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Any]) -> dict[str, Tensor | None]:
        """Runs the layer; arguments and results are those of PyG's ``HGTConv.forward``."""
        reason = why_not_typed(self, x_dict, edge_index_dict, some_parameter(self.k_rel))
        if reason == NOT_TRACED and are_apart(edge_index_dict.values()):
            return _forward_untraced(self, x_dict, edge_index_dict)
        if not self.runs_fused(reason):
            return super().forward(x_dict, {k: fallback.adjacency_for_pyg(v) for k, v in edge_index_dict.items()})
        # in the order of PyG's output
        x_dict = {kind: x_dict[kind] for kind in self.kqv_lin.lins if kind in x_dict}
        if is_deferring():
            x_dict = {kind: x[:] for kind, x in x_dict.items()}
        nodes = TypedNodes.of(x_dict)
        with self.noted():
            out = self._attend(x_dict, nodes, edge_index_dict)
        found = {kind: nodes.of_type(out, kind) for kind in nodes.sizes if kind in self.dst_node_types}
        return self._skipped(self.out_lin({kind: F.gelu(rows) for kind, rows in found.items()}), x_dict)

    def why_not_reduce(self) -> str | None:
        for name in ('k_rel', 'v_rel'):
            module = getattr(self, name)
            if type(module) is not HeteroLinear or module.bias is not None:
                return f'{name} is no HeteroLinear without a bias'
            reason = why_not_as_it_is(module, name)
            if reason is not None:
                return reason
        return super().why_not_reduce()

    def _attend(self, x_dict: dict[str, Tensor], nodes: TypedNodes, edge_index_dict: dict[EdgeType, Any]) -> Tensor:
        """The sum of weighed values for each node of all types."""
        edge_types = [*edge_index_dict]
        _graph, relations = nodes.joined(edge_index_dict)
        pairs = relations.sources
        if self._maps_once(x_dict, pairs.count):
            operands = self._mapped_once(x_dict, gathered(pairs), edge_types)
        else:
            key, query, value = torch.cat([*self.kqv_lin(x_dict).values()]).split(self.out_channels, dim=1)
            key = typed_product(key, self._of_keys(edge_types), gathered(pairs))
            value = typed_product(value, self._by_type(self.v_rel, edge_types), gathered(pairs))
            operands = {'query': query, 'key': key, 'value': value}
        shape = self.heads, self.out_channels // self.heads
        operands['scale'] = 1 / math.sqrt(shape[1])
        return aggregate(TRANSFORMER, walked(relations.from_pairs), operands, *shape, self.reduction, flat=True)

    def _maps_once(self, x_dict: dict[str, Tensor], count: int) -> bool:
        """Whether features are mapped to keys and values of `count` pairs at once, not first by types of nodes."""
        lins = self.kqv_lin.lins
        if why_not_as_it_is(self.kqv_lin, 'kqv_lin') or not all(_is_affine(lins[kind]) for kind in x_dict):
            return False
        widths, total = {x.shape[1] for x in x_dict.values()}, sum(map(len, x_dict.values()))
        return len(widths) == 1 and (count - total) * max(widths) < count * self.out_channels

    def _mapped_once(self, x_dict: dict[str, Tensor], rows: TypedRows, edge_types: list[EdgeType]) -> dict[str, Tensor]:
        """The operands, where the maps of types of nodes and those of types of edges are multiplied first."""
        x, lins = torch.cat([*x_dict.values()]), self.kqv_lin.lins
        maps = {kind: torch.cat([lins[kind].weight, lins[kind].bias.unsqueeze(1)], dim=1) for kind in x_dict}
        of_nodes = {kind: both.view(3, self.heads, -1, both.shape[1]) for kind, both in maps.items()}

        def mapped(place: int, of_edges: Tensor) -> Tensor:
            of_sources = torch.stack([of_nodes[kind[0]][place] for kind in edge_types])
            both = torch.einsum('rhdi,rhde->rihe', of_sources, of_edges).flatten(2)
            return typed_product(x, both[:, :-1], rows, both[:, -1])

        queries = torch.stack([both[1].flatten(0, 1).t() for both in of_nodes.values()])
        bounds = tuple(itertools.accumulate(map(len, x_dict.values()), initial=0))
        query = typed_product(x, queries[:, :-1], TypedRows(bounds, None, None, len(x)), queries[:, -1])
        value = mapped(2, self._by_type(self.v_rel, edge_types))
        return {'query': query, 'key': mapped(0, self._of_keys(edge_types)), 'value': value}

    def _by_type(self, maps: HeteroLinear, edge_types: list[EdgeType]) -> Tensor:
        """The matrices of the heads of each type of edges, ``[types, H, C, C]``."""
        numbers = [self.edge_types_map[edge_type] for edge_type in edge_types]
        return maps.weight.unflatten(0, (self.heads, len(self.edge_types)))[:, numbers].transpose(0, 1)

    def _of_keys(self, edge_types: list[EdgeType]) -> Tensor:
        """Those of keys, with the prior of each type."""
        prior = torch.cat([self.p_rel['__'.join(edge_type)] for edge_type in edge_types])
        matrices = self._by_type(self.k_rel, edge_types)
        # a prior that is no parameter keeps its type
        return matrices * prior.to(matrices.dtype)[..., None, None]

    def _skipped(self, out: dict[str, Tensor], x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for kind, rows in out.items():
            if rows.shape[-1] == x_dict[kind].shape[-1]:
                alpha = self.skip[kind].sigmoid()
                rows = alpha * rows + (1 - alpha) * x_dict[kind]
            found[kind] = rows
        return found


_forward_untraced = torch.compiler.disable(HGTConv.forward)


def _is_affine(lin: torch.nn.Module) -> bool:
    """Whether a module is a linear map with a bias that nobody watches."""
    return why_not_linear(lin, 'a map') is None and lin.bias is not None
