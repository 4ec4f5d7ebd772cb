from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.graph.graph import Graph
from tests.support.parity import random_edges


@pytest.mark.parametrize('kind', [pyg.SGConv, pyg.TAGConv, lambda *widths: pyg.ChebConv(*widths, K=2)])
def test_edges_are_prepared_once_and_again_after_a_write(kind, monkeypatch):
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
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


def test_a_first_call_in_inference_mode_does_not_spoil_training():
    edge_index, x = random_edges(20, 20, 60), torch.randn(20, 8)
    conv = pygfuse.compile(pyg.TAGConv(8, 4))
    with torch.inference_mode():
        conv(x, edge_index)
    conv(x, edge_index).sum().backward()
    assert conv.note.reason is None


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
