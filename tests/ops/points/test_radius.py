from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from torch import Tensor

import pygfuse
from pygfuse import radius, radius_graph
from pygfuse.graph.graph import Graph
from pygfuse.graph.within import Within
from pygfuse.memory import peak_bytes
from pygfuse.ops.points.radius import within_by_torch


def pairs_of_tree(x: Tensor, r: float) -> Tensor:
    """Both directions of the pairs that scipy finds, by target and then by source; targets in row 0."""
    pairs = cKDTree(x.double().numpy()).query_pairs(r, output_type='ndarray')
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return torch.from_numpy(both[np.lexsort((both[:, 1], both[:, 0]))].T.astype(np.int64))


def balls_of_tree(x: Tensor, y: Tensor, r: float) -> list[list[int]]:
    """The points within the radius of each query, as scipy finds them."""
    found = cKDTree(x.double().numpy()).query_ball_point(y.double().numpy(), r, return_sorted=True)
    return [list(ball) for ball in found]


def reference(x, y, r, clouds_x=None, clouds_y=None, wanted=None, without_self=False) -> list[list[int]]:
    """The neighbours of each query by the definition, in float64; the nearest of them, in ascending order."""
    xs, ys = x.double().numpy(), y.double().numpy()
    clouds_x = np.zeros(len(xs), int) if clouds_x is None else clouds_x.numpy()
    clouds_y = np.zeros(len(ys), int) if clouds_y is None else clouds_y.numpy()
    lists = []
    for q, query in enumerate(ys):
        total = np.zeros(len(xs))
        with np.errstate(over='ignore'):
            for d in range(xs.shape[1]):
                difference = xs[:, d] - query[d]
                total = total + difference * difference
        held = (total <= r * r) & (clouds_x == clouds_y[q])
        if without_self:
            held[q] = False
        found = np.flatnonzero(held)
        lists.append(sorted(sorted(found.tolist(), key=lambda i: (total[i], i))[:wanted]))
    return lists


def lists_of(pair: Tensor, queries: int) -> list[list[int]]:
    """Queries and neighbours as lists; the queries must ascend, and the neighbours of each."""
    assert pair.dtype == torch.int64
    assert bool((pair[0].diff() >= 0).all())
    counts = torch.bincount(pair[0], minlength=queries)
    lists = [chunk.tolist() for chunk in pair[1].split(counts.tolist())]
    assert all(found == sorted(set(found)) for found in lists)
    return lists


def points(count: int, dims: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(count, dims, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def lattice(count: int, dims: int, dtype: torch.dtype = torch.float32, seed: int = 0, side: int = 3) -> Tensor:
    return torch.randint(side, (count, dims), generator=torch.Generator().manual_seed(seed)).to(dtype)


def graph(x: Tensor, r: float, **options) -> Tensor:
    """All neighbours, targets in row 0."""
    return radius_graph(x, r, flow='target_to_source', **{'max_num_neighbors': None, **options})


RADII = {1: 0.2, 2: 0.4, 3: 0.6, 4: 0.9, 5: 1.2, 8: 2.5, 20: 5.0}


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dims', RADII)
def test_pairs_are_those_of_a_tree(dims, dtype):
    x = points(700, dims, dtype)
    found = graph(x, RADII[dims])
    assert found.shape[1] > 700
    torch.testing.assert_close(found, pairs_of_tree(x, RADII[dims]), rtol=0, atol=0)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dims', RADII)
def test_queries_of_their_own(dims, dtype):
    x, y = points(500, dims, dtype), 1.5 * points(310, dims, dtype, seed=1)
    found = radius(x, y, RADII[dims], max_num_neighbors=None)
    assert lists_of(found, 310) == balls_of_tree(x, y, RADII[dims])


def clustered() -> Tensor:
    far = torch.tensor([[1e6, -1e6, 0.0], [1e6, -1e6, 1e-3], [-3e7, 0.0, 0.0]], dtype=torch.float64)
    return torch.cat([points(200, 3, torch.float64), 1e-3 * points(200, 3, torch.float64, seed=1) + 1, far])


DEGENERATE = {
    'all at one place': (torch.ones(300, 3), [0.0, 1e-30, 1.0]),
    'a line': (torch.cat([points(300, 1), torch.zeros(300, 2)], dim=1), [0.0, 0.01, 0.5]),
    'a lattice': (lattice(400, 3, side=6), [0.0, 0.5, 1.0, 2.0, 3.0, 5.0]),
    'a lattice of another origin': (lattice(400, 2, torch.float64, side=9) - 1024.0, [1.0, 4.0, 5.0]),
    'clusters': (clustered(), [0.0, 1e-4, 1e-3, 0.1, 10.0, 1e7]),
    'a tiny radius': (points(500, 3), [1e-12, 1e-200, 5e-324]),
    'a huge radius': (points(150, 3), [1e3, 1e300, float('inf')]),
    'two points': (torch.tensor([[0.0, 0.0], [3.0, 4.0]]), [4.9999, 5.0]),
    'one point': (torch.zeros(1, 2), [0.0, 1.0]),
    'wide': (points(100, 3, torch.float64) * 1e150, [1e149, 1e150]),
    'narrow': (points(100, 3, torch.float64) * 1e-150, [1e-151, 1e-150]),
    'whole numbers': (lattice(200, 2, torch.int64, side=12), [1.0, 2.0]),
}


@pytest.mark.parametrize('name', DEGENERATE)
def test_degenerate_clouds(name):
    x, radii = DEGENERATE[name]
    for r in radii:
        found = lists_of(graph(x, r), len(x))
        assert found == reference(x, x, r, without_self=True)
        if r * r < float('inf'):
            assert found == lists_of(pairs_of_tree(x, r), len(x))
        assert lists_of(graph(x, r, loop=True), len(x)) == reference(x, x, r)


def test_points_that_are_farther_apart_than_numbers_reach():
    x = torch.tensor([[1.7e308], [-1.7e308], [1.7e308], [0.0]], dtype=torch.float64)
    assert lists_of(graph(x, 1.0), 4) == [[2], [], [0], []]
    assert lists_of(graph(x, float('inf')), 4) == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_clouds(data):
    sizes = data.draw(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 60)), min_size=1, max_size=5))
    dims = data.draw(st.sampled_from([1, 2, 3, 4, 7]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    seed, side = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([1, 2, 5, 30]))
    scale = data.draw(st.sampled_from([1.0, 0.1, 1e-20, 1e6]))
    r = scale * data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.0, 5.0, 100.0]) | st.floats(0, 50))
    wanted = data.draw(st.none() | st.integers(1, 40))
    batch_x, batch_y = (torch.arange(len(sizes)).repeat_interleave(column) for column in torch.tensor(sizes).t())
    x, y = (scale * lattice(len(b), dims, dtype, s, side) for b, s in ((batch_x, seed), (batch_y, seed + 1)))
    found = radius(x, y, r, batch_x, batch_y, wanted)
    assert lists_of(found, len(y)) == reference(x, y, r, batch_x, batch_y, wanted)
    found = graph(x, r, batch=batch_x, max_num_neighbors=wanted)
    assert lists_of(found, len(x)) == reference(x, x, r, batch_x, batch_x, wanted, without_self=True)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_cloud_beside_a_tree(data):
    count, dims = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 3))
    seed, stretch = data.draw(st.integers(0, 99)), data.draw(st.floats(0.1, 4))
    x = points(count, dims, torch.float64, seed).abs() ** stretch * data.draw(st.sampled_from([1e-9, 1.0, 1e9]))
    r = float(x.std(correction=0)) * data.draw(st.floats(0, 2))
    torch.testing.assert_close(graph(x, r), pairs_of_tree(x, r).reshape(2, -1), rtol=0, atol=0)


def test_the_boundary_belongs_to_it_in_float64():
    x = torch.tensor([[0.0], [0.1]])
    assert graph(x, 0.1).shape[1] == 0  # float32's 0.1 is more than 0.1
    assert graph(x, float(x[1])).shape[1] == 2
    assert graph(x.double().round(decimals=3), 0.1).shape[1] == 2
    assert graph(torch.tensor([[0], [7]]), 7).shape[1] == 2
    below = float(np.nextafter(7, 0))
    assert graph(torch.tensor([[0], [7]]), below).shape[1] == 0
    # one rounding decides: the square of the distance, in float64, is the square of the radius
    x = torch.tensor([[0.0, 0.0], [0.3, 0.4]], dtype=torch.float64)
    assert graph(x, 0.5).shape[1] == 2 * (0.3**2 + 0.4**2 <= 0.25)


def test_no_operation_is_fused_with_another():
    # such distances are at the boundary, or not, as the squares are rounded or not
    generator = np.random.default_rng(0)
    base = generator.random((2000, 3))
    x = torch.from_numpy(np.concatenate([base, np.zeros((1, 3))]))
    squares = base * base
    exact = np.sqrt((squares[:, 0] + squares[:, 1]) + squares[:, 2])
    for r in exact[:50].tolist():
        assert lists_of(radius(x, x[-1:], r, max_num_neighbors=None), 1) == reference(x, x[-1:], r)


@pytest.mark.parametrize('wanted', [1, 2, 7, 32, 100, 1000])
@pytest.mark.parametrize('dims', [1, 3, 5])
def test_the_nearest_are_taken(dims, wanted):
    x, y = points(1500, dims), points(40, dims, seed=1)
    r = 3 * RADII[dims]
    expected = reference(x, y, r, wanted=wanted)
    assert max(map(len, expected)) == min(wanted, max(map(len, reference(x, y, r))))
    assert lists_of(radius(x, y, r, max_num_neighbors=wanted), 40) == expected
    found = graph(x, r, max_num_neighbors=wanted)
    assert lists_of(found, 1500)[:20] == reference(x, x[:20], r, wanted=wanted, without_self=True)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_of_equal_distances_the_lower_indices_are_taken(dtype):
    x = lattice(600, 3, dtype)
    for wanted in (1, 5, 30, 64):
        assert lists_of(graph(x, 2.0, max_num_neighbors=wanted), 600) == reference(
            x, x, 2.0, wanted=wanted, without_self=True
        )
    same = graph(torch.ones(1300, 2), 1.0, max_num_neighbors=7)
    assert lists_of(same, 1300) == [[i for i in range(9) if i != q][:7] for q in range(1300)]


def test_no_more_than_32_by_default():
    x = points(200, 2)
    assert int(torch.bincount(radius_graph(x, 10.0)[1]).max()) == 32
    assert int(torch.bincount(radius(x, x, 10.0)[0]).max()) == 32


def test_rows_of_very_many():
    x = points(70_000, 1)
    y = x[:30]
    found = radius(x, y, 0.05, max_num_neighbors=None)
    assert found.shape[1] > 30 * 300
    assert lists_of(found, 30) == balls_of_tree(x, y, 0.05)
    everything = graph(points(900, 2), 100.0)
    assert lists_of(everything, 900)[17] == [i for i in range(900) if i != 17]


SIZES = ([5, 0, 3, 70, 1, 0, 200, 2], [2, 3, 0, 40, 1, 0, 90, 7])


@pytest.mark.parametrize('wanted', [None, 4])
def test_clouds_with_gaps(wanted):
    batch_x, batch_y = (torch.arange(8).repeat_interleave(torch.tensor(sizes)) for sizes in SIZES)
    x, y = points(len(batch_x), 3), points(len(batch_y), 3, seed=1)
    expected = reference(x, y, 0.8, batch_x, batch_y, wanted)
    assert lists_of(radius(x, y, 0.8, batch_x, batch_y, wanted), len(y)) == expected
    spread_x, spread_y = 1000 * batch_x + 17, 1000 * batch_y + 17
    assert lists_of(radius(x, y, 0.8, spread_x, spread_y, wanted), len(y)) == expected
    for loop in (False, True):
        found = graph(x, 0.8, batch=batch_x, loop=loop, max_num_neighbors=wanted)
        assert lists_of(found, len(x)) == reference(x, x, 0.8, batch_x, batch_x, wanted, without_self=not loop)


@pytest.mark.parametrize('rows', [(0, 0), (0, 4), (4, 0)])
def test_nothing(rows):
    x, y = torch.randn(rows[0], 3), torch.randn(rows[1], 3)
    for batches in ((None, None), tuple(torch.zeros(n, dtype=torch.int64) for n in rows)):
        found = radius(x, y, 3.0, *batches)
        assert (found.shape, found.dtype) == ((2, 0), torch.int64)
    assert radius_graph(x[:0], 3.0).shape == (2, 0)
    assert radius_graph(x[:0], 3.0, batch_size=0).shape == (2, 0)


def test_no_dimensions():
    x = torch.empty(5, 0)
    assert lists_of(radius(x, x[:2], 0.0), 2) == [[0, 1, 2, 3, 4]] * 2


def test_one_batch_stands_for_the_first_cloud():
    x, y = points(6, 2), points(4, 2, seed=1)
    batch = torch.tensor([0, 0, 1, 1])
    assert lists_of(radius(x, y, 2.0, None, batch), 4) == [*reference(x, y[:2], 2.0), [], []]


def test_batch_size_adds_empty_clouds():
    x, batch = points(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])
    torch.testing.assert_close(radius(x, x, 2.0, batch, batch, batch_size=4), radius(x, x, 2.0, batch, batch))


def test_the_search_by_torch_is_the_same(monkeypatch):
    monkeypatch.setattr(sys.modules['pygfuse.ops.points.radius'], '_TORCH_CHUNK', 64)  # the function hides the module
    batch = torch.arange(4).repeat_interleave(torch.tensor([5, 0, 150, 1]))
    ptr = torch.tensor([0, 5, 5, 155, 156])
    for x, r in ((points(156, 3), 1.0), (lattice(156, 2), 1.0)):
        for without_self in (False, True):
            for wanted in (None, 3, 20):
                found = within_by_torch(Within(x, x, ptr, ptr, r, wanted, without_self, True))
                assert lists_of(found, 156) == reference(x, x, r, batch, batch, wanted, without_self)
                reverse = within_by_torch(Within(x, x, ptr, ptr, r, wanted, without_self, False))
                assert torch.equal(reverse, found.flip(0))


def test_other_layouts_and_types():
    x = points(50, 6)
    expected = radius(x, x, 2.0)
    torch.testing.assert_close(radius(x.t().contiguous().t(), x, 2.0), expected)
    torch.testing.assert_close(radius(torch.cat([x, x], dim=1)[:, :6], x, 2.0), expected)
    assert lists_of(radius(x[:, 0], x[:, 0], 0.5), 50) == reference(x[:, :1], x[:, :1], 0.5, wanted=32)
    for dtype in (torch.half, torch.bfloat16):
        rounded = x.to(dtype)
        assert lists_of(radius(rounded, rounded, 2.0), 50) == reference(
            rounded.float(), rounded.float(), 2.0, wanted=32
        )
    for dtype in (torch.int64, torch.int32, torch.uint8):
        whole = lattice(50, 2, dtype)
        assert lists_of(radius(whole, whole, 1), 50) == reference(whole, whole, 1, wanted=32)
    batch = torch.zeros(50, dtype=torch.int32)
    torch.testing.assert_close(radius(x, x, 2.0, batch, batch), expected)
    torch.testing.assert_close(radius(x, x, np.float64(2.0)), expected)


def test_flows():
    x = points(40, 3)
    forth, back = radius_graph(x, 1.0), radius_graph(x, 1.0, flow='target_to_source')
    torch.testing.assert_close(forth, back.flip(0))
    assert bool((forth[1].diff() >= 0).all())
    assert not bool((forth[0] == forth[1]).any())
    with_loops = radius_graph(x, 1.0, loop=True)
    assert with_loops[0][with_loops[0] == with_loops[1]].tolist() == list(range(40))


def test_layers_take_the_edges_as_they_come():
    edge_index = radius_graph(points(60, 3), 1.0)
    assert Graph.of(edge_index, num_sources=60, num_targets=60).csr.edge_id is None


@pytest.mark.parametrize('r', [1e-9, 1e-3])
def test_memory_grows_with_the_points_alone(r):
    def peak(count: int) -> int:
        x = points(count, 3)
        return peak_bytes(lambda: radius_graph(x, r), warmup=1)

    small, large = peak(4000), peak(16000)
    assert large < 4.3 * small
    assert large < 16000 * 300


BATCH = torch.tensor([0, 0, 1, 1])
NAN = torch.tensor([[0.0, 1.0, 2.0], [0.0, float('nan'), 0.0], [0.0] * 3, [0.0] * 3])
WRONG = {
    'r negative': (lambda x: radius(x, x, -1.0), "Expected 'r' to be a number of at least 0 (got -1.0)"),
    'r no number': (lambda x: radius_graph(x, float('nan')), "Expected 'r' to be a number of at least 0 (got nan)"),
    'r of another type': (lambda x: radius_graph(x, '1'), "Expected 'r' to be a number of at least 0 (got '1')"),
    'max_num_neighbors': (
        lambda x: radius(x, x, 1.0, max_num_neighbors=0),
        "Expected 'max_num_neighbors' to be None or a positive integer (got 0)",
    ),
    'max_num_neighbors of another type': (
        lambda x: radius_graph(x, 1.0, max_num_neighbors=2.0),
        "Expected 'max_num_neighbors' to be None or a positive integer (got 2.0)",
    ),
    'x is no number': (
        lambda x: radius(NAN, x, 1.0),
        "Expected 'x' to be finite (got nan at point 1, dimension 1)",
    ),
    'y infinite': (lambda x: radius(x, x / 0, 1.0), "Expected 'y' to be finite (got"),
    'x of three dimensions': (lambda x: radius(x.view(4, 3, 1), x, 1.0), "Expected 'x' to be two-dimensional"),
    'y of another width': (lambda x: radius(x, x[:, :2], 1.0), "Expected 'y' to have as many features as 'x', 3 (got"),
    'y of another type': (lambda x: radius(x, x.double(), 1.0), "Expected 'y' to be of the type of 'x', torch.float32"),
    'x complex': (
        lambda x: radius_graph(x.to(torch.complex64), 1.0),
        "Expected 'x' to be real (got torch.complex64)",
    ),
    'short batch': (
        lambda x: radius_graph(x, 1.0, BATCH[:3]),
        "Expected 'batch' to hold one number for each of 4 points",
    ),
    'unsorted batch': (lambda x: radius_graph(x, 1.0, BATCH.flip(0)), "Expected 'batch' to ascend from 0"),
    'batch_x': (lambda x: radius(x, x, 1.0, BATCH.flip(0), BATCH), "Expected 'batch_x' to ascend from 0"),
    'large batch': (
        lambda x: radius_graph(x, 1.0, BATCH, batch_size=1),
        "Expected 'batch' to hold numbers below batch_size",
    ),
    'batch_size': (
        lambda x: radius(x, x, 1.0, batch_size=-1),
        "Expected 'batch_size' to be None or a positive integer (got -1)",
    ),
    'flow': (lambda x: radius_graph(x, 1.0, flow='up'), "Expected 'flow' to be one of"),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_are_named(name):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call(points(4, 3))


def test_public_names():
    assert pygfuse.radius is radius
    assert pygfuse.radius_graph is radius_graph
