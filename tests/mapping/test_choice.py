"""The choice of a mapping."""

import pytest
import torch

from pygfuse import force_mapping, group_sizes, used_once
from pygfuse.conv import GATConv, SAGEConv
from pygfuse.graph.graph import Graph
from pygfuse.mapping import choice
from pygfuse.mapping.mapping import Mapping


def graph_of(conv, channels, edge_index, nodes=500):
    x = torch.randn(nodes, channels, requires_grad=True)
    conv(x, edge_index).sum().backward()
    return Graph.of(edge_index, num_sources=nodes, num_targets=nodes)


def test_few_channels_of_a_graph_that_is_used_once_are_summed_without_sorting():
    edges = torch.randint(500, (2, 40_000))
    with used_once():
        assert not graph_of(SAGEConv(8, 8), 8, edges.clone()).is_sorted
        assert graph_of(SAGEConv(256, 256), 256, edges.clone()).is_sorted
        assert graph_of(GATConv(8, 8, add_self_loops=False), 8, edges.clone()).is_sorted
    assert graph_of(SAGEConv(8, 8), 8, edges.clone()).is_sorted


def test_backward_outside_the_block_walks_the_same_way():
    edges, x = torch.randint(500, (2, 40_000)), torch.randn(500, 8, requires_grad=True)
    with used_once():
        out = SAGEConv(8, 8)(x, edges)
    out.sum().backward()
    assert not Graph.of(edges, num_sources=500, num_targets=500).is_sorted


def test_wrong_nodes_are_found_without_sorting():
    edges = torch.randint(500, (2, 40_000))
    edges[0, 77] = 500
    with used_once(), pytest.raises(ValueError, match=r'edge_index\[0\] holds node 500 at position 77'):
        SAGEConv(8, 8)(torch.randn(500, 8), edges)


@pytest.mark.parametrize('block', [force_mapping(Mapping('edge', 77)), group_sizes(lambda csr, row_bytes: 77)])
def test_a_compiled_model_runs_in_the_mapping_of_the_block(block, monkeypatch):
    sizes, find = [], choice.mapping_for
    monkeypatch.setattr(choice, 'mapping_for', lambda *given: sizes.append(find(*given).part_work) or find(*given))
    conv = torch.compile(SAGEConv(8, 8), backend='aot_eager', fullgraph=True)
    x, edge_index = torch.randn(60, 8, requires_grad=True), torch.randint(60, (2, 900))
    conv(x, edge_index).sum().backward()
    assert 77 not in sizes
    sizes.clear()
    with block:
        conv(x, edge_index).sum().backward()
    assert set(sizes) == {77}
