"""Walks of few edges give what walks in parts give, and are taken where nobody decides otherwise."""

import pytest
import torch

from pygfuse import force_mapping, used_once
from pygfuse.conv import CGConv, EdgeConv, GATConv, GATv2Conv, GCNConv, GINConv, GMMConv, SAGEConv, TransformerConv
from pygfuse.cpu import adjoint, backend
from pygfuse.cpu.compilation import launch
from pygfuse.cpu.few_edges import single_part
from pygfuse.cpu.few_edges.single_part import is_single_part
from pygfuse.graph.graph import Graph
from pygfuse.mapping import records
from pygfuse.mapping.choice import recorded
from pygfuse.mapping.mapping import Mapping
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 40, 300, 8
EDGE_INDEX = random_edges(NODES, NODES, EDGES)
LAYERS = {
    'CG': lambda: CGConv(WIDTH, aggr='max'),
    'GAT': lambda: GATConv(WIDTH, WIDTH, heads=2),
    'GAT, edges': lambda: GATConv(WIDTH, WIDTH, heads=2, edge_dim=3),
    'GATv2, edges': lambda: GATv2Conv(WIDTH, WIDTH, heads=2, edge_dim=3),
    'GCN': lambda: GCNConv(WIDTH, WIDTH),
    'GIN': lambda: GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    'GMM': lambda: GMMConv(WIDTH, WIDTH, dim=3, kernel_size=2),
    'SAGE': lambda: SAGEConv(WIDTH, WIDTH),
    'Transformer, edges': lambda: TransformerConv(WIDTH, WIDTH, edge_dim=3),
    'wide': lambda: GATConv(WIDTH, 300),
}


@pytest.fixture(autouse=True)
def sorted_edges(monkeypatch):
    """Edges that come as a list would be walked as they come."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)


def gradients(conv, x, *given):
    out = conv(x, EDGE_INDEX, *given)
    out.sin().sum().backward()
    found = [out.detach(), x.grad, *(value.grad for value in (*given, *conv.parameters()))]
    x.grad = None
    for value in (*given, *conv.parameters()):
        value.grad = None
    return found


@pytest.mark.parametrize('name', LAYERS)
def test_as_in_parts(name, monkeypatch):
    """The same numbers as of walks that are cut into many parts, up to the order of sums over parts."""
    torch.manual_seed(1)
    conv, x = LAYERS[name]().double(), torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    given = (torch.rand(EDGES, 3, dtype=torch.float64, requires_grad=True),) if 'edges' in name or name == 'GMM' else ()
    few = gradients(conv, x, *given)
    for module in (adjoint, backend):
        monkeypatch.setattr(module, 'is_single_part', lambda *_: False)
    monkeypatch.setattr(single_part, 'is_single_part', lambda *_: False)
    with force_mapping(Mapping('edge', part_work=7)):
        many = gradients(conv, x, *given)
    torch.testing.assert_close(few, many)


def test_when_walks_are_one_part():
    graph = Graph.of(EDGE_INDEX, num_sources=NODES, num_targets=NODES)
    assert is_single_part(graph, 4 * WIDTH)
    for block in (force_mapping('edge'), used_once(), recorded()):
        with block:
            assert not is_single_part(graph, 4 * WIDTH)
    many = Graph.of(random_edges(1000, 1000, 500_000), num_sources=1000, num_targets=1000)
    assert not is_single_part(many, 4 * WIDTH)
    empty = Graph.of(EDGE_INDEX, num_sources=10**6, num_targets=10**6)
    assert not is_single_part(empty, 4 * WIDTH)


@pytest.mark.parametrize('name', ['GIN', 'GAT'])
def test_the_report_tells_of_the_whole_graph(name):
    conv, x = LAYERS[name](), torch.randn(NODES, WIDTH, requires_grad=True)
    for _ in range(3):
        conv.note.backward = None
        conv(x, EDGE_INDEX).sum().backward()
        assert str(conv.note.backward).startswith('backward walked all ')


def test_a_mapping_that_was_measured_to_be_best_is_taken(monkeypatch):
    graph = Graph.of(EDGE_INDEX, num_sources=NODES, num_targets=NODES)
    monkeypatch.setattr(type(records.TABLE), 'is_empty', lambda _: False)
    monkeypatch.setattr(records, 'mapping_of', lambda shape: None)
    assert is_single_part(graph, 4 * WIDTH)
    monkeypatch.setattr(records, 'mapping_of', lambda shape: Mapping('edge'))
    assert not is_single_part(graph, 4 * WIDTH)


def test_dropout_finds_its_edges_after_a_call_without():
    torch.manual_seed(1)
    conv, x, found = GATv2Conv(WIDTH, WIDTH, heads=2, dropout=0.5), torch.randn(NODES, WIDTH), []
    for is_evaluated_first in (False, True):
        edge_index = EDGE_INDEX.clone()
        if is_evaluated_first:
            for _ in range(3):
                conv.eval()(x, edge_index)
        for _ in range(3):
            torch.manual_seed(0)
            out = conv.train()(x, edge_index)
        found.append(out)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    'make', [LAYERS['GAT'], LAYERS['GCN'], LAYERS['GIN'], lambda: EdgeConv(torch.nn.Linear(2 * WIDTH, WIDTH))]
)
@pytest.mark.parametrize(('edges', 'teams'), [(1_000, set()), (200_000, {2})])
def test_few_edges_wake_no_team(make, edges, teams, monkeypatch):
    """A team waits at its barrier for whatever else computes on the machine."""
    run, seen = launch.Launch.run, []
    monkeypatch.setattr(
        launch.Launch, 'run', lambda self, block, threads: seen.append(threads) or run(self, block, threads)
    )
    conv, x = make(), torch.randn(100, WIDTH, requires_grad=True)
    edge_index, before = random_edges(100, 100, edges), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(3):
            conv(x, edge_index).sum().backward()
    finally:
        torch.set_num_threads(before)
    assert {threads for threads in seen if threads > 1} == teams
