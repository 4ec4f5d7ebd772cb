"""Layers whose messages are compiled, PyG's and users' own, with the options of their constructors."""

from __future__ import annotations

import torch_geometric.nn as pyg
from torch import Tensor, tensor
from torch.nn import PReLU

from tests.compiler import own_convs
from tests.properties.kind import BOTH, EDGES, NEITHER, SUMS, WIDTHS, Kind, named
from tests.support.cases import CHANNELS, EDGE_DIM, FEATURES

MAPPED = {**WIDTHS, 'out_channels': CHANNELS}


def degree_histogram() -> Tensor:
    return tensor([1, 4, 6, 3, 1])


COMPILED: dict[str, Kind] = {
    'SimpleConv': Kind(
        {}, {'aggr': SUMS, 'combine_root': named(None, 'sum', 'cat', 'self_loop')}, None,
        edge='edge_weight', takes_size=True, compiled=pyg.SimpleConv,
    ),
    'TAGConv': Kind(
        MAPPED, {'K': named(2, 0), 'bias': BOTH, 'normalize': BOTH}, edge='edge_weight', bipartite=False,
        lazy=False, compiled=pyg.TAGConv,
    ),
    'SGConv': Kind(
        MAPPED, {'K': named(2, 1), 'cached': NEITHER, 'add_self_loops': BOTH, 'bias': BOTH}, edge='edge_weight',
        bipartite=False, compiled=pyg.SGConv,
    ),
    'APPNP': Kind(
        {'alpha': 0.2}, {'K': named(2, 0), 'cached': NEITHER, 'add_self_loops': BOTH, 'normalize': BOTH}, None,
        edge='edge_weight', bipartite=False, compiled=pyg.APPNP,
    ),
    'ChebConv': Kind(
        MAPPED, {'K': named(3, 1), 'normalization': named('sym', 'rw'), 'bias': BOTH}, edge='edge_weight',
        bipartite=False, compiled=pyg.ChebConv,
    ),
    'LEConv': Kind(MAPPED, {'bias': BOTH}, edge='edge_weight', compiled=pyg.LEConv),
    'LGConv': Kind({}, {'normalize': BOTH}, None, edge='edge_weight', bipartite=False, compiled=pyg.LGConv),
    'ARMAConv': Kind(
        MAPPED,
        {
            'num_stacks': named(1, 2), 'num_layers': named(1, 2), 'shared_weights': NEITHER, 'bias': BOTH,
            'act': {'none': None, 'PReLU': PReLU},
        },
        edge='edge_weight', bipartite=False, compiled=pyg.ARMAConv,
    ),
    'GENConv': Kind(
        {**MAPPED, 'num_layers': 1},
        {
            'aggr': named('softmax', 'powermean', 'add', 'mean', 'max'), 'learn_t': NEITHER, 'learn_p': NEITHER,
            'msg_norm': NEITHER, 'bias': NEITHER, 'edge_dim': EDGES,
        },
        edge='edge_attr', edge_width='edge_dim', takes_size=True, compiled=pyg.GENConv,
    ),
    'PNAConv': Kind(
        {**MAPPED, 'deg': degree_histogram, 'scalers': ['identity', 'amplification', 'attenuation']},
        {
            'aggregators': named(['mean', 'max'], ['sum', 'min', 'std'], ['var']), 'edge_dim': EDGES,
            'towers': named(1, 2), 'divide_input': NEITHER,
        },
        edge='edge_attr', edge_width='edge_dim', bipartite=False, lazy=False, compiled=pyg.PNAConv,
    ),
    'EGConv': Kind(
        {**MAPPED, 'num_heads': 2, 'num_bases': 3},
        {
            'aggregators': named(['symnorm'], ['mean', 'max'], ['sum', 'min', 'std'], ['var']), 'cached': NEITHER,
            'add_self_loops': BOTH, 'bias': BOTH,
        },
        bipartite=False, lazy=False, compiled=pyg.EGConv,
    ),
    'FeaStConv': Kind(
        MAPPED, {'heads': named(1, 2), 'add_self_loops': BOTH, 'bias': BOTH}, compiled=pyg.FeaStConv,
    ),
    'PDNConv': Kind(
        {**MAPPED, 'edge_dim': EDGE_DIM, 'hidden_channels': 5},
        {'add_self_loops': BOTH, 'normalize': BOTH, 'bias': BOTH},
        edge='edge_attr', edge_features=EDGE_DIM, bipartite=False, lazy=False, compiled=pyg.PDNConv,
    ),
    'GeneralConv': Kind(
        {**MAPPED, 'heads': 2},
        {
            'in_edge_channels': EDGES, 'aggr': SUMS, 'skip_linear': NEITHER, 'directed_msg': BOTH, 'attention': NEITHER,
            'attention_type': named('additive', 'dot_product'), 'l2_normalize': NEITHER, 'bias': BOTH,
        },
        edge='edge_attr', edge_width='in_edge_channels', takes_size=True, compiled=pyg.GeneralConv,
    ),
    'MFConv': Kind(
        {**MAPPED, 'max_degree': 3}, {'bias': BOTH}, takes_size=True, compiled=pyg.MFConv,
    ),
    'GatedGraphConv': Kind(
        {'out_channels': FEATURES, 'num_layers': 2}, {'aggr': SUMS, 'bias': BOTH}, None, edge='edge_weight',
        bipartite=False, compiled=pyg.GatedGraphConv,
    ),
    'ClusterGCNConv': Kind(
        MAPPED, {'diag_lambda': named(0.0, 0.5), 'add_self_loops': BOTH, 'bias': BOTH}, bipartite=False,
        compiled=pyg.ClusterGCNConv,
    ),
    'WLConvContinuous': Kind({}, {}, None, edge='edge_weight', takes_size=True, compiled=pyg.WLConvContinuous),
    'NaiveAttention': Kind({}, {}, None, compiled=own_convs.NaiveAttention),
    'HeadedAttention': Kind(
        {}, {'heads': named(2, 4), 'dropout': named(0.0, 0.5, 1.0)}, None, edge='edge_attr', edge_features=EDGE_DIM,
        compiled=own_convs.HeadedAttention,
    ),
    'Gate': Kind({}, {}, None, edge='edge_attr', edge_features=EDGE_DIM, compiled=own_convs.Gate),
    'Network': Kind(
        {}, {'aggr': named('max', 'add', 'mean', 'min')}, None, ties_differ=True, compiled=own_convs.Network,
    ),
    'InPlace': Kind({}, {}, None, compiled=own_convs.InPlace),
    'Centred': Kind({}, {}, None, compiled=own_convs.Centred),
}  # fmt: skip
