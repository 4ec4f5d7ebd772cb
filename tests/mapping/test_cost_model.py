"""The cost model of walks."""

import torch

from pygfuse.mapping.cost_model import modelled, scatter_cost, sorting_cost, walk_cost
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
