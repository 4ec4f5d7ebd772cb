"""Groups of execution paths."""

import pytest
import torch

from pygfuse import execution_paths, force_mapping, group_sizes
from pygfuse.conv import SAGEConv
from pygfuse.cpu.edges.paths import by_source, rows_and_parts
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Mapping, cut
from pygfuse.partial.paths import cuts as paths
from pygfuse.partial.paths.cuts import grouped
from pygfuse.partial.paths.path import ExecutionPath, known_paths

NODES = 200


@pytest.fixture
def walked():
    """A graph by source, a path of it, and the path's parts as the whole graph is cut."""
    edge_index = torch.randint(NODES, (2, 3000))
    edge_index[0, :600] = 11
    graph = Graph.of(edge_index, num_sources=NODES, num_targets=NODES)
    active = (torch.arange(NODES) % 4 == 0).to(torch.uint8)
    mapping = Mapping('edge', 100)
    rows, parts = rows_and_parts(ExecutionPath(graph, active), graph, 'source', cut(graph.csc, mapping))
    return rows, parts, mapping


def test_without_a_chooser_the_whole_graphs_parts_stay(walked):
    rows, parts, mapping = walked
    assert grouped(rows, parts, mapping, 32) is parts
    with group_sizes('regression'), force_mapping(mapping):
        assert grouped(rows, parts, mapping, 32) is parts


def test_a_chooser_sees_the_path_and_its_size_cuts_it(walked):
    rows, parts, mapping = walked
    seen = []
    with group_sizes(lambda csr, row_bytes: seen.append((csr.num_rows, csr.num_edges, row_bytes)) or 50):
        own = grouped(rows, parts, mapping, 32)
        assert grouped(rows, parts, mapping, 32) is own
    assert seen == [(len(rows.rows), rows.num_edges, 32)]
    work = len(rows.rows) + rows.num_edges
    assert own.count == -(-work // 50) != parts.count
    places, edges = own.bounds.view(-1, 2).unbind(1)
    assert (places[-1], edges[-1]) == (len(rows.rows), rows.num_edges)
    # rows that are cut are named as nodes
    inside = rows.indptr[places.clamp(max=len(rows.rows) - 1)] < edges
    cut_nodes = rows.rows[places[:-1][inside[:-1]]].unique()
    assert own.split_rows.tolist() == cut_nodes.tolist()
    assert 11 in own.split_rows


def test_backward_walks_a_paths_own_groups(monkeypatch):
    x, edge_index = torch.randn(NODES, 8, requires_grad=True), torch.randint(NODES, (2, 3000))
    found = []
    monkeypatch.setattr(
        'pygfuse.cpu.edges.walked_edges.grouped', lambda *given: found.append(paths.grouped(*given)) or found[-1]
    )
    conv = SAGEConv(8, 8)
    with group_sizes(lambda csr, row_bytes: 30), execution_paths(True):
        conv(x, edge_index)[:20].sum().backward()
    path = known_paths(Graph.of(edge_index, num_sources=NODES, num_targets=NODES))[0]
    assert 0 < path.num_edges < 1000
    rows = by_source(path, Graph.of(edge_index, num_sources=NODES, num_targets=NODES))
    assert [parts.count for parts in found] == [-(-(len(rows.rows) + rows.num_edges) // 30)]


def test_a_path_without_edges():
    graph = Graph.of(torch.tensor([[0, 1], [1, 2]]), num_sources=3, num_targets=3)
    path = ExecutionPath(graph, torch.zeros(3, dtype=torch.uint8))
    rows, parts = rows_and_parts(path, graph, 'target', cut(graph.csr))
    with group_sizes('regression'):
        assert grouped(rows, parts, Mapping(), 32).bounds.tolist() == [0, 0, 0, 0]
