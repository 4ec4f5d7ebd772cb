"""Bad input of every convolution raises an error that names the argument."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import EdgeIndex

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import SMALL, every, of_each_kind
from tests.support.cases import FEATURES, LAYERS
from tests.support.parity import Example, random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@of_each_kind
@pytest.mark.parametrize('node', [5, -1, 2**40])
@pytest.mark.parametrize('kind', ['edge_index', 'EdgeIndex'])
def test_an_index_out_of_range(kind, node, layer):
    example = Example(random_edges(5, 5, 12), 5, 5)
    for row in (0, 1):
        edge_index = example.edge_index.clone()
        edge_index[row, 3] = node
        edge_index = EdgeIndex(edge_index) if kind == 'EdgeIndex' else edge_index
        with pytest.raises(ValueError, match=rf'edge_index\[{row}\] holds node {node}'):
            layer.fused()(edge_index=edge_index, **layer.inputs(example))


@of_each_kind
@pytest.mark.parametrize('edge_index', [torch.zeros(3, 4).long(), torch.zeros(2, 4), [[0], [1]], None], ids=str)
def test_what_is_no_adjacency(edge_index, layer):
    with pytest.raises(ValueError, match='edge_index'):
        layer.fused()(edge_index=edge_index, **layer.inputs(SMALL))


# AGNNConv takes any width; the others leave it to the layer inside, as PyG does
ANY_WIDTH = (table.AGNN, table.GIN, table.GINE)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer not in ANY_WIDTH], ids=str)
@pytest.mark.parametrize('features', [FEATURES - 1, 2 * FEATURES])
def test_features_of_a_wrong_width(features, layer):
    with pytest.raises(ValueError, match="'x"):
        layer.fused()(edge_index=SMALL.edge_index, **layer.inputs(SMALL, features=features))


@pytest.mark.parametrize('train_eps', [False, True])
def test_features_of_another_width_than_those_of_edges_give(train_eps):
    conv = pygfuse.conv.GINEConv(torch.nn.Linear(8, 4), train_eps=train_eps, edge_dim=3)
    with pytest.raises(ValueError, match="Expected 'x' to have 8 features, as the linear map of edges gives"):
        conv(torch.randn(5, 7), random_edges(5, 5, 12), torch.randn(12, 3))


@pytest.mark.parametrize('name', ['GATConv', 'GATv2Conv', 'TransformerConv'])
def test_features_as_wide_as_those_of_edges(name):
    conv = getattr(pygfuse.conv, name)(16, 8, edge_dim=3)
    with pytest.raises(ValueError, match="Expected 'x' to have 16 features"):
        conv(torch.randn(5, 3), random_edges(5, 5, 12), torch.randn(12, 3))


@pytest.mark.parametrize('layer', table.EDGES, ids=str)
@pytest.mark.parametrize('num_edges', [0, 7, 9])
def test_edge_features_of_a_wrong_length(num_edges, layer):
    inputs = layer.inputs(SMALL)
    shape = (num_edges,) if layer.width is None else (num_edges, layer.width)
    inputs[layer.edge] = torch.randn(shape)
    with pytest.raises(ValueError, match=f"'{layer.edge}'"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in table.EDGES if layer.width], ids=str)
@pytest.mark.parametrize('change', [-1, 1])
def test_edge_features_of_a_wrong_width(change, layer):
    inputs = layer.inputs(SMALL)
    inputs[layer.edge] = torch.randn(8, layer.width + change)
    with pytest.raises(ValueError, match=f"'{layer.edge}'"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer.takes_size], ids=str)
def test_size_that_contradicts_the_features(layer):
    for size in ((5, 4), (4, 5)):
        with pytest.raises(ValueError, match='size'):
            layer.fused()(edge_index=SMALL.edge_index, size=size, **layer.inputs(SMALL))


@every
def test_tensors_on_different_devices(layer):
    inputs = {**layer.inputs(SMALL), 'edge_index': SMALL.edge_index}
    for name in inputs:
        moved = {**inputs, name: inputs[name].to('meta')}
        with pytest.raises(ValueError, match=name):
            layer.fused()(**moved)


NO_FEATURES = [None, 3, (), (None, None), (torch.ones(4, FEATURES),) * 3]


@of_each_kind
@pytest.mark.parametrize('x', NO_FEATURES, ids=['None', 'a number', 'no tensors', 'a pair of None', 'three tensors'])
def test_what_are_no_features(x, layer):
    inputs = {**layer.inputs(SMALL), 'x': x}
    with pytest.raises(ValueError, match=r"Expected 'x(\[0\])?' to be a tensor|does not support bipartite"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if not layer.square], ids=str)
def test_features_that_are_no_tensor(layer):
    inputs = layer.inputs(SMALL)
    inputs['x'] = inputs['x'].numpy()
    with pytest.raises(ValueError, match=r"Expected 'x' to be a tensor of shape .*\(got ndarray\)"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)
