import pytest
import torch

from pygfuse.ops import Edges
from pygfuse.ops.degrees import degrees, degrees_of
from tests.support.parity import GRAPHS


@pytest.mark.parametrize('graph', ['random', 'bipartite, more targets'])
def test_edges_into_targets_and_out_of_sources(graph):
    example = GRAPHS[graph]()
    sources, targets = example.edge_index
    for flow, edge_index in (
        ('source_to_target', example.edge_index),
        ('target_to_source', example.edge_index.flip(0)),
    ):
        edges = Edges(edge_index, example.num_sources, example.num_targets, flow)
        into, out_of = degrees(edges, torch.zeros(1, dtype=torch.float64))
        assert torch.equal(into, targets.bincount(minlength=example.num_targets).double())
        assert torch.equal(out_of, sources.bincount(minlength=example.num_sources).double())
        for like, walked in ((into, None), (into.float(), edges.graph())):
            edges.walked = walked
            for side, expected in (('target', into), ('source', out_of)):
                found = degrees_of(edges, side, like)
                assert found.dtype == like.dtype
                assert torch.equal(found.double(), expected)


@pytest.mark.parametrize('node', [-1, 3])
def test_nodes_that_are_not_there(node):
    edges = Edges(torch.tensor([[0, 1], [node, 2]]), 3, 3)
    with pytest.raises(ValueError, match='edge_index'):
        degrees_of(edges, 'target', torch.zeros(1))
