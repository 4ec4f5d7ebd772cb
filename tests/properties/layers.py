"""All layers with the options of their constructors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import BatchNorm1d, LeakyReLU, Linear, PReLU, ReLU, Sequential, SiLU
from torch_geometric.nn import MLP

from tests.properties.compiled_layers import COMPILED
from tests.properties.kind import ABSENT, AGGREGATIONS, BOTH, EDGES, NEITHER, SUMS, WIDTHS, Kind, named
from tests.support.cases import CHANNELS, EDGE_DIM, FEATURES, mlp


def film_network() -> Sequential:
    return Sequential(Linear(FEATURES, 6), SiLU(), Linear(6, 2 * CHANNELS))


# few: each shape has its own kernels
HEADS = {'2 x 4': {'heads': 2, 'out_channels': CHANNELS}, '1 x 5': {'heads': 1, 'out_channels': 5}}
ATTENTION = {'shape': HEADS, 'concat': BOTH, 'dropout': named(0.0, 0.5, 1.0), 'edge_dim': EDGES, 'bias': BOTH}
LOOPS = {'add_self_loops': BOTH, 'fill_value': named('mean', 0.5, 'add', 'max')}
SLOPE = {'negative_slope': named(0.2, 0.7)}
NETWORKS = {
    'map': lambda: Linear(2 * FEATURES, CHANNELS),
    'map without bias': lambda: Linear(2 * FEATURES, CHANNELS, bias=False),
    'SiLU': lambda: Sequential(Linear(2 * FEATURES, 6), SiLU()),
    'two maps': lambda: Sequential(Linear(2 * FEATURES, 6), SiLU(), Linear(6, 5)),
    'rectifiers': lambda: Sequential(Linear(2 * FEATURES, 6), ReLU(), Linear(6, 5), LeakyReLU(0.1)),
    'normalised': lambda: Sequential(Linear(2 * FEATURES, 6), BatchNorm1d(6), LeakyReLU(0.2)),
    'PReLU': lambda: Sequential(Linear(2 * FEATURES, 6), PReLU(6)),
    'MLP': lambda: MLP([2 * FEATURES, 6, 5]),
    'not fused': lambda: Sequential(Linear(2 * FEATURES, 6), torch.nn.LayerNorm(6)),
}
FILTERS = {
    'map': lambda: Linear(EDGE_DIM, FEATURES * CHANNELS),
    'two maps': lambda: Sequential(Linear(EDGE_DIM, 6), SiLU(), Linear(6, FEATURES * CHANNELS, bias=False)),
    'not fused': lambda: Sequential(Linear(EDGE_DIM, FEATURES * CHANNELS), ReLU()),
}
ACTIVATIONS = {'sigmoid': ABSENT, 'tanh': torch.nn.Tanh, 'relu': ReLU, 'not fused': torch.nn.Hardsigmoid}

# how the matrices of relations are made
RELATIONS = {
    'whole': {'num_relations': 3},
    'bases': {'num_relations': 3, 'num_bases': 2},
    'blocks': {'num_relations': 3, 'num_blocks': 2},
    'many': {'num_relations': 140},
}
EDGE_TYPES, NODE_TYPES = 3, 2
METADATA = ['a', 'b'], [('a', 'to', 'b'), ('b', 'back', 'a'), ('a', 'also', 'b')]

KINDS: dict[str, Kind] = {
    'GATConv': Kind(
        WIDTHS, {**ATTENTION, **LOOPS, **SLOPE, 'residual': NEITHER, 'aggr': SUMS},
        edge='edge_attr', edge_width='edge_dim', takes_size=True, attention=True,
    ),
    'GATv2Conv': Kind(
        WIDTHS,
        {
            **ATTENTION, **LOOPS, **SLOPE, 'residual': NEITHER, 'share_weights': NEITHER,
            'aggr': SUMS,
        },
        edge='edge_attr', edge_width='edge_dim', attention=True,
    ),
    'TransformerConv': Kind(
        WIDTHS, {**ATTENTION, 'beta': NEITHER, 'root_weight': BOTH, 'aggr': SUMS},
        edge='edge_attr', edge_width='edge_dim', attention=True,
    ),
    'GCNConv': Kind(
        WIDTHS,
        {
            'out_channels': named(FEATURES, 5), 'improved': NEITHER, 'cached': NEITHER, 'add_self_loops': BOTH,
            'normalize': BOTH, 'bias': BOTH, 'aggr': AGGREGATIONS,
        },
        edge='edge_weight', bipartite=False,
    ),
    'SAGEConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {
            'aggr': {**AGGREGATIONS, **named('lstm', 'softmax', ['mean', 'max'])}, 'normalize': NEITHER,
            'root_weight': BOTH, 'project': NEITHER, 'bias': BOTH, 'decomposed_layers': named(1, 2),
        },
        takes_size=True,
    ),
    'GraphConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS}, {'aggr': AGGREGATIONS, 'bias': BOTH}, edge='edge_weight', takes_size=True,
    ),
    'GINConv': Kind(
        {'nn': mlp}, {'eps': named(0.0, 0.3), 'train_eps': BOTH, 'aggr': AGGREGATIONS}, None, takes_size=True,
    ),
    'GINEConv': Kind(
        {'nn': mlp}, {'eps': named(0.0, 0.3), 'train_eps': BOTH, 'edge_dim': EDGES, 'aggr': SUMS}, None,
        edge='edge_attr', edge_width='edge_dim', takes_size=True,
    ),
    'EdgeConv': Kind({}, {'nn': NETWORKS, 'aggr': named('max', 'add', 'mean', 'min')}, None, ties_differ=True),
    'GMMConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS, 'kernel_size': 2},
        {
            'dim': named(2, 1), 'separate_gaussians': NEITHER,
            'aggr': SUMS, 'root_weight': BOTH, 'bias': BOTH,
        },
        edge='edge_attr', edge_width='dim', takes_size=True,
    ),
    'AGNNConv': Kind(
        {}, {'requires_grad': BOTH, 'add_self_loops': BOTH, 'aggr': SUMS}, None, bipartite=False,
    ),
    'FAConv': Kind(
        {'channels': FEATURES},
        {
            'eps': named(0.1, 0.0), 'dropout': named(0.0, 0.5, 1.0), 'cached': NEITHER, 'add_self_loops': BOTH,
            'normalize': BOTH, 'aggr': SUMS,
        },
        None, edge='edge_weight', bipartite=False, attention=True,
    ),
    'ResGatedGraphConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {
            'act': ACTIVATIONS, 'edge_dim': EDGES, 'root_weight': BOTH, 'bias': BOTH,
            'aggr': SUMS,
        },
        edge='edge_attr', edge_width='edge_dim',
    ),
    # torch's sigmoid of one number may be two numbers, by its place in memory: edges that tie here do not in PyG
    'CGConv': Kind(
        {'channels': FEATURES},
        {'dim': {'none': 0, 'edges': EDGE_DIM}, 'aggr': SUMS, 'batch_norm': NEITHER, 'bias': BOTH}, 'channels',
        edge='edge_attr', edge_width='dim', lazy=False, ties_differ=True,
    ),
    'RGCNConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {'shape': RELATIONS, 'aggr': named('mean', 'add', 'max', 'min', 'median'), 'root_weight': BOTH, 'bias': BOTH},
        lazy=False, edge_types=True,
    ),
    'FastRGCNConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {'shape': RELATIONS, 'aggr': named('mean', 'add'), 'root_weight': BOTH, 'bias': BOTH},
        lazy=False, edge_types=True,
    ),
    'RGATConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS, 'heads': 2},
        {
            'shape': RELATIONS, 'attention_mode': named('additive-self-attention', 'multiplicative-self-attention'),
            'attention_mechanism': named('across-relation', 'within-relation'), 'dim': named(1, 2),
            'mod': named(None, 'additive', 'scaled', 'f-additive', 'f-scaled'), **SLOPE, 'concat': BOTH,
            'dropout': named(0.0, 0.5, 1.0), 'edge_dim': EDGES, 'bias': BOTH, 'aggr': SUMS,
        },
        edge='edge_attr', edge_width='edge_dim', lazy=False, takes_size=True, attention=True, edge_types=True,
        ties_differ=True,
    ),
    'FiLMConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {
            'num_relations': named(3, 1, 20),
            'nn': {'map': None, 'own map': lambda: Linear(FEATURES, 2 * CHANNELS, bias=False), 'network': film_network},
            'act': {
                'ReLU': ABSENT, 'none': None, 'tanh': torch.nn.Tanh, 'PReLU': lambda: PReLU(CHANNELS),
                'not fused': torch.nn.GELU,
            },
            'aggr': named('mean', 'add', 'max', 'min', 'median'),
        },
        edge_types=True,
    ),
    'HEATConv': Kind(
        {
            **WIDTHS, 'num_edge_types': EDGE_TYPES, 'num_node_types': NODE_TYPES, 'edge_type_emb_dim': 2,
            'edge_attr_emb_dim': 5,
        },
        {
            'shape': HEADS, 'concat': BOTH, 'dropout': named(0.0, 0.5, 1.0), 'edge_dim': {'edges': EDGE_DIM}, **SLOPE,
            'root_weight': BOTH, 'bias': BOTH, 'aggr': SUMS,
        },
        edge='edge_attr', edge_width='edge_dim', bipartite=False, edge_types=True, node_types=NODE_TYPES,
    ),
    'HGTConv': Kind(
        {**WIDTHS, 'out_channels': 2 * CHANNELS, 'metadata': METADATA}, {'heads': named(2, 1)}, by_type=True,
    ),
    'HANConv': Kind(
        {**WIDTHS, 'out_channels': 2 * CHANNELS, 'metadata': METADATA},
        {'heads': named(2, 1), 'dropout': named(0.0, 0.5, 1.0), **SLOPE}, by_type=True,
    ),
    'NNConv': Kind(
        {**WIDTHS, 'out_channels': CHANNELS},
        {'nn': FILTERS, 'aggr': SUMS, 'root_weight': BOTH, 'bias': BOTH},
        edge='edge_attr', edge_features=EDGE_DIM, takes_size=True,
    ),
    **COMPILED,
}  # fmt: skip


def options_of(name: str, meaning: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a layer's constructor, from what a case's values stand for; modules are made anew."""
    kind = KINDS[name]
    found = {**kind.fixed, **{option: meaning[option] for option in kind.options}}
    if kind.compiled is None:
        found['flow'] = meaning['flow']  # a user's own layer may not take it
    found |= found.pop('shape', {})
    return {option: value() if callable(value) else value for option, value in found.items() if value is not ABSENT}
