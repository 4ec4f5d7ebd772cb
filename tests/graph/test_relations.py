"""What is kept of the types of edges."""

from __future__ import annotations

import weakref

import pytest
import torch

from pygfuse.graph.graph import Graph
from pygfuse.graph.relations import Relations

GRAPH = Graph.of(torch.tensor([[0, 1, 1, 3], [2, 2, 2, 0]]))
TYPES = torch.tensor([0, 1, 0, 1])


def test_pairs_of_relations_and_nodes():
    relations = Relations.of(GRAPH, TYPES, 3)
    assert relations.sources.bounds == (0, 2, 4, 4)
    assert relations.sources.nodes.tolist() == [0, 1, 1, 3]
    assert relations.sources.of_edges.tolist() == [0, 2, 1, 3]
    assert relations.sources.types.tolist() == [0, 0, 1, 1]
    assert relations.targets.nodes.tolist() == [2, 0, 2]
    assert relations.targets.of_edges.tolist() == [0, 2, 0, 1]


def test_the_same_types_are_the_same_relations():
    assert Relations.of(GRAPH, TYPES, 2).sources is Relations.of(GRAPH, TYPES, 2).sources
    assert Relations.of(GRAPH, TYPES, 2).sources is not Relations.of(GRAPH, TYPES.clone(), 2).sources
    more = Relations.of(GRAPH, TYPES, 5)
    assert more.num_relations == 5
    assert len(more.sources.bounds) == 6
    assert Relations.of(GRAPH, TYPES, 2).num_relations == 2


def test_shares_of_each_type():
    relations = Relations.of(GRAPH, TYPES, 2)
    for dtype in (torch.float32, torch.float64):
        shares = relations.shares(dtype)
        assert shares.dtype == dtype
        assert shares.flatten().tolist() == [0.5, 1, 0.5, 1]
        assert relations.shares(dtype) is shares


def test_types_that_are_written_to_are_other_relations():
    types = TYPES.clone()
    before = Relations.of(GRAPH, types, 2)
    types[0] = 1
    after = Relations.of(GRAPH, types, 2)
    # parts are made when they are first asked for
    assert before.sources.bounds == (0, 2, 4)
    assert before.types.tolist() == TYPES.tolist()
    assert after.types.tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize('types', [[0, 1, -1, 0], [0, 1, 2, 0]])
def test_a_relation_that_is_not_there(types):
    with pytest.raises(ValueError, match=f'relations 0 to 1 .got {types[2]} at position 2'):
        Relations.of(GRAPH, torch.tensor(types), 2)


def test_relations_made_in_inference_mode_are_no_inference_tensors():
    types = TYPES.clone()
    with torch.inference_mode():
        made = Relations.of(GRAPH, types, 2)
        assert not made.types.is_inference()
        assert not made.sources.nodes.is_inference()
    assert Relations.of(GRAPH, types, 2).sources is made.sources


def test_they_keep_their_graph_and_it_does_not_keep_them():
    graph = Graph.of(torch.tensor([[0, 1, 1, 3], [2, 2, 2, 0]]))
    relations, alive = Relations.of(graph, TYPES, 2), weakref.ref(graph)
    del graph
    assert relations.targets.nodes.tolist() == [2, 0, 2]
    assert alive() is not None
    del relations
    assert alive() is None
