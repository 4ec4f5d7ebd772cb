from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn.models import JumpingKnowledge

import pygfuse
from pygfuse.conv import GATConv, GATv2Conv, GCNConv, GINEConv, SAGEConv, TransformerConv
from pygfuse.cuda import row_search as looks_that_wait
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths import path as execution_path
from pygfuse.partial.paths.path import (
    ExecutionPath,
    attach_distances,
    execution_paths,
    forced_paths,
    known_paths,
    paths_as_in_forward,
)
from tests.support.parity import random_edges

WIDTH = 8


class Model(torch.nn.Module):
    """Layers of one width one after another, with a jumping connection if asked for."""

    def __init__(self, kind: type, depth: int, jump: bool = False, shared: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        conv = kind(WIDTH, WIDTH)
        self.convs = torch.nn.ModuleList(conv if shared else kind(WIDTH, WIDTH) for _ in range(depth))
        self.jump = JumpingKnowledge('cat') if jump else None

    def forward(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
            found.append(x)
        return x if self.jump is None else self.jump(found)


MODELS = {
    'GCN': (lambda depth: Model(GCNConv, depth), True),
    'GCN, one layer used again': (lambda depth: Model(GCNConv, depth, shared=True), True),
    'SAGE with jumping knowledge': (lambda depth: Model(SAGEConv, depth, jump=True), True),
    'GAT': (lambda depth: Model(GATConv, depth), False),
}


def gradients(model, x, edge_index, mask, on: bool | None = True, repeats: int = 1) -> list[torch.Tensor]:
    for _ in range(repeats):
        model.zero_grad()
        x = x.detach().clone().requires_grad_()
        out = model(x, edge_index)
        loss = (out[mask] * torch.linspace(-1, 1, out.shape[1])).square().sum()
        if on is None:
            loss.backward()
        else:
            with execution_paths(on):
                loss.backward()
    return [x.grad, *(parameter.grad.clone() for parameter in model.parameters())]


def assert_close(found, expected) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize('name', MODELS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, 60),
    degree=st.floats(0.2, 6.0),
    depth=st.integers(1, 6),
    mask=st.sampled_from(['empty', 'one', 'few', 'all']),
)
def test_gradients_are_those_of_the_whole_graph(name, seed, nodes, degree, depth, mask):
    make, exact = MODELS[name]
    # directed, with repeats and loops; of low degree, disconnected
    edge_index = random_edges(nodes, nodes, int(nodes * degree), seed)
    chosen = torch.rand(nodes, generator=torch.Generator().manual_seed(seed))
    masks = {'empty': chosen < 0, 'one': torch.arange(nodes) == seed % nodes, 'few': chosen < 0.2, 'all': chosen >= 0}
    model, x = make(depth), torch.randn(nodes, WIDTH, generator=torch.Generator().manual_seed(seed + 1))
    expected = gradients(model, x, edge_index, masks[mask], on=False)
    found = gradients(model, x, edge_index, masks[mask])
    if exact:
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    else:
        assert_close(found, expected)


def hub_graph(nodes: int = 4000) -> torch.Tensor:
    """Rows of many edges both ways, which are cut into pieces."""
    edge_index = random_edges(nodes, nodes, 90_000)
    edge_index[1, :30_000], edge_index[0, 30_000:60_000] = 7, 11
    return edge_index


@pytest.mark.parametrize('mapping', ['vertex', 'edge'])
@pytest.mark.parametrize('kind', [GCNConv, SAGEConv])
def test_rows_that_are_cut_are_added_up_in_the_same_order(kind, mapping):
    edge_index, x, model = hub_graph(), torch.randn(4000, WIDTH), Model(kind, 2)
    with pygfuse.force_mapping(mapping):
        for mask in (torch.arange(4000) % 50 == 0, torch.arange(4000) == 7, torch.arange(4000) % 50 == 7):
            expected = gradients(model, x, edge_index, mask, on=False)
            found = gradients(model, x, edge_index, mask)
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize('kind', [GATConv, GATv2Conv, TransformerConv])
def test_attention_on_rows_that_are_cut(kind):
    edge_index, x, model = hub_graph(), torch.randn(4000, WIDTH), Model(kind, 1)
    mask = torch.arange(4000) % 50 == 7
    assert_close(gradients(model, x, edge_index, mask), gradients(model, x, edge_index, mask, on=False))


def test_gradients_of_edge_features():
    edge_index, x = random_edges(50, 50, 300), torch.randn(50, WIDTH)
    conv, attr = GINEConv(torch.nn.Linear(WIDTH, WIDTH), edge_dim=3), torch.randn(300, 3, requires_grad=True)
    found = []
    for on in (False, True):
        attr.grad = None
        conv.zero_grad()
        with execution_paths(on):
            conv(x, edge_index, attr)[:5].square().sum().backward()
        found.append([attr.grad, conv.lin.weight.grad.clone()])
    assert_close(*found)
    assert int((found[1][0].abs().sum(1) > 0).sum()) == int((edge_index[1] < 5).sum())


def path_sizes(model) -> list[int]:
    return [conv.last_activity.walked_edges for conv in model.convs]


def test_layers_walk_what_reaches_the_loss():
    # a directed path of nodes: node k + 1 aggregates node k
    edge_index, x, model = (
        torch.stack([torch.arange(9), torch.arange(1, 10)]),
        torch.randn(10, WIDTH),
        Model(SAGEConv, 3),
    )
    gradients(model, x, edge_index, torch.arange(10) == 5)
    # the root's gradient stays at a node and its neighbour's goes on: 5, then 4 and 5, then 3 to 5
    assert path_sizes(model) == [3, 2, 1]
    assert [conv.last_activity.rows for conv in model.convs] == [3, 2, 1]
    report = pygfuse.report(model)
    assert [row.backward.edges for row in report] == [3, 2, 1]
    assert 'backward walked 1 of 9 edges; 1 of 10 rows and 1 edges were active' in str(report)


def test_a_loss_that_reads_other_nodes_is_noticed():
    edge_index, x, model = random_edges(80, 80, 200), torch.randn(80, WIDTH), Model(GCNConv, 2)
    mask = torch.arange(80) < 4
    gradients(model, x, edge_index, mask)
    mask[40:50] = True  # the same tensor, written to
    expected = gradients(model, x, edge_index, mask, on=False)
    found = gradients(model, x, edge_index, mask)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_nan_is_a_gradient():
    edge_index, x, model = random_edges(80, 80, 200), torch.randn(80, WIDTH, requires_grad=True), Model(SAGEConv, 1)
    grad = torch.zeros(80, WIDTH)
    grad[3, 5] = float('nan')
    with execution_paths(True):
        model(x, edge_index).backward(grad)
    assert set(x.grad.isnan().any(1).nonzero().flatten().tolist()) == {3, *edge_index[0, edge_index[1] == 3].tolist()}


@pytest.fixture
def always_worth_a_look(monkeypatch):
    monkeypatch.setattr(execution_path, 'WORTH_A_LOOK', 0.0001)
    return monkeypatch


def graph_with_loops(edge_index, nodes: int) -> Graph:
    return Graph.of(edge_index, num_sources=nodes, num_targets=nodes).with_self_loops(nodes)


def test_a_path_is_made_once_it_would_have_paid(always_worth_a_look):
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(GCNConv, 1)
    mask, graph = torch.arange(900) < 9, graph_with_loops(edge_index, 900)
    gradients(model, x, edge_index, mask, on=None)
    assert not known_paths(graph)
    assert model.convs[0].last_activity.walked_edges == graph.num_edges
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    (path,) = known_paths(graph)
    assert path.num_edges == model.convs[0].last_activity.edges == model.convs[0].last_activity.walked_edges


def test_paths_of_rows_that_come_and_go_become_one():
    edge_index, x, model = random_edges(900, 900, 9000), torch.randn(900, WIDTH), Model(GCNConv, 1)
    for step in range(12):
        # nearly the same rows in each step, as with dropout
        mask = (torch.arange(900) < 200) & (torch.arange(900) % 100 != step)
        expected = gradients(model, x, edge_index, mask, on=False)
        assert_close(gradients(model, x, edge_index, mask), expected)
    paths = known_paths(graph_with_loops(edge_index, 900))
    assert len(paths) == 1
    assert int(paths[0].active.sum()) == 200


def test_no_more_than_so_many_paths_are_kept():
    edge_index, x, model = random_edges(900, 900, 3000), torch.randn(900, WIDTH), Model(GCNConv, 1)
    for step in range(2 * execution_path.PATHS_LIMIT):
        gradients(model, x, edge_index, torch.arange(900) // 50 == step)
    assert len(known_paths(graph_with_loops(edge_index, 900))) == execution_path.PATHS_LIMIT


def test_small_and_all_active_graphs_are_not_looked_at():
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(GCNConv, 1)
    gradients(model, x, edge_index, torch.arange(90) < 3, on=None)
    assert model.convs[0].last_activity.rows is None
    assert 'backward' not in str(pygfuse.report(model))


def test_a_graph_with_paths_is_copied_without_them():
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(SAGEConv, 1)
    gradients(model, x, edge_index, torch.arange(90) < 3)
    graph = Graph.of(edge_index, num_sources=90, num_targets=90)
    assert known_paths(graph)
    for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert not known_paths(other)
    # a model that has run can be copied and kept too
    assert copy.deepcopy(model).convs[0].last_activity == pickle.loads(pickle.dumps(model)).convs[0].last_activity


def test_paths_take_little_memory():
    nodes, channels = 3000, 128
    edge_index, x = random_edges(nodes, nodes, 10 * nodes), torch.randn(nodes, channels)
    convs = [GCNConv(channels, WIDTH), GCNConv(WIDTH, WIDTH)]
    with execution_paths(True):
        out = convs[1](convs[0](x, edge_index).relu(), edge_index)
        out[torch.arange(nodes) % 10 == 0].square().sum().backward()
    graph = graph_with_loops(edge_index, nodes)
    assert len(known_paths(graph)) == 2
    arrays = [graph.csr.indptr, graph.csr.index, graph.csr.edge_id, graph.csc.indptr, graph.csc.index]
    everything = x.nbytes + edge_index.nbytes + sum(array.nbytes for array in arrays)
    assert sum(path.num_bytes for path in known_paths(graph)) < 0.2 * everything


def test_a_gradient_that_is_nearly_whole_is_left_to_the_whole_walk(always_worth_a_look):
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(GCNConv, 1)
    mask = torch.arange(900) % 10 < 8
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    assert not known_paths(graph_with_loops(edge_index, 900))
    assert model.convs[0].last_activity.rows is None


@pytest.mark.parametrize('loops', [False, True])
def test_a_path_as_a_graph(loops):
    edge_index = random_edges(40, 40, 200)
    graph = graph_with_loops(edge_index, 40) if loops else Graph.of(edge_index, num_sources=40, num_targets=40)
    active = (torch.arange(40) % 5 == 2).to(torch.uint8)
    path = ExecutionPath(graph, active)
    part = path.part(graph)
    assert part is path.part(graph)
    assert part.num_edges == path.num_edges < graph.num_edges
    assert (part.num_sources, part.num_targets, part.num_edge_ids) == (40, 40, graph.num_edge_ids)
    assert torch.equal(part.degree, graph.degree * active)
    kept = active.bool()[graph.csr.rows()]
    ids = torch.arange(200) if graph.csr.edge_id is None else graph.csr.edge_id
    assert torch.equal(part.csr.edge_id, ids[kept])
    assert torch.equal(part.csr.index, graph.csr.index[kept])
    kept = active.bool()[graph.csc.index.long()]
    assert torch.equal(part.csc.edge_id, graph.csc.edge_id[kept])
    assert torch.equal(part.csc.index, graph.csc.index[kept])


@pytest.fixture
def _looks_wait(monkeypatch):
    monkeypatch.setattr(execution_path, 'row_search_of', lambda device: looks_that_wait)


@pytest.mark.usefixtures('_looks_wait', 'always_worth_a_look')
def test_where_looks_wait_only_prepared_paths_are_looked_for():
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(SAGEConv, 1)
    mask, graph = torch.arange(900) < 9, Graph.of(edge_index, num_sources=900, num_targets=900)
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    assert model.convs[0].last_activity.rows is None
    attach_distances(edge_index, lambda: torch.where(torch.arange(900) < 20, 0, 255).to(torch.uint8))
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    (path,) = known_paths(graph)  # none was made for these rows alone
    assert model.convs[0].last_activity.rows == 9
    assert model.convs[0].last_activity.walked_edges == path.num_edges < graph.num_edges
    gradients(model, x, edge_index, mask)
    assert model.convs[0].last_activity.walked_edges == model.convs[0].last_activity.edges < path.num_edges


@pytest.mark.usefixtures('_looks_wait')
def test_nobody_looks_while_a_cuda_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, 'is_built', lambda: True)
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: True)
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(SAGEConv, 1)
    attach_distances(edge_index, lambda: pytest.fail('somebody looked'))
    gradients(model, x, edge_index, torch.arange(90) < 3)
    assert model.convs[0].last_activity.walked_edges == 300
    assert model.convs[0].last_activity.rows is None


def test_what_forward_was_told_holds_where_backward_is_told_nothing():
    with paths_as_in_forward(True):
        assert forced_paths() is True
        with execution_paths(False), paths_as_in_forward(True):
            assert forced_paths() is False
    assert forced_paths() is None
