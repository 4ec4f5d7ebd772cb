"""Layers that torch.compile does not trace: they run fused between what it compiles before and behind them."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from pygfuse.conv._layer.untraced import NOT_TRACED, WEIGHTS_NOT_TRACED
from pygfuse.mapping import few_edges
from tests.compiler.own_convs import Network
from tests.support.parity import random_edges

NODES, EDGES, WIDTH, RELATIONS = 30, 200, 8, 3
METADATA = ['a', 'b'], [('a', 'x', 'b'), ('b', 'y', 'a')]


def _given(*more):
    generator = torch.Generator().manual_seed(0)
    values = {
        'edge_type': torch.randint(RELATIONS, (EDGES,), generator=generator),
        'node_type': torch.randint(2, (NODES,), generator=generator),
        'edge_attr': torch.randn(EDGES, 4, generator=generator),
        'return_attention_weights': True,
    }
    x = torch.randn(NODES, WIDTH, generator=generator)
    return {'x': x, 'edge_index': random_edges(NODES, NODES, EDGES), **{name: values[name] for name in more}}


def _typed():
    found = _given()
    edges = {kind: random_edges(NODES, NODES, EDGES, seed) for seed, kind in enumerate(METADATA[1])}
    return {'x_dict': {'a': found['x'], 'b': found['x'].flip(0)}, 'edge_index_dict': edges}


# layers, what they are given, and why they are not traced
LAYERS = {
    'RGCN': (lambda: pyg.RGCNConv(WIDTH, WIDTH, RELATIONS), lambda: _given('edge_type'), NOT_TRACED),
    'RGAT': (lambda: pyg.RGATConv(WIDTH, WIDTH, RELATIONS), lambda: _given('edge_type'), NOT_TRACED),
    'FiLM': (lambda: pyg.FiLMConv(WIDTH, WIDTH, RELATIONS), lambda: _given('edge_type'), NOT_TRACED),
    'HEAT': (
        lambda: pyg.HEATConv(WIDTH, 4, 2, RELATIONS, 5, 4, 6, heads=2),
        lambda: _given('node_type', 'edge_type', 'edge_attr'),
        NOT_TRACED,
    ),
    'HAN': (lambda: pyg.HANConv(WIDTH, WIDTH, METADATA, heads=2), _typed, NOT_TRACED),
    'HGT': (lambda: pyg.HGTConv(WIDTH, WIDTH, METADATA, heads=2), _typed, NOT_TRACED),
    'GAT': (lambda: pyg.GATConv(WIDTH, 4, heads=2), lambda: _given('return_attention_weights'), WEIGHTS_NOT_TRACED),
    'maxima': (Network, _given, 'torch compiles no maximum of a network, whose weights decide whether edges tie'),
}


def _leaves(results):
    if isinstance(results, torch.Tensor):
        return [results] if results.is_floating_point() else []
    items = results.values() if isinstance(results, dict) else results
    return [leaf for item in items for leaf in _leaves(item)]


def outputs_and_gradients(run, layer, given):
    found = _leaves(run(**given))
    total = sum((one * torch.linspace(-1, 1, one.numel()).view(one.shape)).sum() for one in found)
    return [*found, *torch.autograd.grad(total, [*layer.parameters()], allow_unused=True, materialize_grads=True)]


def assert_same(layer, traced, fused, given):
    expected, found = outputs_and_gradients(layer, layer, given), outputs_and_gradients(traced, fused, given)
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs)


def layer_and_fused(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, given, reason = LAYERS[name]
    layer = make()
    return layer, pygfuse.fuse(copy.deepcopy(layer), compile=True), given(), reason


@pytest.mark.parametrize('name', LAYERS)
def test_it_runs_as_it_would_without_a_trace(name):
    layer, fused, given, _ = layer_and_fused(name)
    traced = torch.compile(fused, backend='eager')
    assert_same(layer, traced, fused, given)
    assert fused.note.reason is None


class Model(nn.Module):
    """A layer, and what torch traces before and behind it."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.before, self.behind = layer, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_type):
        return self.behind(self.layer(self.before(x).relu(), edge_index, edge_type).relu())


def test_what_is_around_it_is_traced():
    layer, _, given, _ = layer_and_fused('FiLM')
    model, traces = Model(layer), torch._dynamo.testing.CompileCounter()
    fused = pygfuse.fuse(copy.deepcopy(model))
    traced = torch.compile(fused, backend=traces)
    for _ in range(2):
        torch.testing.assert_close(traced(**given), model(**given))
    assert traces.op_count >= 4
    assert fused.layer.note.reason is None


@pytest.mark.parametrize('name', ['FiLM', 'maxima', 'GAT'])
def test_a_trace_of_all_is_of_the_operators_of_pyg(name):
    layer, fused, given, reason = layer_and_fused(name)
    traced = torch.compile(fused, backend='eager', fullgraph=True)
    assert_same(layer, traced, fused, given)
    assert fused.note.reason == reason


@pytest.mark.parametrize('name', ['FiLM', 'HAN', 'maxima'])
def test_few_edges_are_traced(name, monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_COMPILED', 10_000)
    monkeypatch.setattr(few_edges, 'MOST_OF_COMPILED_WORK', 10_000)
    layer, fused, given, _ = layer_and_fused(name)
    traced = torch.compile(fused, backend='eager')
    assert_same(layer, traced, fused, given)
    assert fused.note.reason in (few_edges.SO_FEW_EDGES, NOT_TRACED)
