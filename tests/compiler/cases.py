"""Every message passing class of PyG's, with options and inputs: what the tests and the table of support run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch.nn import Linear, ReLU, Sequential, SiLU

from tests.support.parity import Example

FEATURES, OUT, EDGE_DIM = 8, 4, 3
DEGREES = torch.tensor([1, 4, 9, 20, 30, 20, 10, 6])
WIDTHS = {'in_channels': FEATURES, 'out_channels': OUT}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A class with options.

    Attributes:
        name: Of the class.
        options: Keyword arguments of its constructor.
        inputs: Keyword arguments of ``forward`` for an example, without the edges.
        edges: The name of the argument that takes them, or None.
        reason: What is told of the layer if it does not run fused; None if it does.
        adjacency: The edges as it takes them.
    """

    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inputs: Callable[[Example], dict[str, Any]] = lambda example: {'x': example.x(FEATURES)}
    edges: str = 'edge_index'
    reason: str | None = None
    adjacency: Callable[[Example], Any] = lambda example: example.edge_index

    def __str__(self) -> str:
        said = ', '.join(f'{name}={_short(value)}' for name, value in self.options.items() if name not in WIDTHS)
        return f'{self.name}({said})'

    @property
    def plain(self) -> type:
        return getattr(pyg, self.name)

    def arguments(self, example: Example) -> dict[str, Any]:
        return {**self.inputs(example), self.edges: self.adjacency(example)}


def _short(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (torch.nn.Module, torch.Tensor)) else str(value)


def _with(**more: Callable[[Example], Any]) -> Callable[[Example], dict[str, Any]]:
    return lambda example: {'x': example.x(FEATURES)} | {name: make(example) for name, make in more.items()}


def _weight(example: Example) -> Any:
    return example.edge_attr().abs() + 0.25


def _edge(width: int = EDGE_DIM) -> Callable[[Example], Any]:
    return lambda example: example.edge_attr(width)


def _position(example: Example) -> Any:
    return example.x(3, seed=5)


def _normal(example: Example) -> Any:
    return torch.nn.functional.normalize(example.x(3, seed=6), dim=-1)


def _types(example: Example) -> Any:
    return torch.arange(example.num_edges) % 2


def _mlp(features: int, out: int) -> Sequential:
    return Sequential(Linear(features, 6), ReLU(), Linear(6, out))


WEIGHTED = _with(edge_weight=_weight)
METADATA = (['a'], [('a', 'to', 'a')])
PNA = {**WIDTHS, 'deg': DEGREES, 'scalers': ['identity', 'amplification', 'attenuation', 'linear']}

# propagation, and other layers that multiply neighbours by numbers
PROPAGATION = [
    Case('SimpleConv', {'aggr': 'mean', 'combine_root': 'self_loop'}),
    Case('SimpleConv', {}, WEIGHTED),
    Case('SimpleConv', {'aggr': ['sum', 'max', 'std']}),
    Case('ChebConv', {**WIDTHS, 'K': 3}),
    Case('ChebConv', {**WIDTHS, 'K': 2}, WEIGHTED),
    Case('GatedGraphConv', {'out_channels': FEATURES, 'num_layers': 2}),
    Case('GatedGraphConv', {'out_channels': FEATURES, 'num_layers': 2}, WEIGHTED),
    Case('TAGConv', WIDTHS),
    Case('TAGConv', {**WIDTHS, 'normalize': False}),
    Case('TAGConv', WIDTHS, WEIGHTED),
    Case('ARMAConv', {**WIDTHS, 'num_stacks': 2, 'num_layers': 2}),
    Case('ARMAConv', WIDTHS, WEIGHTED),
    Case('SGConv', {**WIDTHS, 'K': 2}),
    Case('SGConv', WIDTHS, WEIGHTED),
    Case('SSGConv', {**WIDTHS, 'alpha': 0.1, 'K': 2}),
    Case('APPNP', {'K': 3, 'alpha': 0.1}),
    Case('APPNP', {'K': 2, 'alpha': 0.1}, WEIGHTED),
    Case('LGConv', {}),
    Case('LGConv', {'normalize': False}, WEIGHTED),
    Case('MixHopConv', WIDTHS),
    Case('ClusterGCNConv', WIDTHS),
    Case('GCN2Conv', {'channels': FEATURES, 'alpha': 0.1}, _with(x_0=lambda e: e.x(FEATURES, seed=2))),
    Case('LEConv', WIDTHS),
    Case('LEConv', WIDTHS, WEIGHTED),
    Case('WLConvContinuous', {}, WEIGHTED),
    Case('PDNConv', {**WIDTHS, 'edge_dim': EDGE_DIM, 'hidden_channels': 5}, _with(edge_attr=_edge())),
    Case('MFConv', {**WIDTHS, 'max_degree': 4}),
    Case(
        'SignedConv',
        {**WIDTHS, 'first_aggr': True},
        _with(neg_edge_index=lambda e: e.edge_index[:, ::2]),
        'pos_edge_index',
    ),
    Case('HypergraphConv', WIDTHS, edges='hyperedge_index'),
    Case('PANConv', {**WIDTHS, 'filter_size': 2}),
]

# attention, gates, several aggregations
ATTENTION = [
    Case('GENConv', WIDTHS),
    Case('GENConv', {**WIDTHS, 'learn_t': True, 'edge_dim': EDGE_DIM}, _with(edge_attr=_edge())),
    Case('GENConv', {**WIDTHS, 'aggr': 'powermean'}),
    Case('PNAConv', {**PNA, 'aggregators': ['mean', 'min', 'max', 'std']}),
    Case('PNAConv', {**PNA, 'aggregators': ['sum', 'var'], 'edge_dim': EDGE_DIM}, _with(edge_attr=_edge())),
    Case('PNAConv', {**PNA, 'aggregators': ['mean'], 'towers': 2}),
    Case('EGConv', {**WIDTHS, 'num_heads': 2}),
    Case('EGConv', {**WIDTHS, 'num_heads': 2, 'aggregators': ['symnorm', 'max', 'std', 'mean']}),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'softmax'}),
    Case('SAGEConv', {**WIDTHS, 'aggr': ['mean', 'max', 'std']}),
    Case('SuperGATConv', {**WIDTHS, 'heads': 2, 'attention_type': 'MX'}),
    Case('SuperGATConv', {**WIDTHS, 'heads': 2, 'attention_type': 'SD'}),
    Case('FeaStConv', {**WIDTHS, 'heads': 2}),
    Case('FeaStConv', {**WIDTHS, 'heads': 3, 'add_self_loops': False}),
    Case('FiLMConv', WIDTHS),
    Case('FiLMConv', {**WIDTHS, 'num_relations': 2}, _with(edge_type=_types)),
    Case('GeneralConv', WIDTHS),
    Case('GeneralConv', {**WIDTHS, 'attention': True, 'heads': 2}),
    Case('GeneralConv', {**WIDTHS, 'attention': True, 'heads': 2, 'attention_type': 'dot_product'}),
    Case('GeneralConv', {**WIDTHS, 'in_edge_channels': EDGE_DIM, 'directed_msg': False}, _with(edge_attr=_edge())),
    Case('PointTransformerConv', WIDTHS, _with(pos=_position)),
    Case('PointNetConv', {}, _with(pos=_position)),
    Case('PointNetConv', {'local_nn': Linear(FEATURES + 3, OUT)}, _with(pos=_position)),
    Case(
        'PointNetConv',
        {'local_nn': _mlp(FEATURES + 3, OUT)},
        _with(pos=_position),
    ),
    Case(
        'PointGNNConv',
        {
            'mlp_h': Linear(FEATURES, 3),
            'mlp_f': Sequential(Linear(FEATURES + 3, OUT), SiLU()),
            'mlp_g': Linear(OUT, FEATURES),
        },
        _with(pos=_position),
    ),
    Case(
        'DNAConv',
        {'channels': FEATURES, 'heads': 2},
        lambda e: {'x': e.x(3 * FEATURES).view(-1, 3, FEATURES)},
        reason='a linear map of each edge of its own',
    ),
    Case(
        'PPFConv',
        {'local_nn': Linear(FEATURES + 4, OUT)},
        _with(pos=_position, normal=_normal),
    ),
    Case(
        'NNConv',
        {**WIDTHS, 'nn': Linear(EDGE_DIM, FEATURES * OUT)},
        _with(edge_attr=_edge()),
    ),
    Case(
        'NNConv',
        {**WIDTHS, 'nn': Sequential(Linear(EDGE_DIM, 6), ReLU(), Linear(6, FEATURES * OUT)), 'aggr': 'mean'},
        _with(edge_attr=_edge()),
    ),
    Case(
        'NNConv',
        {**WIDTHS, 'nn': Linear(9, FEATURES * OUT)},
        _with(edge_attr=_edge(9)),
    ),
]

TYPED = [
    Case('HEATConv', {**WIDTHS, 'num_node_types': 2, 'num_edge_types': 2, 'edge_type_emb_dim': 3, 'edge_dim': EDGE_DIM,
                      'edge_attr_emb_dim': 4},
         _with(node_type=lambda e: torch.arange(e.num_sources) % 2, edge_type=_types, edge_attr=_edge())),
    Case('HEATConv', {**WIDTHS, 'num_node_types': 2, 'num_edge_types': 2, 'edge_type_emb_dim': 3, 'edge_dim': EDGE_DIM,
                      'edge_attr_emb_dim': 4, 'heads': 2, 'concat': False},
         _with(node_type=lambda e: torch.arange(e.num_sources) % 2, edge_type=_types, edge_attr=_edge())),
]  # fmt: skip


def _dict(example: Example) -> dict[str, Any]:
    return {'x_dict': {'a': example.x(FEATURES)}}


def _dict_of_edges(example: Example) -> dict[tuple[str, str, str], Any]:
    return {METADATA[1][0]: example.edge_index}


def _mesh(example: Example) -> Any:
    # each edge of a mesh has four neighbours
    count = example.num_sources
    return torch.stack([(torch.arange(count * 4) * 7 + 3) % count, torch.arange(count).repeat_interleave(4)])


OTHER = [
    Case('HANConv', {**WIDTHS, 'metadata': METADATA, 'heads': 2}, _dict, 'edge_index_dict', adjacency=_dict_of_edges),
    Case('MeshCNNConv', WIDTHS, adjacency=_mesh, reason='an index over edges'),
]
# PyG's own layer multiplies matrices of torch_sparse
NEED_TORCH_SPARSE = ('PANConv',)
CASES = [*OTHER, *PROPAGATION, *ATTENTION, *TYPED]
