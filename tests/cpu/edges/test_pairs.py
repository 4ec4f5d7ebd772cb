"""Pairs of relations and nodes by a table are those of a sort."""

import pytest
import torch

from pygfuse.cpu.edges import pairs
from pygfuse.graph.graph import Graph
from pygfuse.graph.relations import Relations


def by_sorting(types, ends, num_relations, num_nodes):
    numbers, of_edges = torch.unique(types * num_nodes + ends, return_inverse=True)
    bounds = torch.searchsorted(numbers, torch.arange(num_relations + 1) * num_nodes)
    return bounds, numbers % num_nodes, of_edges


@pytest.mark.parametrize('edges', [0, 1, 50, 5_000])
@pytest.mark.parametrize('num_relations', [1, 3, 40])
def test_pairs_are_those_of_a_sort(edges, num_relations):
    types, ends = torch.randint(num_relations, (edges,)), torch.randint(17, (edges,))
    found = pairs.pairs(types, ends, num_relations, 17)
    for one, other in zip(found, by_sorting(types, ends, num_relations, 17), strict=True):
        assert torch.equal(one, other)


def test_few_edges_of_many_pairs_are_sorted(monkeypatch):
    monkeypatch.setattr(pairs, '_LEAST_TABLE', 1)
    monkeypatch.setattr(pairs, 'pairs', None)
    edge_index, types = torch.tensor([[0, 1, 900], [900, 2, 900]]), torch.tensor([5, 1, 5])
    assert not pairs.fits_table(3, 6, 901)
    relations = Relations.of(graph := Graph.of(edge_index), types, 6)
    assert relations.targets.nodes.tolist() == [2, 900]
    assert relations.targets.of_edges.tolist() == [1, 0, 1]
    assert graph.num_user_edges == 3


def test_edges_are_not_sorted_for_their_pairs():
    graph = Graph.of(torch.randint(9, (2, 30)))
    relations = Relations.of(graph, torch.randint(3, (30,)), 3)
    assert relations.sources.count > 0
    assert relations.between_pairs.num_user_edges == 30
    assert not graph.is_sorted


def test_edges_that_are_written_to_between_two_pairs_are_refused():
    edge_index = torch.randint(9, (2, 30))
    relations = Relations.of(graph := Graph.of(edge_index), torch.randint(3, (30,)), 3)
    assert relations.sources.count > 0
    edge_index[1, 0] = 10**9
    with pytest.raises(RuntimeError, match='written to'):
        relations.targets  # noqa: B018
    assert not graph.is_sorted
