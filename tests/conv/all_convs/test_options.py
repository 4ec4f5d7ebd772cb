"""Every convolution takes the options and the shapes of PyG."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import LOOPS, RANDOM, every, some
from tests.support.cases import (
    CHANNELS,
    EDGE_CONV,
    FA,
    FEATURES,
    GATED,
    GATV2,
    GINE_EDGES,
    GRAPH_WEIGHTS,
    LAYERS,
    SAGE,
    TRANSFORMER,
    TRANSFORMER_EDGES,
    Layer,
)
from tests.support.parity import GRAPHS

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@some(LAYERS, fast=[GRAPH_WEIGHTS, TRANSFORMER])
def test_aggregations(layer):
    for aggr in layer.aggregations:
        layer.check(RANDOM, options={'aggr': aggr}, narrow=False)


EXTREMES = [layer for layer in LAYERS if 'max' in layer.aggregations]


@some(EXTREMES, fast=[SAGE, EDGE_CONV, GINE_EDGES])
@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('graph', ['random', 'repeated edges', 'isolated nodes'])
def test_ties_share_gradients_as_in_pyg(graph, aggr, layer):
    example = GRAPHS[graph]()
    inputs = layer.inputs(example)
    inputs['x'] = inputs['x'].relu().round()
    if layer.edge is not None:
        inputs[layer.edge] = inputs[layer.edge].round()
    options = {'aggr': aggr}
    layer.check(example, **inputs, options=options, narrow=False)


def _maps_to(layer: Layer, nn: torch.nn.Module, **options) -> tuple[Layer, dict]:
    return layer, {'nn': nn, **options}


OPTIONS = [
    *[
        (layer, options)
        for layer in (GATV2, table.GATV2_EDGES)
        for options in (
            {'concat': False, 'residual': True},
            {'residual': True, 'bias': False},
            {'share_weights': True},
            {'share_weights': True, 'add_self_loops': False},
            {'negative_slope': 0.0},
            {'negative_slope': 1.5},
            {'negative_slope': -0.1, 'add_self_loops': False},
            {'in_channels': (FEATURES, FEATURES)},
        )
    ],
    *[
        (layer, options)
        for layer in (TRANSFORMER, TRANSFORMER_EDGES)
        for options in (
            {'concat': False},
            {'beta': True},
            {'beta': True, 'concat': False},
            {'root_weight': False},
            {'root_weight': False, 'beta': True},
            {'bias': False},
            {'dropout': 0.0, 'in_channels': (FEATURES, FEATURES)},
        )
    ],
    (SAGE, {'normalize': True}),
    (SAGE, {'project': True}),
    (SAGE, {'root_weight': False, 'bias': False}),
    (SAGE, {'normalize': True, 'project': True, 'aggr': 'max'}),
    (table.GRAPH, {'bias': False}),
    (table.GIN, {'eps': 0.3, 'train_eps': False}),
    (table.GINE, {'eps': 0.3, 'train_eps': False}),
    (GINE_EDGES, {'nn': torch.nn.Linear(FEATURES, 5), 'eps': -1.0}),
    _maps_to(EDGE_CONV, torch.nn.Linear(2 * FEATURES, CHANNELS, bias=False)),
    _maps_to(EDGE_CONV, torch_geometric.nn.Linear(2 * FEATURES, CHANNELS)),
    (table.GMM, {'bias': False}),
    (table.GMM, {'kernel_size': 1}),
    (table.AGNN, {'requires_grad': False}),
    (table.AGNN, {'add_self_loops': False}),
    (FA, {'eps': 0.0}),
    (FA, {'add_self_loops': False}),
    (FA, {'eps': -0.7, 'flow': 'target_to_source'}),
    (GATED, {'act': torch.nn.Tanh()}),
    (GATED, {'act': torch.nn.ReLU()}),
    (GATED, {'root_weight': False, 'bias': False}),
    (table.CG, {'batch_norm': True}),
    (table.CG, {'bias': False}),
    (table.CG_EDGES, {'batch_norm': True, 'aggr': 'mean'}),
]


@pytest.mark.parametrize(('layer', 'options'), OPTIONS, ids=str)
def test_options(layer, options):
    layer.check(LOOPS, options=options, narrow=False)


@pytest.mark.parametrize('dim', [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_pseudo_coordinates_of_other_dimensions(dim):
    table.GMM.check(RANDOM, options={'dim': dim}, edge_attr=RANDOM.edge_attr(dim), narrow=False)


SHAPES = [(1, 1), (1, 3), (2, 8), (3, 7), (1, 64), (5, 17)]


@pytest.mark.slow
@every
@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
def test_shapes(heads, channels, layer):
    width = heads * channels
    options = dict(layer.options)
    inputs = layer.inputs(RANDOM, features=width)
    for name in ('in_channels', 'out_channels', 'channels'):
        if name in options:
            options[name] = width
    if 'heads' in options:
        options |= {'heads': heads, 'out_channels': channels}
    if layer.name == 'GMMConv':
        options |= {'kernel_size': heads, 'out_channels': channels}
    if layer.name.startswith('GIN'):
        options['nn'] = table.mlp(width)
        if layer.width == FEATURES:
            inputs['edge_attr'] = RANDOM.edge_attr(width)
    if layer.name == 'EdgeConv':
        options['nn'] = torch.nn.Linear(2 * width, width)
    if layer.name == 'NNConv':
        options['nn'] = table.mlp(layer.width, width * width)
    layer.check(RANDOM, **inputs, options=options)


WITHOUT_CHANNELS = [
    pytest.param('GCNConv', {'aggr': aggr}, None, id=f'GCNConv-{aggr}') for aggr in ('add', 'mean', 'max')
] + [
    pytest.param('GMMConv', {'dim': 2, 'kernel_size': 3, 'separate_gaussians': apart}, 2, id=f'GMMConv-apart={apart}')
    for apart in (False, True)
]


@pytest.mark.parametrize(('name', 'options', 'edge_dim'), WITHOUT_CHANNELS)
@pytest.mark.filterwarnings('ignore:Initializing zero-element')
def test_a_layer_without_channels(name, options, edge_dim):
    found, edge = [], () if edge_dim is None else (RANDOM.edge_attr(edge_dim),)
    for module in (torch_geometric.nn, pygfuse.conv):
        x = torch.randn(60, 8, requires_grad=True)
        conv = getattr(module, name)(8, 0, **options)
        out = conv(x, RANDOM.edge_index, *edge)
        out.sum().backward()
        found.append((out, x.grad))
    assert conv.note.reason is None
    torch.testing.assert_close(found[1], found[0])
    outside = RANDOM.edge_index.clone()
    outside[0, 3] = 60
    with pytest.raises(ValueError, match='holds node 60'):
        conv(x, outside, *edge)
