"""Layers that sum neighbours add along few edges as they come, with nothing looked up and nothing sorted."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.conv import GATConv, GCNConv, GINConv, GraphConv, SAGEConv
from pygfuse.graph.graph import Graph
from pygfuse.mapping import few_edges
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 30, 120
LAYERS = {
    'GCN': lambda: pyg.GCNConv(WIDTH, WIDTH),
    'GCN, no loops': lambda: pyg.GCNConv(WIDTH, WIDTH, add_self_loops=False),
    'GCN, no norm': lambda: pyg.GCNConv(WIDTH, WIDTH, normalize=False),
    'GIN': lambda: pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3),
    'GIN, learned': lambda: pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3, train_eps=True),
    'Graph': lambda: pyg.GraphConv(WIDTH, WIDTH),
    'SAGE': lambda: pyg.SAGEConv(WIDTH, WIDTH),
    'SAGE, all': lambda: pyg.SAGEConv(WIDTH, WIDTH, project=True, normalize=True, root_weight=False),
}
every = pytest.mark.parametrize('name', LAYERS)


def layer_of(name: str) -> torch.nn.Module:
    torch.manual_seed(3)
    return pygfuse.fuse(LAYERS[name]()).double()


def features(requires_grad: bool = True) -> torch.Tensor:
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return x.requires_grad_(requires_grad)


def found_by(conv, x, edge_index) -> list:
    conv.zero_grad()
    out = conv(x, edge_index)
    out.sin().sum().backward()
    found = [out.detach(), x.grad, *(parameter.grad for parameter in conv.parameters())]
    x.grad = None
    return found


@every
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_new_edges_are_not_sorted(name, flow, monkeypatch):
    fused = layer_of(name)
    fused.flow, x = flow, features()
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    # the first calls are looked at
    for _ in range(2):
        fused(x, random_edges(NODES, NODES, EDGES))
    monkeypatch.setattr(Graph, 'of', None)
    for seed in range(3):
        edge_index = random_edges(NODES, NODES, EDGES, seed)
        torch.testing.assert_close(found_by(fused, x, edge_index), found_by(plain, x, edge_index))
    assert str(fused.note.backward).startswith('backward walked all ')


@every
def test_a_call_gives_the_same_bits_each_time(name):
    fused, x, edge_index = layer_of(name).float(), features().float().detach().requires_grad_(), None
    edge_index = random_edges(NODES, NODES, EDGES)
    first = found_by(fused, x, edge_index)
    # another layer has them sorted
    GATConv(WIDTH, WIDTH)(x, edge_index)
    Graph.of(edge_index, num_sources=NODES, num_targets=NODES).csc  # noqa: B018
    for _ in range(2):
        assert all(torch.equal(*pair) for pair in zip(found_by(fused, x, edge_index), first, strict=True))


@pytest.mark.parametrize('name', ['GIN', 'Graph', 'SAGE'])
def test_other_targets(name):
    fused, x = layer_of(name), features()
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    edge_index = random_edges(NODES, 12, EDGES)
    for _ in range(2):
        for pair in ((x, x[:12]), (x, x[:12].detach()), (x, x)):
            torch.testing.assert_close(fused(pair, edge_index), plain(pair, edge_index))
    pair = x, None
    edge_index = random_edges(NODES, NODES, EDGES)
    for _ in range(2):
        torch.testing.assert_close(fused(pair, edge_index), plain(pair, edge_index, size=(NODES, NODES)))


@pytest.mark.parametrize('name', ['GCN', 'Graph'])
def test_weights_are_not_forgotten(name):
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    plain, weight = pygfuse.unfuse(copy.deepcopy(fused)), torch.rand(EDGES, dtype=torch.float64)
    for given in ((edge_index,), (edge_index, weight), (edge_index,)):
        torch.testing.assert_close(fused(x, *given), plain(x, *given))


@every
@pytest.mark.parametrize('calls', [0, 1, 2])
def test_checkpoints_of_the_first_calls(name, calls):
    """A call that backward computes again may be known, and has to save what the first one saved."""
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    for _ in range(calls):
        fused(x, edge_index)
    (found,) = torch.autograd.grad(checkpoint(fused, x, edge_index, use_reentrant=False).sum(), x)
    assert torch.equal(found, torch.autograd.grad(fused(x, edge_index).sum(), x)[0])


def test_edges_that_inference_made():
    with torch.inference_mode():
        edge_index = random_edges(NODES, NODES, EDGES)
    conv = GINConv(torch.nn.Linear(WIDTH, WIDTH)).double()
    for _ in range(2):
        conv(features(), edge_index).sum().backward()


def test_edges_of_other_types_and_layouts():
    conv, x, edge_index = SAGEConv(WIDTH, WIDTH).double(), features(), random_edges(NODES, NODES, EDGES)
    expected = conv(x, edge_index)
    for given in (edge_index.int(), edge_index.t().contiguous().t()):
        for _ in range(2):
            torch.testing.assert_close(conv(x, given), expected)
    torch.testing.assert_close(conv(x.t().contiguous().t(), edge_index), expected)
    with pytest.raises(ValueError, match='edge_index'):
        conv(x, torch.zeros(3, 5, dtype=torch.int64))


def test_a_map_that_gives_other_rows():
    conv, x, edge_index = GCNConv(WIDTH, WIDTH).double(), features(), random_edges(NODES, NODES, EDGES)
    conv(x, edge_index)
    conv.lin.forward = lambda x: x[:5]
    with pytest.raises(ValueError, match=f"Expected 'x' to have {NODES} rows"):
        conv(x, edge_index)


@pytest.mark.parametrize(('edges', 'rows', 'is_few'), [(120, 30, True), (20_000, 30, False), (120, 20_000, False)])
def test_how_many_are_few(edges, rows, is_few):
    conv, edge_index = GraphConv(WIDTH, WIDTH), random_edges(rows, rows, edges)
    conv(torch.randn(rows, WIDTH), edge_index)
    assert (conv.few_edges(torch.randn(rows, WIDTH), edge_index, {}, conv.note.few) is not None) == is_few


def test_rows_that_are_wide_count_more(monkeypatch):
    for width, is_few in ((8, True), (128, False)):
        conv, edge_index = SAGEConv(width, 8), random_edges(NODES, NODES, EDGES)
        monkeypatch.setattr(few_edges, 'MOST_BYTES', 300 * (EDGES + 2 * NODES))
        x = torch.randn(NODES, width)
        conv(x, edge_index)
        assert (conv.few_edges(x, edge_index, {}, conv.note.few) is not None) == is_few
