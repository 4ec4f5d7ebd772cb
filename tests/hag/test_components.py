from __future__ import annotations

import torch

from pygfuse.hag.components import component_bounds
from pygfuse.transforms import find_hag
from tests.support.parity import cliques, random_edges


def test_parts_need_nothing_of_each_other():
    # sizes differ, so that some components have more levels than others
    edge_index = torch.cat([cliques(100), cliques(300, 7) + 3000, cliques(40, 50) + 5100], dim=1)
    hag = find_hag(edge_index, capacity=None)
    for way in (hag, hag.reversed):
        bounds = component_bounds(way)
        assert len(bounds) > 2
        for level in range(way.depth + 1):
            numbers = torch.cat([torch.arange(first, end) for first, end in bounds[:, level].tolist()])
            expected = way.levels.eq(level + 1).nonzero().flatten()
            if level == way.depth:
                expected = torch.arange(way.num_targets)
            assert torch.equal(numbers.sort().values, expected)
        part_of = torch.empty(way.num_aggregation_nodes, dtype=torch.int64)
        for part, rows in enumerate(bounds[:, :-1].tolist()):
            for first, end in rows:
                part_of[first:end] = part
        for rows, first_level in ((way.aggregations, 0), (way.targets, way.depth)):
            inputs = rows.of_aggregations()
            users = rows.rows()[inputs]
            own = part_of[users]
            if first_level:
                own = torch.searchsorted(bounds[:, -1, 1].contiguous(), users, right=True)
            assert torch.equal(part_of[rows.index[inputs].long()], own)


def test_a_component_with_most_of_the_work_goes_level_by_level():
    mixed = random_edges(4000, 4000, 60_000)
    assert component_bounds(find_hag(torch.cat([mixed, cliques(40)], dim=1), 4000)) is None


def test_components_that_are_no_runs_of_rows_go_level_by_level():
    edge_index = cliques(100)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    assert component_bounds(find_hag(order[edge_index], capacity=None)) is None
