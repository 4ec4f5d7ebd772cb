"""Of many edges by source nothing is kept that can be found again from those by target."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from pygfuse.conv import GATConv, GCNConv, GINEConv, GraphConv
from pygfuse.cpu.edges import bucket_sort, sort
from pygfuse.graph.graph import Graph
from pygfuse.graph.transposed import Transposed
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 300, 20_000, 8


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


def knows_positions(graph: Graph) -> bool:
    return graph.csc._position is not None if isinstance(graph.csc, Transposed) else True


@pytest.mark.parametrize('with_loops', [False, True])
def test_positions_are_those_of_few_edges(edge_index, with_loops, monkeypatch):
    later, usual = of(edge_index), of(edge_index.clone())
    later, usual = (graph.with_self_loops() if with_loops else graph for graph in (later, usual))
    assert not knows_positions(later)
    with monkeypatch.context() as patch:
        patch.setattr(sort, 'MOST_EDGES', 2**22)
        assert knows_positions(usual)
    assert torch.equal(later.csc.indptr, usual.csc.indptr)
    assert torch.equal(later.csc.index, usual.csc.index)
    assert torch.equal(later.csc.edge_id, usual.csc.edge_id)
    assert torch.equal(later.csc.position, usual.csc.position)
    assert torch.equal(later.place_in_csc, usual.place_in_csc)
    assert knows_positions(later)


@pytest.mark.parametrize('copied', [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_have_them(edge_index, copied):
    graph = of(edge_index)
    assert not knows_positions(graph)
    assert torch.equal(copied(graph).csc.position, graph.csc.position)


def test_layers_that_know_no_edge_from_another_do_without(edge_index, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    graph = of(edge_index)
    for layer in (GCNConv(WIDTH, WIDTH, add_self_loops=False), GATConv(WIDTH, WIDTH, add_self_loops=False)):
        layer(torch.randn(NODES, WIDTH, requires_grad=True), edge_index).sum().backward()
        assert not knows_positions(graph)
    x, weight = torch.randn(NODES, WIDTH, requires_grad=True), torch.rand(EDGES, requires_grad=True)
    layer, found = GraphConv(WIDTH, WIDTH), []
    layer(x, edge_index, weight).square().sum().backward()
    assert knows_positions(graph)
    found = x.grad, weight.grad
    x.grad = weight.grad = None
    monkeypatch.setattr(sort, 'MOST_EDGES', 2**22)
    layer(x, edge_index.clone(), weight).square().sum().backward()
    assert all(map(torch.equal, found, (x.grad, weight.grad)))


@pytest.fixture
def in_blocks(monkeypatch):
    """Rows gather more than a cache holds."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    monkeypatch.setattr('pygfuse.cpu.few_edges.single_part.THREAD_WORK', 0)
    for name, value in {'BLOCK_BYTES': 4 * NODES, 'LEAST_RUN': 1, 'WIDER': 1000, 'WIDER_OF_MANY': 1000}.items():
        monkeypatch.setattr(f'pygfuse.mapping.blocks.{name}', value)


@pytest.mark.usefixtures('in_blocks')
@pytest.mark.parametrize('layer', [GCNConv, GATConv])
def test_the_index_is_not_kept_beside_blocks(edge_index, layer, monkeypatch):
    torch.manual_seed(0)
    conv, x = layer(WIDTH, WIDTH, add_self_loops=False), torch.randn(NODES, WIDTH, requires_grad=True)
    graph = of(edge_index)

    def step():
        out = conv(x, edge_index)
        return out, *torch.autograd.grad(out.square().sum(), (x, *conv.parameters()))

    first, again, asked = step(), graph.csc._again, []
    monkeypatch.setattr(graph.csc, '_again', lambda: asked.append(1) or again())
    for _ in range(2):
        assert all(map(torch.equal, first, step()))
        assert graph.csc._index is None
        assert not knows_positions(graph)
    assert asked == []
    # whoever asks finds it
    assert torch.equal(graph.csc.index, of(edge_index.clone()).csc.index)
    assert graph.csc.num_edges == EDGES
    assert asked == [1]


@pytest.mark.usefixtures('in_blocks')
def test_other_walks_find_the_index_again(edge_index):
    """Edges with rows of their own are walked whole."""
    x, features = torch.randn(NODES, WIDTH, requires_grad=True), torch.randn(EDGES, WIDTH, requires_grad=True)
    alone = GINEConv(torch.nn.Linear(WIDTH, WIDTH))
    expected = torch.autograd.grad(alone(x, edge_index.clone(), features).square().sum(), (x, features))
    GCNConv(WIDTH, WIDTH, add_self_loops=False)(x, edge_index).sum().backward()
    assert of(edge_index).csc._index is None
    found = torch.autograd.grad(alone(x, edge_index, features).square().sum(), (x, features))
    assert all(map(torch.equal, found, expected))
