import torch

from pygfuse.ops import Edges
from pygfuse.ops.degrees import degrees
from tests.support.parity import GRAPHS


def test_edges_into_targets_and_out_of_sources():
    example = GRAPHS['bipartite, more targets']()
    sources, targets = example.edge_index
    for flow, edge_index in (
        ('source_to_target', example.edge_index),
        ('target_to_source', example.edge_index.flip(0)),
    ):
        edges = Edges(edge_index, example.num_sources, example.num_targets, flow)
        into, out_of = degrees(edges, torch.zeros(1, dtype=torch.float64))
        assert torch.equal(into, targets.bincount(minlength=example.num_targets).double())
        assert torch.equal(out_of, sources.bincount(minlength=example.num_sources).double())
