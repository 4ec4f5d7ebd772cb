"""The choice of a mapping by the cost model."""

import pytest
import torch

from pygfuse import used_once
from pygfuse.conv import GATConv, SAGEConv
from pygfuse.graph.graph import Graph
from pygfuse.mapping.choice import modelled, scatter_cost, sorting_cost, walk_cost
from pygfuse.mapping.mapping import Mapping
from pygfuse.mapping.records import Shape

TOLOKERS = Shape(11_758, 1_038_000, 2_138)


def test_regular_graphs_stay_vertex_balanced_and_whole():
    for row_bytes in (16, 256, 4096):
        assert modelled(Shape(20_000, 400_000, 20), row_bytes) == Mapping()
        assert modelled(TOLOKERS, row_bytes) == Mapping()


def test_a_row_as_long_as_all_others_asks_for_equal_parts():
    shape = Shape(20_000, 60_000, 2_000)
    assert modelled(shape, 256).balance == 'edge'
    assert walk_cost(shape, 256, Mapping('edge')) < walk_cost(shape, 256, Mapping('vertex'))


def test_costs_rise_with_edges_and_bytes():
    more = Shape(TOLOKERS.num_rows, 2 * TOLOKERS.num_edges, TOLOKERS.max_degree)
    for cost in (lambda shape, row_bytes: walk_cost(shape, row_bytes, Mapping()), scatter_cost):
        assert cost(TOLOKERS, 64) < cost(TOLOKERS, 256) < cost(more, 256)
    assert sorting_cost(TOLOKERS) < sorting_cost(more)


def test_the_number_of_threads_does_not_matter():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 3)
        modelled.cache_clear()
        many = modelled(Shape(2_000, 60_000, 40_000), 64)
    finally:
        torch.set_num_threads(threads)
    modelled.cache_clear()
    assert modelled(Shape(2_000, 60_000, 40_000), 64) == many


def graph_of(conv, channels, edge_index, nodes=500):
    x = torch.randn(nodes, channels, requires_grad=True)
    conv(x, edge_index).sum().backward()
    return Graph.of(edge_index, num_sources=nodes, num_targets=nodes)


def test_few_channels_of_a_graph_that_is_used_once_are_summed_without_sorting():
    edges = torch.randint(500, (2, 40_000))
    with used_once():
        assert not graph_of(SAGEConv(8, 8), 8, edges.clone()).is_sorted
        assert graph_of(SAGEConv(256, 8), 256, edges.clone()).is_sorted
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
