from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.cpu.edges import edge_norms
from pygfuse.graph.graph import Graph
from tests.support.parity import random_edges

# of fewer no graph is made
MANY = 10_000


@pytest.mark.parametrize('kind', [pyg.SGConv, pyg.TAGConv, lambda *widths: pyg.ChebConv(*widths, K=2)])
def test_edges_are_prepared_once_and_again_after_a_write(kind, monkeypatch):
    edge_index, x = random_edges(200, 200, MANY), torch.randn(200, 8)
    plain = kind(8, 4)
    conv = pygfuse.compile(copy.deepcopy(plain))
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    made = []
    original = Graph.__init__
    monkeypatch.setattr(Graph, '__init__', lambda self, *given: made.append(self) or original(self, *given))
    conv(x, edge_index)
    assert made == []
    edge_index[1, :30] = 3
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    assert made


@pytest.mark.parametrize('num_edges', [60, MANY])
@pytest.mark.parametrize('kind', [pyg.LGConv, lambda: pyg.TAGConv(8, 4), lambda: pyg.ChebConv(8, 4, K=2)])
def test_norms_of_edges_are_computed_once_and_again_after_a_write(kind, num_edges, monkeypatch):
    edge_index, x = random_edges(200, 200, num_edges), torch.randn(200, 8)
    plain = kind()
    conv, computed = pygfuse.compile(copy.deepcopy(plain)), []
    by_torch, by_kernel = torch.Tensor.pow_, edge_norms.edge_norms
    monkeypatch.setattr(torch.Tensor, 'pow_', lambda self, power: computed.append(power) or by_torch(self, power))
    monkeypatch.setattr(edge_norms, 'edge_norms', lambda *given: computed.append(given) or by_kernel(*given))
    for _ in range(3):
        conv(x, edge_index)
    assert len(computed) == 1
    edge_index[1, :30] = 3
    found = conv(x, edge_index)
    assert len(computed) == 2
    torch.testing.assert_close(found, plain(x, edge_index))


def test_a_first_call_in_inference_mode_does_not_spoil_training():
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
    conv = pygfuse.compile(pyg.TAGConv(8, 4))
    with torch.inference_mode():
        conv(x, edge_index)
    conv(x, edge_index).sum().backward()
    assert conv.note.reason is None


TRANSFORMED = {
    'PointTransformer': (lambda: pyg.PointTransformerConv(8, 4), 3),
    'FeaSt': (lambda: pyg.FeaStConv(8, 4), None),
    'SG': (lambda: pyg.SGConv(8, 4), None),
    'Cheb': (lambda: pyg.ChebConv(8, 4, K=2), None),
    'EG': (lambda: pyg.EGConv(8, 4, num_heads=2), None),
}


@pytest.mark.parametrize('num_edges', [60, MANY])
@pytest.mark.parametrize('name', TRANSFORMED)
def test_a_transform_of_torch_func_runs_and_spoils_nothing(name, num_edges):
    """What is made of edges within it is none of their own."""
    make, width = TRANSFORMED[name]
    edge_index, x = random_edges(200, 200, num_edges), torch.randn(200, 8)
    positions = () if width is None else (torch.randn(200, width),)
    plain = make()
    conv = pygfuse.compile(copy.deepcopy(plain))
    found, expected = (
        torch.func.grad(lambda x, layer=layer: layer(x, *positions, edge_index).square().sum())(x)
        for layer in (conv, plain)
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(conv(x, *positions, edge_index), plain(x, *positions, edge_index))


@pytest.mark.parametrize('plain', [pyg.TAGConv(8, 4), pyg.ChebConv(8, 4, K=2)], ids=['TAGConv', 'ChebConv'])
def test_edge_weights_are_not_remembered(plain):
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
    conv = pygfuse.compile(copy.deepcopy(plain))
    for _ in range(2):
        weight = torch.rand(60)
        torch.testing.assert_close(conv(x, edge_index, weight), plain(x, edge_index, weight))


def test_numbers_of_a_batch_are_not_remembered():
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
    plain = pyg.ChebConv(8, 4, K=2)
    conv = pygfuse.compile(copy.deepcopy(plain))
    for _ in range(2):
        given = {'batch': torch.arange(20) // 10, 'lambda_max': 2 + torch.rand(2)}
        torch.testing.assert_close(conv(x, edge_index, **given), plain(x, edge_index, **given))


@pytest.mark.parametrize('loops', [0, 7], ids=['no loops', 'loops'])
def test_edges_of_weights_are_prepared_once(loops, monkeypatch):
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = torch.cat([torch.arange(loops).expand(2, -1), edge_index], dim=1)
    plain = pyg.SGConv(8, 4, K=2)
    conv = pygfuse.compile(copy.deepcopy(plain))
    made, original = [], Graph.__init__
    monkeypatch.setattr(Graph, '__init__', lambda self, *given: made.append(self) or original(self, *given))
    for _ in range(3):
        weight = torch.rand(edge_index.shape[1], requires_grad=True)
        found, expected = conv(x, edge_index, weight), plain(x, edge_index, weight)
        torch.testing.assert_close(found, expected)
        gradients = (torch.autograd.grad(out.square().sum(), weight) for out in (found, expected))
        torch.testing.assert_close(*gradients)
    assert len(made) == 1
