from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.graph.graph import Graph
from pygfuse.hag.search.merge import SPARE_SLOTS
from pygfuse.hag.search.search import search_merges
from tests.support.parity import random_edges


def graph_of(edge_index, sources: int, targets: int) -> Graph:
    return Graph.of(edge_index, num_sources=sources, num_targets=targets)


def redundancies(rows: list[set[int]]) -> Counter:
    """How many targets aggregate both of each pair."""
    return Counter(pair for row in rows for pair in itertools.combinations(sorted(row), 2))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 10), st.integers(1, 12), st.integers(1, 9), st.integers(2, 4), st.integers(0, 2**20))
def test_each_merge_is_of_the_most_redundant_pair(sources, targets, degree, least, seed):
    """Algorithm 3, replayed."""
    edge_index = torch.unique(random_edges(sources, targets, degree * targets, seed), dim=1)
    merges = search_merges(graph_of(edge_index, sources, targets), least, 2048, None)
    rows = [set(edge_index[0, edge_index[1] == target].tolist()) for target in range(targets)]
    for number, (a, b, redundancy) in enumerate(zip(merges.first, merges.second, merges.redundancies, strict=True)):
        counts = redundancies(rows)
        assert redundancy == counts[min(a, b), max(a, b)] == max(counts.values()) >= least
        for row in rows:
            if {a, b} <= row:
                row -= {a, b}
                row.add(sources + number)
    assert max(redundancies(rows).values(), default=0) < least
    expected = {(target, node) for target, row in enumerate(rows) for node in row}
    assert set(zip(merges.rows.tolist(), merges.nodes.tolist(), strict=True)) == expected
    assert merges.rows.size == len(expected)


def test_targets_that_are_far_apart():
    """Their numbers are sorted a digit at a time: they may be of several."""
    edge_index = random_edges(30, 40, 500)
    near = search_merges(graph_of(edge_index, 30, 40), 2, 2048, None)
    place = torch.randperm(2**23, generator=torch.Generator().manual_seed(0))[:40].sort().values
    far = search_merges(graph_of(torch.stack([edge_index[0], place[edge_index[1]]]), 30, 2**23), 2, 2048, None)
    assert near.count > 10
    assert np.array_equal(near.first, far.first)
    assert np.array_equal(near.redundancies, far.redundancies)
    assert np.array_equal(place.numpy()[near.rows], far.rows)
    assert np.array_equal(near.nodes, far.nodes)


def test_more_nodes_than_slots():
    """The node that saves least gives its slot to another; what targets hold stays the same."""
    related = torch.rand(12, 4000, generator=torch.Generator().manual_seed(0)) < 0.5
    edge_index = torch.stack(torch.where(related))
    merges = search_merges(graph_of(edge_index, 12, 4000), 2, 2048, None)
    assert merges.count > 12 + SPARE_SLOTS
    held = [{source} for source in range(12)]
    for a, b in zip(merges.first, merges.second, strict=True):
        held.append(held[a] | held[b])
    found = torch.zeros_like(related)
    for row, node in zip(merges.rows, merges.nodes, strict=True):
        found[list(held[node]), row] = True
    assert torch.equal(found, related)
    assert merges.rows.size < edge_index.shape[1] / 2


def test_a_deadline_that_is_over():
    edge_index = random_edges(30, 30, 400)
    for size in (2048, 8):
        merges = search_merges(graph_of(edge_index.clone(), 30, 30), 2, size, time.monotonic() - 1.0)
        assert merges.count == 0


def test_progress_ends_where_it_should():
    edge_index = torch.cat([random_edges(40, 40, 600), random_edges(9, 9, 40) + 40], dim=1)
    told = []
    search_merges(graph_of(edge_index, 49, 49), 2, 16, None, lambda done, work: told.append((done, work)))
    assert len(told) > 3
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
