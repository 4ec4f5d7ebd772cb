from __future__ import annotations

import pytest
import torch

from pygfuse.graph.graph import Graph
from pygfuse.partial.rows import row_set
from pygfuse.partial.rows.row_set import RowSet, chosen, joined
from tests.support.parity import random_edges


def test_a_mask_and_an_index_name_the_same_rows():
    mask = torch.tensor([False, True, True, False, False])
    rows = RowSet.of(mask, 5)
    assert rows.index.tolist() == [1, 2]
    assert RowSet.of(mask, 5) is rows
    assert RowSet.of(torch.tensor([2, 1, -4, 2]), 5) is rows
    mask[4] = True
    assert RowSet.of(mask, 5).index.tolist() == [1, 2, 4]
    assert RowSet.of(torch.ones(5) > 0, 5) is None
    for wrong in (5, -6):
        with pytest.raises(IndexError, match=f'index {wrong} is out of bounds for dimension 0 with size 5'):
            RowSet.of(torch.tensor([0, wrong]), 5)


def test_rows_on_another_device_are_others():
    elsewhere = RowSet(torch.empty(2, dtype=torch.int64, device='meta'), 5)
    row_set._recent.append(elsewhere)
    try:
        assert RowSet.of(torch.tensor([1, 3]), 5).index.device.type == 'cpu'
    finally:
        row_set._recent.remove(elsewhere)


@pytest.mark.parametrize('is_mask', [False, True])
def test_what_is_kept_can_be_saved_for_backward(is_mask):
    with torch.inference_mode():
        rows = torch.arange(90) % 7 == 5
        rows = RowSet.of(rows if is_mask else rows.nonzero().flatten(), 90)
        other = RowSet.of(torch.arange(90) % 11 == 4, 90)
        union = rows.union(other)
        graph = Graph.of(random_edges(90, 90, 60), num_sources=90, num_targets=90)
        part, sources = rows.part_of(graph)
        tensors = [rows.index, union.index, rows.places_in(union), sources.index, part.csr.indptr, part.csr.index]
    assert not any(tensor.is_inference() for tensor in tensors)


def test_unions_and_places():
    one, other, more = (RowSet(torch.tensor(rows), 20) for rows in ([1, 5, 7], [5], [2, 5]))
    assert one.union(other) is one
    assert other.union(one) is one
    assert one.union(more).index.tolist() == [1, 2, 5, 7]
    assert one.union(more) is one.union(more)
    assert joined(one, None) is None
    assert more.places_in(one.union(more)).tolist() == [1, 2]
    assert other.is_within(one)
    assert not more.is_within(one)
    assert not RowSet(torch.tensor([5, 9]), 20).is_within(one)  # beyond its last row
    assert RowSet(torch.tensor([5, 9]), 20).union(one).index.tolist() == [1, 5, 7, 9]
    values = torch.arange(4.0)
    assert chosen(values, one.union(more), one).tolist() == [0.0, 2.0, 3.0]
    assert RowSet(torch.arange(8), 16).union(RowSet(torch.arange(4, 14), 16)) is None  # nearly all


@pytest.mark.parametrize('loops', [False, True])
@pytest.mark.parametrize('edges', [0, 60, 900])
def test_the_part_of_a_graph_that_some_targets_need(edges, loops):
    graph = Graph.of(random_edges(90, 90, edges), num_sources=90, num_targets=90)
    graph = graph.with_self_loops(90) if loops else graph
    rows = RowSet.of(torch.arange(90) % 7 == 3, 90)
    part, sources = rows.part_of(graph)
    assert rows.part_of(graph)[0] is part
    assert (part.num_targets, part.num_edge_ids) == (len(rows), graph.num_edge_ids)
    kept = torch.isin(graph.csr.rows(), rows.index)
    names = torch.arange(90) if sources is None else sources.index
    assert (edges == 900) == (sources is None)
    assert part.num_sources == len(names)
    assert torch.equal(names[part.csr.index.long()], graph.csr.index[kept].long())
    assert torch.equal(rows.index[part.csr.rows()], graph.csr.rows()[kept])
    ids = torch.arange(graph.num_edges) if graph.csr.edge_id is None else graph.csr.edge_id.long()
    assert torch.equal(part.csr.edge_id.long(), ids[kept])
    assert part.num_edges == int(kept.sum())
