"""The gradients along execution paths, and the paths themselves."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pygfuse
from pygfuse import execution_paths
from pygfuse.conv import GATConv, GATv2Conv, GCNConv, GINEConv, SAGEConv, TransformerConv
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import PATHS_LIMIT, ExecutionPath, known_paths
from tests.support.parity import random_edges
from tests.support.paths import WIDTH, Model, assert_close, gradients, graph_with_loops

MODELS = {
    'GCN': (lambda depth: Model(GCNConv, depth), True),
    'GCN, one layer used again': (lambda depth: Model(GCNConv, depth, shared=True), True),
    'SAGE with jumping knowledge': (lambda depth: Model(SAGEConv, depth, jump=True), True),
    'GAT': (lambda depth: Model(GATConv, depth), False),
}


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
def test_rows_are_added_up_in_the_same_order(kind, mapping):
    edge_index, x, model = random_edges(4000, 4000, 90_000), torch.randn(4000, WIDTH), Model(kind, 2)
    with pygfuse.force_mapping(mapping):
        for mask in (torch.arange(4000) % 50 == 0, torch.arange(4000) == 7, torch.arange(4000) % 50 == 7):
            expected = gradients(model, x, edge_index, mask, on=False)
            found = gradients(model, x, edge_index, mask)
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize('mapping', ['vertex', 'edge'])
@pytest.mark.parametrize('kind', [GCNConv, SAGEConv])
def test_rows_that_are_cut_differ_by_rounding(kind, mapping):
    edge_index, x, model = hub_graph(), torch.randn(4000, WIDTH), Model(kind, 2)
    with pygfuse.force_mapping(mapping):
        for mask in (torch.arange(4000) % 50 == 0, torch.arange(4000) == 7, torch.arange(4000) % 50 == 7):
            expected = gradients(model, x, edge_index, mask, on=False)
            found = gradients(model, x, edge_index, mask)
            for one, other in zip(found, expected, strict=True):
                assert float((one - other).abs().max()) <= 2e-6 * float(other.abs().max())


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
    return [conv.note.backward.walked_edges for conv in model.convs]


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
    assert [conv.note.backward.rows for conv in model.convs] == [3, 2, 1]
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
    for step in range(2 * PATHS_LIMIT):
        gradients(model, x, edge_index, torch.arange(900) // 50 == step)
    assert len(known_paths(graph_with_loops(edge_index, 900))) == PATHS_LIMIT


def test_a_graph_with_paths_is_copied_without_them():
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(SAGEConv, 1)
    gradients(model, x, edge_index, torch.arange(90) < 3)
    graph = Graph.of(edge_index, num_sources=90, num_targets=90)
    assert known_paths(graph)
    for other in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert not known_paths(other)


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
