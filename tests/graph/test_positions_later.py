"""Of many edges the way from those by source to those by target is found when it is first asked for."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from pygfuse.conv import GATConv, GCNConv, GraphConv
from pygfuse.cpu import bucket_sort, sort
from pygfuse.graph.graph import Graph
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 300, 5000, 8


@pytest.fixture(params=[False, True], ids=['int32', 'int64'])
def edge_index(request, monkeypatch):
    """Edges that count as many."""
    monkeypatch.setattr(bucket_sort, 'MOST_EDGES', 0)
    monkeypatch.setattr(sort, 'MOST_EDGES', 0)
    monkeypatch.setattr(sort, 'CHUNK_MINIMUM', 16)
    if request.param:
        monkeypatch.setattr('pygfuse.graph.orders.INT32_LIMIT', 0)
    return random_edges(NODES, NODES, EDGES)


def of(edge_index) -> Graph:
    return Graph.of(edge_index, num_sources=NODES, num_targets=NODES)


def is_known(graph: Graph) -> bool:
    return isinstance(graph.csc._position, torch.Tensor)


@pytest.mark.parametrize('with_loops', [False, True])
def test_positions_are_those_of_few_edges(edge_index, with_loops, monkeypatch):
    later, usual = of(edge_index), of(edge_index.clone())
    later, usual = (graph.with_self_loops() if with_loops else graph for graph in (later, usual))
    assert not is_known(later)
    with monkeypatch.context() as patch:
        patch.setattr(sort, 'MOST_EDGES', 2**22)
        assert is_known(usual)
    assert torch.equal(later.csc.indptr, usual.csc.indptr)
    assert torch.equal(later.csc.index, usual.csc.index)
    assert torch.equal(later.csc.edge_id, usual.csc.edge_id)
    assert torch.equal(later.csc.position, usual.csc.position)
    assert torch.equal(later.place_in_csc, usual.place_in_csc)
    assert is_known(later)


@pytest.mark.parametrize('copied', [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_have_them(edge_index, copied):
    graph = of(edge_index)
    assert not is_known(graph)
    assert torch.equal(copied(graph).csc.position, graph.csc.position)


def test_layers_that_know_no_edge_from_another_do_without(edge_index, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    graph = of(edge_index)
    for layer in (GCNConv(WIDTH, WIDTH, add_self_loops=False), GATConv(WIDTH, WIDTH, add_self_loops=False)):
        layer(torch.randn(NODES, WIDTH, requires_grad=True), edge_index).sum().backward()
        assert not is_known(graph)
    x, weight = torch.randn(NODES, WIDTH, requires_grad=True), torch.rand(EDGES, requires_grad=True)
    layer, found = GraphConv(WIDTH, WIDTH), []
    layer(x, edge_index, weight).square().sum().backward()
    assert is_known(graph)
    found = x.grad, weight.grad
    x.grad = weight.grad = None
    monkeypatch.setattr(sort, 'MOST_EDGES', 2**22)
    layer(x, edge_index.clone(), weight).square().sum().backward()
    assert all(map(torch.equal, found, (x.grad, weight.grad)))
