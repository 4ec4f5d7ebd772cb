"""The fused layers forward and backward beside PyG's, all kernels launched through a stand-in for the CUDA driver."""

import importlib

import pytest
import torch
from torch_geometric.utils import scatter

import pygfuse.conv
from pygfuse.ops.hag import hag_aggregate
from pygfuse.transforms import find_hag
from tests.conv import (
    test_cf_conv,
    test_dynamic_edge_conv,
    test_gate_conv,
    test_grav_net_conv,
    test_meta_layer,
    test_nn_conv,
    test_spline_conv,
)
from tests.support import edge_conv
from tests.support.cases import EDGES, GAT, GAT_EDGES, NN, PLAIN, SAGE
from tests.support.parity import GRAPHS, assert_close, results
from tests.support.pyg_lib import pyg_lib

SMALL = GRAPHS['self-loops']()
# it launches one kernel
QUICK = (SAGE,)
LAYERS = [
    pytest.param(layer, marks=() if layer in QUICK else pytest.mark.slow)
    for layer in (GAT, GAT_EDGES, *PLAIN, *EDGES)
    if layer is not NN
]


@pytest.mark.parametrize('layer', LAYERS, ids=str)
@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_layers_forward_and_backward(driver, layer):
    inputs = {**layer.inputs(SMALL), 'edge_index': SMALL.edge_index}
    pyg, fused = layer.pair()
    reference = results(pyg.double(), inputs, torch.float64, 0)
    plain = results(layer.pair()[0], inputs, torch.float32, 0)
    assert_close(results(fused, inputs, torch.float32, 0), reference, plain)
    assert fused.note.reason is None
    names = [launch.name for launch in driver.launches]
    assert any('backward' in name for name in names) or names.count(names[0]) > 1


def checked(module, *arguments):
    """What the tests of a layer's own check: in both types, against PyG."""
    return lambda: importlib.import_module(f'tests.conv.{module}').check(*arguments)


OTHERS = {
    'RGCNConv': checked('test_rgcn_conv', 'RGCNConv', SMALL),
    'FastRGCNConv': checked('test_rgcn_conv', 'FastRGCNConv', SMALL),
    'RGATConv': checked('test_rgat_conv', SMALL),
    'FiLMConv': checked('test_film_conv', SMALL),
    'HEATConv': checked('test_heat_conv', SMALL),
    'HGTConv': checked('test_hgt_conv'),
    'HANConv': checked('test_han_conv'),
    'GATEConv': lambda: test_gate_conv.PARITY.check(test_gate_conv.OPTIONS, **test_gate_conv.inputs(SMALL)),
}


def with_pyg_lib(check, *arguments):
    with pyg_lib():
        check(*arguments)


# beside kernels these have operators of torch, on chunks of edges
NETWORKS = {
    'EdgeConv': lambda: [
        edge_conv.check(edge_conv.NETWORKS[name](), aggr, SMALL)
        for name in ('two', 'two, norm between', 'three, nothing rises')
        for aggr in ('max', 'mean')
    ],
    'CFConv': lambda: test_cf_conv.test_outputs_and_gradients_are_those_of_pyg("SchNet's", 'self-loops'),
    'NNConv': lambda: test_nn_conv.test_networks('three maps', 'mean', 'self-loops'),
    'MetaLayer': lambda: [
        test_meta_layer.test_outputs_and_gradients_are_those_of_pyg(name, 'self-loops')
        for name in test_meta_layer.LAYERS
    ],
    'DynamicEdgeConv': lambda: test_dynamic_edge_conv.test_is_edge_conv_on_the_nearest_neighbours('max'),
    'GravNetConv': lambda: with_pyg_lib(test_grav_net_conv.check, test_grav_net_conv.points(), None),
    'SplineConv': lambda: with_pyg_lib(test_spline_conv.check, SMALL, {'aggr': 'max'}),
}


def test_every_class_is_here():
    classes = {name for name in pygfuse.conv.__all__ if isinstance(getattr(pygfuse.conv, name), type)}
    layers = {name for name in classes if issubclass(getattr(pygfuse.conv, name), torch.nn.Module)} - {'FusedConv'}
    assert layers == {layer.name for layer in (GAT, *PLAIN, *EDGES)} | {*OTHERS} | {*NETWORKS}


@pytest.mark.slow
@pytest.mark.parametrize('name', OTHERS)
@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_other_layers_forward_and_backward(driver, name):
    OTHERS[name]()
    assert len(driver.launches) > 1


@pytest.mark.slow
@pytest.mark.parametrize('name', NETWORKS)
@pytest.mark.usefixtures('in_place_of_the_cpu', 'driver')
def test_networks_on_chunks_of_edges(name, monkeypatch):
    # several of each graph
    monkeypatch.setattr('pygfuse.cuda.edge_chunks.CHUNK_BYTES', 2**9)
    monkeypatch.setattr('pygfuse.cuda.edge_chunks.LEAST_EDGES', 20)
    NETWORKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize('reduce', ['sum', 'max'])
@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_hags_forward_and_backward(driver, reduce):
    edge_index = torch.tensor([[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 5, 1, 2], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]])
    hag = find_hag(edge_index, (6, 4), capacity=None)
    assert hag.depth > 1
    x, grad = torch.randn(6, 8, requires_grad=True), torch.randn(4, 8)
    results = [hag_aggregate(hag, x, reduce), scatter(x[edge_index[0]], edge_index[1], reduce=reduce)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(found, x, grad)[0] for found in results))
    assert len(driver.launches) > 2
