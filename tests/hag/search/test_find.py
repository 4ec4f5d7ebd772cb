from __future__ import annotations

import importlib
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.graph.graph import Graph
from pygfuse.hag.hag import Hag
from pygfuse.hag.search.find import expected_gain, why_not_worth
from pygfuse.transforms import find_hag
from tests.support.parity import GRAPHS, random_edges


def neighbours(edge_index, num_targets: int) -> list[Counter]:
    found = [Counter() for _ in range(num_targets)]
    for source, target in edge_index.t().tolist():
        found[target][source] += 1
    return found


def check(hag: Hag, edge_index, num_sources: int, num_targets: int, is_reversed: bool = False) -> None:
    """Covers are neighbours, levels are right, the cost has not risen."""
    assert (hag.num_sources, hag.num_targets, hag.num_edges) == (num_sources, num_targets, edge_index.shape[1])
    assert neighbours(hag.cover(), num_targets) == neighbours(edge_index, num_targets)
    cost, aggregations = hag.cost(), hag.num_aggregations
    assert cost.after <= cost.before
    assert aggregations.after <= aggregations.before
    assert aggregations.before - aggregations.after == cost.before - cost.after
    rows = hag.aggregations
    for node, level in enumerate(hag.levels.tolist()):
        begin, middle, end = (int(rows.indptr[node]), int(rows.middle[node]), int(rows.indptr[node + 1]))
        assert end - begin >= 2 - is_reversed
        below = rows.index[middle:end].tolist()
        least = 1 + max((int(hag.levels[other]) for other in below), default=0)
        assert level == least or (is_reversed and least <= level <= hag.depth)
        assert all(other < node for other in below)
    assert bool((hag.levels.diff() >= 0).all())


@settings(max_examples=60, deadline=None)
@given(
    sources=st.integers(1, 40),
    targets=st.integers(1, 40),
    degree=st.integers(0, 25),
    seed=st.integers(0, 2**20),
    capacity=st.sampled_from([None, 0, 3, 0.25]),
    block_size=st.sampled_from([2, 7, 2048]),
    max_depth=st.sampled_from([None, 0, 1, 2]),
    hub=st.booleans(),
)
def test_covers_are_neighbours(sources, targets, degree, seed, capacity, block_size, max_depth, hub):
    edge_index = random_edges(sources, targets, degree * targets, seed)
    if hub:
        into = torch.stack([torch.arange(sources), torch.zeros(sources, dtype=torch.int64)])
        edge_index = torch.cat([edge_index, into], dim=1)
    options = {'capacity': capacity, 'block_size': block_size, 'max_depth': max_depth}
    hag = find_hag(edge_index, (sources, targets), **options)
    check(hag, edge_index, sources, targets)
    limit = {None: hag.num_aggregation_nodes, 0.25: targets // 4}.get(capacity, capacity)
    assert hag.num_aggregation_nodes <= limit
    assert max_depth is None or hag.depth <= max_depth
    check(hag.reversed, edge_index.flip(0), targets, sources, is_reversed=True)


@pytest.mark.parametrize('name', GRAPHS)
def test_graphs(name):
    example = GRAPHS[name]()
    hag = find_hag(example.edge_index, (example.num_sources, example.num_targets), capacity=None)
    check(hag, example.edge_index, example.num_sources, example.num_targets)


def clique(size: int):
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size)).t()
    return pairs[:, pairs[0] != pairs[1]]


def test_any_adjacency():
    edge_index = clique(12)
    expected = find_hag(edge_index).cover()
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(edge_index.shape[1])).coalesce()
    for adjacency in (edge_index.int(), Graph.of(edge_index), matrix, matrix.to_sparse_csr()):
        assert torch.equal(find_hag(adjacency).cover(), expected)


def test_nodes_of_many_inputs_save_more_than_first_merges():
    edge_index = clique(60)
    hag = find_hag(edge_index, capacity=15)
    # fifteen merges of two save at most fifteen times 58 of 3480
    assert hag.num_aggregations.before == 60 * 58
    assert hag.num_aggregations.after < 60 * 58 - 15 * 58
    assert hag.num_aggregation_nodes <= 15
    # a number of nodes, not a share of them
    assert find_hag(edge_index, capacity=np.int64(15)).num_aggregation_nodes == hag.num_aggregation_nodes


def test_blocks_of_similar_sources_find_most_of_what_counting_all_pairs_finds():
    groups = torch.arange(40).repeat_interleave(10)
    generator = torch.Generator().manual_seed(0)
    related = torch.rand(40, 300, generator=generator) < 0.1
    edge_index = torch.stack(torch.where(related[groups]))
    whole, parted = (find_hag(edge_index, (400, 300), None, block_size=size) for size in (2048, 64))
    saved = [hag.num_aggregations.before - hag.num_aggregations.after for hag in (whole, parted)]
    assert saved[1] > 0.95 * saved[0] > 0


def test_the_result_is_always_the_same():
    edge_index = torch.cat([clique(30) + 30 * i for i in range(9)] + [random_edges(270, 270, 3000)], dim=1)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for size in (64, 2048):
            found.append(find_hag(edge_index.clone(), block_size=size))
    torch.set_num_threads(1)
    for hag in found[2:]:
        twin = found[found.index(hag) % 2]
        assert torch.equal(hag.targets.index, twin.targets.index)
        assert torch.equal(hag.aggregations.index, twin.aggregations.index)
        assert torch.equal(hag.levels, twin.levels)


def least_cost(rows: list[frozenset], capacity: int) -> int:
    """Binary aggregations of the best HAG: every family of at most `capacity` sets is tried."""
    sets = {frozenset(part) for row in rows for n in range(2, len(row) + 1) for part in itertools.combinations(row, n)}
    best = math.inf
    for size in range(min(capacity, len(sets)) + 1):
        for family in itertools.combinations(sorted(sets, key=sorted), size):
            cost = sum(fewest_parts(row, family) - 1 for row in rows if row)
            for chosen in family:
                cost += fewest_parts(chosen, [other for other in family if other < chosen]) - 1
            best = min(best, cost)
    return best


def fewest_parts(row: frozenset, family) -> int:
    """The fewest disjoint sets of a family, or single elements, that make up a row."""
    inside = [part for part in family if part <= row]
    fewest = len(row)
    for size in range(1, len(inside) + 1):
        for parts in itertools.combinations(inside, size):
            total = sum(map(len, parts))
            if total <= len(row) and len(frozenset().union(*parts)) == total:
                fewest = min(fewest, size + len(row) - total)
    return fewest


@pytest.mark.parametrize('capacity', [1, 2])
@pytest.mark.parametrize('seed', range(12))
def test_the_bound_of_theorem_3(seed, capacity):
    generator = torch.Generator().manual_seed(seed)
    related = torch.rand(5, 6, generator=generator) < 0.7
    edge_index = torch.stack(torch.where(related))
    hag = find_hag(edge_index, (5, 6), capacity=capacity)
    rows = [frozenset(related[:, target].nonzero().flatten().tolist()) for target in range(6)]
    plain, found = hag.num_aggregations
    best = least_cost(rows, capacity)
    assert best <= found <= plain / math.e + (1 - 1 / math.e) * best


def test_a_limit_of_time_gives_what_was_found():
    edge_index = torch.cat([clique(100) + 100 * i for i in range(20)], dim=1)
    hag = find_hag(edge_index, budget_s=1e-9)
    assert neighbours(hag.cover(), 2000) == neighbours(edge_index, 2000)


def test_nothing_shared_is_the_graph():
    edge_index = torch.tensor([[1, 2, 3, 3], [0, 1, 2, 2]])
    hag = find_hag(edge_index)
    assert (hag.depth, hag.num_aggregation_nodes, hag.num_edges) == (0, 0, 4)
    check(hag, edge_index, 4, 4)
    check(hag.reversed, edge_index.flip(0), 4, 4, is_reversed=True)


@pytest.mark.slow
@pytest.mark.parametrize('budget_s', [None, 2.0])
def test_a_hub_of_a_million(budget_s):
    """Groups of 20 nodes that have 10 neighbours in common, and a node that all others are neighbours of."""
    degree, generator = 1_000_000, torch.Generator().manual_seed(0)
    targets, sources = (torch.randint(degree, size, generator=generator) for size in ((10_000, 20, 1), (10_000, 1, 10)))
    related = torch.stack([sources.expand(-1, 20, -1).flatten(), targets.expand(-1, -1, 10).flatten()])
    into = torch.stack([torch.arange(degree), torch.full((degree,), degree)])
    edge_index = torch.cat([into, into.flip(0), related], dim=1)
    num_nodes = degree + 1
    hag = find_hag(edge_index, num_nodes, budget_s=budget_s)
    keys = [(pair[1] * num_nodes + pair[0]).sort().values for pair in (hag.cover(), edge_index)]
    assert torch.equal(*keys)
    assert hag.num_aggregations.ratio >= (1.0 if budget_s else 2.5)


def test_whether_it_pays():
    assert 'share nothing' in why_not_worth(find_hag(torch.stack([torch.arange(29), torch.arange(1, 30)])))
    small = find_hag(clique(40))
    assert expected_gain(small) < 1.05
    assert 'does not pay' in why_not_worth(small)
    large = find_hag(torch.cat([clique(80) + 80 * i for i in range(60)], dim=1))
    assert expected_gain(large) > 1.5
    assert why_not_worth(large) is None


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('capacity', -1),
        ('capacity', 'all'),
        ('min_redundancy', 1),
        ('min_saving', -1),
        ('max_depth', 1.5),
        ('budget_s', 0),
        ('budget_s', '1'),
        ('block_size', 1),
    ],
)
def test_options_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"'{name}'"):
        find_hag(clique(4), **{name: value})


NO_LIMITS = [('capacity', float('inf')), ('max_depth', 2**40), ('budget_s', float('inf')), ('budget_s', 2**40)]


@pytest.mark.parametrize(('name', 'value'), NO_LIMITS)
@pytest.mark.filterwarnings('error::pytest.PytestUnhandledThreadExceptionWarning')
def test_limits_that_are_none(name, value):
    found, expected = (find_hag(clique(12), **{'capacity': None, name: one}) for one in (value, None))
    assert torch.equal(found.cover(), expected.cover())
    assert found.num_aggregation_nodes == expected.num_aggregation_nodes > 0


def test_no_node_saves_so_much():
    assert find_hag(clique(12), min_saving=2**40).num_aggregation_nodes == 0


def test_progress_is_shown_when_it_takes_long(capsys, monkeypatch):
    module, shown = importlib.import_module('pygfuse.hag.search.find'), 'Search of a HAG'
    monkeypatch.setattr(module, '_SHOWN_AFTER_S', 1e9)
    find_hag(clique(6))
    assert shown not in capsys.readouterr().err
    monkeypatch.setattr(module, '_SHOWN_AFTER_S', 0.0)
    find_hag(clique(6), progress=False)
    assert shown not in capsys.readouterr().err
    find_hag(clique(6))
    assert shown in capsys.readouterr().err
