"""Searches for neighbours as a GPU runs them give what a CPU's kernels give, to the last index."""

import itertools

import pytest
import torch

from pygfuse.ops.points.knn import knn, knn_graph
from pygfuse.ops.points.radius import radius, radius_graph
from tests.ops.points import test_knn, test_radius
from tests.support.in_place import in_place_of

TYPES = torch.float32, torch.float64
# of a lane's panel, clouds begin and end anywhere; one has no points, one no queries
SIZES = (13, 0, 26, 1, 5), (4, 3, 4, 0, 2)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Has searches among points of the CPU done by the CUDA backend."""
    in_place_of('points.knn', monkeypatch)
    in_place_of('points.radius', monkeypatch)


def clouds(dims, dtype):
    """Points and queries, on a grid so that distances are equal, and their clouds."""
    batches = [torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) for sizes in SIZES]
    x, y = (test_knn.grid(len(batch), dims, dtype, seed, side=4) for seed, batch in enumerate(batches))
    return x, y, *batches


def nearest(dims, dtype):
    x, y, batch_x, batch_y = clouds(dims, dtype)
    if dims:
        x[3, 0], x[20, 0] = float('nan'), float('inf')
    return [
        *(knn(x, y, k, batch_x, batch_y) for k in (1, 5, 30)),
        *(knn_graph(x, k, batch_x, loop=loop) for k, loop in ((3, True), (30, False))),
    ]


def within(dims, dtype):
    x, y, batch_x, batch_y = clouds(dims, dtype)
    return [
        *(radius(x, y, 1.5, batch_x, batch_y, wanted) for wanted in (None, 1, 4)),
        *(radius_graph(x, 2.0, batch_x, loop, wanted) for wanted, loop in ((None, True), (5, False))),
    ]


CASES = [(nearest, 2, torch.float32), (nearest, 3, torch.float64), (nearest, 0, torch.float32), (within, 3, TYPES[0])]


@pytest.mark.parametrize(
    ('search', 'dims', 'dtype'), [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])]
)
def test_searches_without_races(driver, monkeypatch, search, dims, dtype):
    expected = search(dims, dtype)
    in_place_of('points.knn', monkeypatch)
    in_place_of('points.radius', monkeypatch)
    found = search(dims, dtype)
    assert len(driver.launches) >= len(found)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def each(function, *choices):
    return [function(*chosen) for chosen in itertools.product(*choices)]


# tests of the CPU's kernels, by the definition
DEFINED = {
    'dimensions': lambda: each(test_knn.test_dimensions, (1, 3, 64), TYPES),
    'numbers of neighbours': lambda: each(test_knn.test_numbers_of_neighbours, (1, 2, 16, 65, 200), TYPES),
    'lists that are long': test_knn.test_lists_longer_than_a_chunk,
    'ties': lambda: each(test_knn.test_ties_by_index, (1, 3), TYPES),
    'points at one place': test_knn.test_points_at_one_place,
    'rounding': test_knn.test_no_operation_is_fused_with_another,
    'no numbers': test_knn.test_distances_that_are_no_numbers_come_last,
    'clouds': lambda: each(test_knn.test_clouds_empty_and_of_fewer_points, (1, 4, 100)),
    'nothing': lambda: each(test_knn.test_nothing, [(0, 0), (0, 4), (4, 0)]),
    'any batch': test_knn.test_any_batch,
    'layouts and types': test_knn.test_other_layouts_and_types,
    'directions': test_knn.test_directions,
    'flows': test_knn.test_flows,
    'pairs within a distance': lambda: each(test_radius.test_pairs_are_those_of_a_tree, (1, 3, 8), TYPES),
    'queries within a distance': lambda: each(test_radius.test_queries_of_their_own, (2,), TYPES),
    'degenerate clouds': lambda: each(test_radius.test_degenerate_clouds, test_radius.DEGENERATE),
    'beyond all numbers': test_radius.test_points_that_are_farther_apart_than_numbers_reach,
    'any clouds within a distance': test_radius.test_any_clouds,
    'the boundary': test_radius.test_the_boundary_belongs_to_it_in_float64,
    'rounding within a distance': test_radius.test_no_operation_is_fused_with_another,
    'the nearest within a distance': lambda: each(test_radius.test_the_nearest_are_taken, (1, 3), (1, 4, 40)),
    'ties within a distance': lambda: each(test_radius.test_of_equal_distances_the_lower_indices_are_taken, TYPES),
    'nothing within a distance': lambda: each(test_radius.test_nothing, [(0, 0), (0, 4), (4, 0)]),
    'flows within a distance': test_radius.test_flows,
}


@pytest.mark.slow
@pytest.mark.parametrize('name', DEFINED)
@pytest.mark.usefixtures('processor', 'on_a_gpu')
def test_searches_are_those_of_the_definition(name):
    DEFINED[name]()


@pytest.mark.slow
@pytest.mark.usefixtures('on_a_gpu')
def test_clouds_of_real_size(processor):
    x, batch = test_knn.points(4096, 16), torch.arange(4).repeat_interleave(1024)
    expected = test_knn.nearest_by_torch(
        x, x, *[torch.arange(0, 5120, 1024)] * 2, torch.full((4,), 20), without_self=True, queries_first=False
    )
    assert torch.equal(knn_graph(x, 20, batch), expected)
    (launch,) = processor.launches
    assert launch.grid == (32, 1)


def test_without_its_compiler_torch_searches(monkeypatch):
    from pygfuse._lib import backends

    monkeypatch.setattr(backends, '_has_numba_cuda', lambda: False)
    for asked in (backends.neighbour_search_of, backends.radius_search_of):
        assert asked(torch.device('cuda')) is None
        assert asked(torch.device('cpu')) is not None
    monkeypatch.setattr(backends, '_has_numba_cuda', lambda: True)
    assert backends.neighbour_search_of(torch.device('cuda')).__name__ == 'pygfuse.cuda.points.knn'
    assert backends.radius_search_of(torch.device('cuda')).__name__ == 'pygfuse.cuda.points.radius'


@pytest.mark.slow
@pytest.mark.usefixtures('driver', 'on_a_gpu')
def test_no_operation_is_fused_with_another():
    # such pairs of distances are equal, or one is the greater, as the squares are rounded or not
    half = torch.rand(150, 2, generator=torch.Generator().manual_seed(0))
    x, y = torch.cat([half, half.flip(1)]), torch.zeros(1, 2)
    assert test_knn.lists_of(knn(x, y, 300), 1) == test_knn.reference(x, y, 300)
