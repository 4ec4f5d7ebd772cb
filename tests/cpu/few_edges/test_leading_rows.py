"""The adjoint along the edges into the first rows of a new graph is that of all edges."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.cpu.few_edges import leading_rows
from pygfuse.graph.graph import Graph

NODES, EDGES, WIDTH, SEEDS = 3000, 30_000, 8, 20
LAYERS = {
    'sum': (lambda: pyg.GINConv(torch.nn.Identity()), None),
    'mean': (lambda: pyg.SAGEConv(WIDTH, WIDTH), None),
    'maximum': (lambda: pyg.GraphConv(WIDTH, WIDTH, aggr='max'), None),
    'self-loops': (lambda: pyg.GATConv(WIDTH, 4, heads=2), None),
    'weights of edges': (lambda: pyg.GCNConv(WIDTH, WIDTH), ('edge_weight', ())),
    'features of edges': (lambda: pyg.TransformerConv(WIDTH, 4, heads=2, edge_dim=3), ('edge_attr', (3,))),
    'features of edges as they are': (lambda: pyg.GINEConv(torch.nn.Identity()), ('edge_attr', (WIDTH,))),
}


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    """Graphs of this size are walked as sorted ones, and looked at."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    monkeypatch.setattr('pygfuse.cpu.few_edges.single_part.THREAD_WORK', 0)
    monkeypatch.setattr(leading_rows, 'LEAST_BYTES', 0)


def edges_of(is_sorted: bool) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    return edge_index[:, edge_index[1].argsort()] if is_sorted else edge_index


def gradients(layer, x: Tensor, edge_index: Tensor, given: dict, rows: slice) -> list[Tensor]:
    leaves = [x, *layer.parameters(), *given.values()]
    found = torch.autograd.grad(layer(x, edge_index, **given)[rows].sin().sum(), leaves, allow_unused=True)
    return [torch.zeros(()) if grad is None else grad for grad in found]


@pytest.mark.parametrize('is_sorted', [True, False])
@pytest.mark.parametrize('name', LAYERS)
def test_the_numbers_of_all_edges(name, is_sorted):
    torch.manual_seed(1)
    make, given = LAYERS[name]
    layer = pygfuse.fuse(make().double())
    x, edge_index = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True), edges_of(is_sorted)
    given = {} if given is None else {given[0]: torch.rand(EDGES, *given[1], dtype=torch.float64, requires_grad=True)}
    with pygfuse.execution_paths(False):
        expected = gradients(layer, x, edge_index.clone(), given, slice(SEEDS))
    found = gradients(layer, x, edge_index, given, slice(SEEDS))
    torch.testing.assert_close(found, expected)
    loops = SEEDS if name in ('self-loops', 'weights of edges') else 0
    own = int(((edge_index[0] == edge_index[1]) & (edge_index[1] < SEEDS)).sum()) if loops else 0
    activity = layer.note.backward
    assert activity.walked_edges == int((edge_index[1] < SEEDS).sum()) + loops - own
    assert not Graph.of(edge_index, None, layer.flow, NODES, NODES).is_transposed


@pytest.mark.parametrize(
    ('rows', 'is_known'),
    [(slice(None), False), (slice(-SEEDS, None), False), (slice(2000), False), (slice(SEEDS), True)],
)
def test_other_gradients_and_graphs(rows, is_known):
    layer, edge_index = pygfuse.fuse(pyg.GINConv(torch.nn.Identity())), edges_of(True)
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    graph = Graph.of(edge_index, None, layer.flow, NODES, NODES)
    if is_known:
        assert graph.csc.num_edges == EDGES
    gradients(layer, x, edge_index, {}, rows)
    assert graph.is_transposed
    assert layer.note.backward.walked_edges == EDGES


def test_no_row_has_a_gradient():
    layer, x = pygfuse.fuse(pyg.GATConv(WIDTH, WIDTH)), torch.randn(NODES, WIDTH, requires_grad=True)
    found = gradients(layer, x, edges_of(True), {}, slice(0))
    assert all((grad == 0.0).all() for grad in found)


def test_dropout_draws_by_the_ids_of_edges():
    layer, edge_index = pygfuse.fuse(pyg.GATConv(WIDTH, WIDTH, dropout=0.5)), edges_of(True)
    x, found = torch.randn(NODES, WIDTH, requires_grad=True), []
    for paths in (None, False):
        torch.manual_seed(2)
        out = layer(x, edge_index.clone())
        with pygfuse.ablation() if paths is None else pygfuse.execution_paths(paths):
            found.append(torch.autograd.grad(out[:SEEDS].sum(), x)[0])
    torch.testing.assert_close(*found)
