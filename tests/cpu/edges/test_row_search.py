from __future__ import annotations

import pytest
import torch

from pygfuse.cpu.edges.row_search import active_rows, active_share, distances, kept_columns, kept_rows
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import UNREACHED
from tests.support.parity import random_edges


@pytest.mark.parametrize(('width', 'dtype'), [(1, torch.float32), (7, torch.float32), (40, torch.float64)])
def test_rows_with_one_value_that_is_not_zero_are_found(width, dtype):
    rows = 9000  # several parts
    generator = torch.Generator().manual_seed(0)
    expected = torch.rand(rows, generator=generator) < 0.2
    values = torch.zeros(rows, width, dtype=dtype)
    values[~expected] = -0.0
    columns = torch.randint(width, (rows,), generator=generator)
    odd = torch.tensor([1.0, float('nan'), float('inf'), -1e-45 if dtype is torch.float32 else -5e-324], dtype=dtype)
    values[expected, columns[expected]] = odd[torch.arange(int(expected.sum())) % 4]
    degree = torch.randint(5, (rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    active, num_rows, num_edges = active_rows(values, indptr)
    assert torch.equal(active.bool(), expected)
    assert (num_rows, num_edges) == (int(expected.sum()), int(degree[expected].sum()))


def test_the_share_of_sampled_rows_and_rows_without_edges():
    values = torch.zeros(900, 3)
    values[::4, 2] = float('nan')
    assert active_share(values, torch.arange(0, 900, 2)) == 0.5
    assert active_rows(values, None)[1:] == (225, 225)


def test_edges_from_active_columns_and_of_active_rows_are_kept_in_order():
    graph = Graph.of(random_edges(900, 700, 40_000), num_sources=900, num_targets=700)
    active = (torch.rand(700, generator=torch.Generator().manual_seed(1)) < 0.3).to(torch.uint8)
    for csr, of_row in ((graph.csr, True), (graph.csc, False)):
        kept = active[csr.rows() if of_row else csr.index.long()].bool()
        indptr, index, ids = kept_rows(csr, active) if of_row else kept_columns(csr, active, csr.edge_id)
        assert torch.equal(index, csr.index[kept])
        assert torch.equal(ids, csr.edge_id[kept])
        assert torch.equal(indptr.diff(), torch.bincount(csr.rows()[kept], minlength=csr.num_rows).to(indptr.dtype))


def test_distances_follow_edges_from_targets_to_sources():
    edge_index, start = random_edges(3000, 3000, 9000, seed=2), torch.arange(3000) < 5
    expected = torch.where(start, 0, UNREACHED)
    for step in range(4):
        reached = edge_index[0, expected[edge_index[1]] == step]
        expected[reached] = expected[reached].clamp(max=step + 1)
    assert len(expected.unique()) == 6
    assert torch.equal(
        distances(Graph.of(edge_index, num_sources=3000, num_targets=3000).csr, start, 4), expected.byte()
    )
