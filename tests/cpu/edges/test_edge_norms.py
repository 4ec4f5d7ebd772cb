"""Norms of edges by one kernel are PyG's to the bit."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import pygfuse
from pygfuse.cpu.edges.edge_norms import edge_norms
from tests.support.parity import GRAPHS


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
@pytest.mark.parametrize('with_loops', [False, True])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(
    'graph', ['random', 'isolated nodes', 'self-loops', 'hub', 'repeated edges', 'no edges', 'one node']
)
def test_norms_are_those_of_pyg(graph, dtype, with_loops, flow):
    example = GRAPHS[graph]()
    edge_index, nodes = example.edge_index.contiguous(), example.num_targets
    found = edge_norms(edge_index, int(flow == 'source_to_target'), nodes, with_loops, dtype)
    expected = gcn_norm(edge_index, None, nodes, False, with_loops, flow, dtype)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.is_contiguous()


@pytest.mark.parametrize('place', [0, 1])
@pytest.mark.parametrize('node', [-1, 3])
def test_nodes_that_are_not_there(place, node):
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    edge_index[place, 1] = node
    with pytest.raises(IndexError):
        edge_norms(edge_index, 1, 3, True, torch.float32)
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        pygfuse.compile(pyg.SGConv(4, 2))(torch.randn(3, 4), edge_index)
