"""EdgeConv along few edges: nothing is looked up, nothing sorted, and a call gives the same bits each time."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import GELU, BatchNorm1d, Linear, PReLU, ReLU, Sequential, SiLU

import pygfuse
from pygfuse.conv import EdgeConv
from pygfuse.graph.graph import Graph
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 30, 120, 6
NETWORKS = {
    'one map': lambda: Linear(2 * WIDTH, 5),
    'two maps': lambda: Sequential(Linear(2 * WIDTH, 8), ReLU(), Linear(8, 5, bias=False)),
    'gelu': lambda: Sequential(Linear(2 * WIDTH, 8), GELU(), Linear(8, 5)),
    'three maps': lambda: Sequential(Linear(2 * WIDTH, 8), SiLU(), Linear(8, 7), ReLU(), Linear(7, 5), ReLU()),
}
OTHERS = {
    'a norm': lambda: Sequential(Linear(2 * WIDTH, 8), BatchNorm1d(8), ReLU(), Linear(8, 5)),
    'a slope': lambda: Sequential(Linear(2 * WIDTH, 8), PReLU(), Linear(8, 5)),
    'wide': lambda: Sequential(Linear(2 * WIDTH, 300), ReLU(), Linear(300, 5)),
}
every = pytest.mark.parametrize('name', NETWORKS)


def pair(nn, aggr: str = 'max', **options) -> tuple[pyg.EdgeConv, EdgeConv]:
    torch.manual_seed(7)
    plain = pyg.EdgeConv(nn, aggr=aggr, **options).double()
    return plain, pygfuse.fuse(copy.deepcopy(plain))


def features(count: int = NODES) -> torch.Tensor:
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()


def found_by(conv, x, edge_index) -> list[torch.Tensor]:
    out = conv(x, edge_index)
    return [out, *torch.autograd.grad(out.sin().sum(), [x, *conv.parameters()])]


@every
@pytest.mark.parametrize('aggr', ['add', 'mean', 'max', 'min'])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_new_edges_are_not_sorted(name, aggr, flow, monkeypatch):
    plain, fused = pair(NETWORKS[name](), aggr, flow=flow)
    x = features()
    # the first calls are looked at
    for _ in range(2):
        fused(x, random_edges(NODES, NODES, EDGES))
    monkeypatch.setattr(Graph, 'of', None)
    for seed in range(3):
        edge_index = random_edges(NODES, NODES, EDGES, seed)
        torch.testing.assert_close(found_by(fused, x, edge_index), found_by(plain, x, edge_index))
    assert fused.note.reason is None
    assert str(fused.note.backward).startswith('backward walked all ')


@every
def test_a_call_gives_the_same_bits_each_time(name):
    _, fused = pair(NETWORKS[name]())
    fused.float()
    x, edge_index = features().float().detach().requires_grad_(), random_edges(NODES, NODES, EDGES)
    first = found_by(fused, x, edge_index)
    Graph.of(edge_index, num_sources=NODES, num_targets=NODES).csc  # noqa: B018
    for _ in range(2):
        assert all(torch.equal(*both) for both in zip(found_by(fused, x, edge_index), first, strict=True))
    with torch.no_grad():
        assert torch.equal(fused(x, edge_index), first[0])


def test_other_targets():
    plain, fused = pair(NETWORKS['two maps']())
    x, edge_index = features(), random_edges(NODES, 12, EDGES)
    for _ in range(2):
        for given in ((x, x[:12]), (x, x[:12].detach()), (x, x)):
            torch.testing.assert_close(fused(given, edge_index), plain(given, edge_index))
    assert fused.note.known.few is not None


@pytest.mark.parametrize('name', OTHERS)
def test_what_is_taken_as_many_edges_are(name):
    plain, fused = pair(OTHERS[name](), 'mean')
    x, edge_index = features(), random_edges(NODES, NODES, EDGES)
    for _ in range(2):
        torch.testing.assert_close(found_by(fused, x, edge_index), found_by(plain, x, edge_index))
    known = fused.note.known
    assert known is None or known.few is None


@pytest.mark.parametrize(('edges', 'is_few'), [(1000, True), (10_000, False)])
def test_how_many_are_few(edges, is_few):
    conv = EdgeConv(Sequential(Linear(128, 64), ReLU(), Linear(64, 64)))
    nodes = edges // 4
    x, edge_index = torch.randn(nodes, 64), random_edges(nodes, nodes, edges)
    conv(x, edge_index)
    assert (conv.few_edges(x, edge_index, {}, conv.note.known.few) is not None) == is_few


def test_products_count(monkeypatch):
    conv, x, edge_index = EdgeConv(NETWORKS['two maps']()).double(), features(), random_edges(NODES, NODES, EDGES)
    conv(x, edge_index)
    for most, is_few in ((EDGES * 40 + 2 * NODES * 48, True), (EDGES * 40 + 2 * NODES * 48 - 1, False)):
        monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_PRODUCTS', most)
        assert (conv.few_edges(x, edge_index, {}, conv.note.known.few) is not None) == is_few


def test_a_hook_on_the_network_is_seen():
    _, fused = pair(NETWORKS['two maps']())
    x, edge_index, seen = features(), random_edges(NODES, NODES, EDGES), []
    fused(x, edge_index)
    fused.nn[0].register_forward_hook(lambda *arguments: seen.append(1))
    fused(x, edge_index)
    assert seen
    assert 'hook' in fused.note.reason


def test_parameters_that_were_replaced():
    plain, fused = pair(NETWORKS['two maps']())
    x, edge_index = features(), random_edges(NODES, NODES, EDGES)
    fused(x, edge_index)
    for conv in (plain, fused):
        torch.manual_seed(1)
        conv.nn[2] = Linear(8, 3).double()
    torch.testing.assert_close(fused(x, edge_index), plain(x, edge_index))


def test_a_node_that_is_not_there():
    _, fused = pair(NETWORKS['two maps']())
    x, edge_index = features(), random_edges(NODES, NODES, EDGES)
    fused(x, edge_index)
    edge_index[0, 5] = NODES
    with pytest.raises(ValueError, match=r'edge_index\[0\] holds node 30 at position 5'):
        fused(x, edge_index)
