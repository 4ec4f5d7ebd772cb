from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import pygfuse
import pygfuse.cpu.points.knn
from pygfuse import knn_graph
from pygfuse.graph.graph import Graph
from pygfuse.memory import peak_bytes
from pygfuse.ops.points.knn import knn, nearest_by_torch


def reference(
    x: Tensor, y: Tensor, k: int, clouds_x=None, clouds_y=None, without_self: bool = False
) -> list[list[int]]:
    """The neighbours of each query by the definition: one distance after the other, sorted with their indices."""
    xs, ys = x.numpy(), y.numpy()
    clouds_x = np.zeros(len(xs), int) if clouds_x is None else clouds_x.numpy()
    clouds_y = np.zeros(len(ys), int) if clouds_y is None else clouds_y.numpy()
    lists = []
    for q, query in enumerate(ys):
        total = np.zeros(len(xs), xs.dtype)
        with np.errstate(invalid='ignore', over='ignore'):
            for d in range(xs.shape[1]):
                difference = xs[:, d] - query[d]
                total = total + difference * difference
        total[np.isnan(total)] = np.inf
        others = [i for i in range(len(xs)) if clouds_x[i] == clouds_y[q] and not (without_self and i == q)]
        lists.append(sorted(others, key=lambda i: (total[i], i))[:k])
    return lists


def lists_of(pair: Tensor, queries: int) -> list[list[int]]:
    """Queries and neighbours as lists; the queries must ascend."""
    assert bool((pair[0].diff() >= 0).all())
    return [pair[1][pair[0] == q].tolist() for q in range(queries)]


def points(count: int, dims: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(count, dims, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def grid(count: int, dims: int, dtype: torch.dtype = torch.float32, seed: int = 0, side: int = 3) -> Tensor:
    return torch.randint(side, (count, dims), generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dims', [1, 2, 3, 5, 16, 64, 100, 256])
def test_dimensions(dims, dtype):
    x, y = points(150, dims, dtype), points(71, dims, dtype, seed=1)
    assert lists_of(knn(x, y, 20), 71) == reference(x, y, 20)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('k', [1, 2, 16, 20, 40, 63, 64, 65, 200])
def test_numbers_of_neighbours(k, dtype):
    x, y = points(300, 3, dtype), points(37, 3, dtype, seed=1)
    assert lists_of(knn(x, y, k), 37) == reference(x, y, k)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('count', [1500, 2100])
def test_clouds_of_several_chunks(count, dtype):
    x, y = points(count, 3, dtype), points(9, 3, dtype, seed=1)
    for k in (5, 40):
        assert lists_of(knn(x, y, k), 9) == reference(x, y, k)
    x = x[x[:, 0].argsort(descending=True)]  # ever nearer
    y = x[-5:].clone()
    assert lists_of(knn(x, y, 40), 5) == reference(x, y, 40)


def test_lists_longer_than_a_chunk():
    x, y = points(3000, 2), points(3, 2, seed=1)
    assert lists_of(knn(x, y, 2500), 3) == reference(x, y, 2500)
    x = points(1100, 1)
    pair = knn_graph(x, 1060, flow='target_to_source')
    assert pair[1].view(1100, 1060)[:9].tolist() == reference(x, x[:9], 1060, without_self=True)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dims', [1, 3, 8])
def test_ties_by_index(dims, dtype):
    x = grid(400, dims, dtype)
    assert lists_of(knn(x, x[:60], 30), 60) == reference(x, x[:60], 30)
    pair = knn_graph(x, 30, flow='target_to_source')
    assert lists_of(pair, 400) == reference(x, x, 30, without_self=True)


def test_points_at_one_place():
    x = torch.ones(1300, 4)
    pair = knn_graph(x, 7, flow='target_to_source')
    expected = [[i for i in range(9) if i != q][:7] for q in range(1300)]
    assert lists_of(pair, 1300) == expected


def test_no_operation_is_fused_with_another():
    # such pairs of distances are equal, or one is the greater, as the squares are rounded or not
    generator = np.random.default_rng(0)
    base = generator.random((4000, 2)).astype(np.float32)
    x = torch.from_numpy(np.concatenate([base, base[:, ::-1]]))
    y = torch.zeros(1, 2)
    assert lists_of(knn(x, y, 8000), 1) == reference(x, y, 8000)


def test_distances_that_are_no_numbers_come_last():
    x = points(90, 3)
    x[4, 1], x[50, 0], x[7] = float('nan'), float('inf'), -float('inf')
    for k in (20, 90):
        assert lists_of(knn(x, x, k), 90) == reference(x, x, k)
        graph = knn_graph(x, k, flow='target_to_source')
        assert lists_of(graph, 90) == reference(x, x, k, without_self=True)
    huge = torch.tensor([[3e30], [2e30], [0.0]])
    assert lists_of(knn(huge, torch.zeros(1, 1), 3), 1) == [[2, 0, 1]]  # two squares are infinite


@pytest.fixture
def in_boxes(monkeypatch):
    """Boxes for clouds of any size, and the numbers of points of those that were searched so."""
    searched = []
    search = pygfuse.cpu.points.knn.nearest_in_boxes

    def noted(x, *arguments):
        searched.append(len(x))
        search(x, *arguments)

    monkeypatch.setattr(pygfuse.cpu.points.knn, 'LEAST_POINTS', {8: 1})
    monkeypatch.setattr(pygfuse.cpu.points.knn, 'LEAST_QUERIES', 1)
    monkeypatch.setattr(pygfuse.cpu.points.knn, 'LEAST_SHARE', 1)
    monkeypatch.setattr(pygfuse.cpu.points.knn, 'nearest_in_boxes', noted)
    return searched


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('dims', [1, 2, 3, 5, 8])
def test_boxes_give_the_same(dims, dtype, in_boxes):
    for x, y in ((points(900, dims, dtype), points(300, dims, dtype, seed=1)), (grid(900, dims, dtype),) * 2):
        expected = reference(x, y[:100], 150)
        for k in (1, 20, 150):
            assert lists_of(knn(x, y, k), len(y))[:100] == [found[:k] for found in expected]
        pair = knn_graph(x, 20, flow='target_to_source')
        assert lists_of(pair, 900)[:100] == reference(x, x[:100], 20, without_self=True)
    assert set(in_boxes) == {900}


def test_boxes_of_clouds_that_are_hard_to_cut(in_boxes):
    far = torch.cat([points(700, 3), 1e6 * points(20, 3, seed=1), torch.zeros(300, 3)])
    line = torch.cat([torch.zeros(700, 2), points(700, 1)], dim=1)
    tiny = 1e-25 * points(400, 3)  # squares are denormal or 0
    for x in (far, line, tiny, torch.ones(500, 2)):
        pair = knn_graph(x, 9, flow='target_to_source')
        assert lists_of(pair, len(x)) == reference(x, x, 9, without_self=True)
    assert in_boxes == [1020, 700, 400, 500]


def test_boxes_are_for_large_clouds_of_few_dimensions(in_boxes):
    sizes = torch.tensor([500, 3, 0, 700])
    batch = torch.arange(4).repeat_interleave(sizes)
    x, y = points(1203, 3), points(1203, 3, seed=1)
    pygfuse.cpu.points.knn.LEAST_POINTS[8] = 400
    assert lists_of(knn(x, y, 7, batch, batch), 1203) == reference(x, y, 7, batch, batch)
    assert in_boxes == [500, 700]
    pair = knn_graph(x, 7, batch)
    assert lists_of(pair.flip(0), 1203) == reference(x, x, 7, batch, batch, without_self=True)
    assert in_boxes == [500, 700] * 2
    x[0, 0] = float('nan')  # comes last in its cloud
    assert lists_of(knn(x, y, 7, batch, batch), 1203) == reference(x, y, 7, batch, batch)
    assert in_boxes == [500, 700] * 2 + [700]
    knn(points(600, 9), points(600, 9), 7)
    assert in_boxes == [500, 700] * 2 + [700]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_boxes_of_any_cloud(in_boxes, data):
    count, dims = data.draw(st.integers(1, 700)), data.draw(st.integers(1, 4))
    k, seed = data.draw(st.integers(1, 80)), data.draw(st.integers(0, 99))
    dtype, side = data.draw(st.sampled_from([torch.float32, torch.float64])), data.draw(st.sampled_from([2, 9, 10**6]))
    x, y = grid(count, dims, dtype, seed, side), grid(count // 3 + 1, dims, dtype, seed + 1, side)
    assert lists_of(knn(x, y, k), len(y)) == reference(x, y, k)
    pair = knn_graph(x, k, flow='target_to_source')
    assert lists_of(pair, count) == reference(x, x, k, without_self=True)


SIZES = ([5, 0, 3, 70, 1, 0, 200, 2], [2, 3, 0, 40, 1, 0, 90, 7])


@pytest.mark.parametrize('k', [1, 4, 100])
def test_clouds_empty_and_of_fewer_points(k):
    batch_x, batch_y = (torch.arange(8).repeat_interleave(torch.tensor(sizes)) for sizes in SIZES)
    x, y = points(len(batch_x), 3), points(len(batch_y), 3, seed=1)
    pair = knn(x, y, k, batch_x, batch_y)
    assert lists_of(pair, len(y)) == reference(x, y, k, batch_x, batch_y)
    assert pair.shape[1] == sum(queries * min(k, size) for size, queries in zip(*SIZES, strict=True))
    for loop in (False, True):
        pair = knn_graph(x, k, batch_x, loop=loop, flow='target_to_source')
        assert lists_of(pair, len(x)) == reference(x, x, k, batch_x, batch_x, without_self=not loop)


@pytest.mark.parametrize('rows', [(0, 0), (0, 4), (4, 0)])
def test_nothing(rows):
    x, y = torch.randn(rows[0], 3), torch.randn(rows[1], 3)
    for batches in ((None, None), tuple(torch.zeros(n, dtype=torch.int64) for n in rows)):
        pair = knn(x, y, 3, *batches)
        assert pair.shape == (2, 0)
        assert pair.dtype == torch.int64
    assert knn_graph(x, 3).shape == (2, 0 if rows[0] < 2 else rows[0] * 3)


def test_no_dimensions():
    x = torch.empty(5, 0)
    assert lists_of(knn(x, x[:2], 3), 2) == [[0, 1, 2]] * 2


def test_one_batch_stands_for_the_first_cloud():
    x, y = points(6, 2), points(4, 2, seed=1)
    batch = torch.tensor([0, 0, 1, 1])
    assert lists_of(knn(x, y, 2, None, batch), 4)[2:] == [[], []]
    assert lists_of(knn(x, y, 2, None, batch), 4)[:2] == reference(x, y[:2], 2)


def test_batch_size_adds_empty_clouds():
    x = points(6, 2)
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    torch.testing.assert_close(knn(x, x, 2, batch, batch, batch_size=4), knn(x, x, 2, batch, batch))


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_batch(data):
    sizes = data.draw(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), min_size=1, max_size=5))
    dims, k = data.draw(st.sampled_from([1, 2, 3, 7])), data.draw(st.integers(1, 50))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    seed, side = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([2, 5, 10**6]))
    counts = torch.tensor(sizes)
    batch_x, batch_y = (torch.arange(len(sizes)).repeat_interleave(column) for column in counts.t())
    x, y = grid(len(batch_x), dims, dtype, seed, side), grid(len(batch_y), dims, dtype, seed + 1, side)
    pair = knn(x, y, k, batch_x, batch_y)
    assert lists_of(pair, len(y)) == reference(x, y, k, batch_x, batch_y)
    pair = knn_graph(x, k, batch_x, flow='target_to_source')
    assert lists_of(pair, len(x)) == reference(x, x, k, batch_x, batch_x, without_self=True)


def test_the_search_by_torch_is_the_same(monkeypatch):
    monkeypatch.setattr(sys.modules['pygfuse.ops.points.knn'], '_TORCH_CHUNK', 64)  # the function hides the module
    batch = torch.arange(4).repeat_interleave(torch.tensor([5, 0, 150, 1]))
    for x in (points(156, 3), grid(156, 2)):
        ptr = torch.tensor([0, 5, 5, 155, 156])
        for without_self in (False, True):
            lengths = (ptr.diff() - int(without_self)).clamp(min=0, max=20)
            found = nearest_by_torch(x, x, ptr, ptr, lengths, without_self, True)
            assert lists_of(found, 156) == reference(x, x, 20, batch, batch, without_self)


def test_other_layouts_and_types():
    x = points(50, 6)
    expected = knn(x, x, 5)
    torch.testing.assert_close(knn(x.t().contiguous().t(), x, 5), expected)
    torch.testing.assert_close(knn(torch.cat([x, x], dim=1)[:, :6], x, 5), expected)
    assert lists_of(knn(x[:, 0], x[:, 0], 5), 50) == reference(x[:, :1], x[:, :1], 5)
    half = x.half()
    assert lists_of(knn(half, half, 5), 50) == reference(half.float(), half.float(), 5)
    whole = grid(50, 2).long()
    assert lists_of(knn(whole, whole, 5), 50) == reference(whole.double(), whole.double(), 5)
    batch = torch.zeros(50, dtype=torch.int32)
    torch.testing.assert_close(knn(x, x, 5, batch, batch), expected)


def test_directions():
    x, y = points(80, 4), points(30, 4, seed=1)
    got = knn(x, y, 80, cosine=True)[1].view(30, 80)
    similarity = torch.nn.functional.cosine_similarity(y.unsqueeze(1).double(), x.double(), dim=-1)
    assert bool((similarity.gather(1, got).diff(dim=1) < 1e-6).all())
    torch.testing.assert_close(knn(x * 4, y / 8, 9, cosine=True), knn(x, y, 9, cosine=True))


def test_flows():
    x = points(40, 3)
    forth, back = knn_graph(x, 4), knn_graph(x, 4, flow='target_to_source')
    torch.testing.assert_close(forth, back.flip(0))
    assert forth[1].tolist() == [i for i in range(40) for _ in range(4)]
    assert not bool((forth[0] == forth[1]).any())
    assert knn_graph(x, 4, loop=True)[0].view(40, 4)[:, 0].tolist() == list(range(40))


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_the_graph_is_known_without_a_look_at_the_edges(flow, monkeypatch):
    x = points(60, 3)
    batch = torch.arange(3).repeat_interleave(torch.tensor([6, 47, 7]))
    edge_index = knn_graph(x, 5, batch, flow=flow)
    expected = Graph.of(edge_index.clone(), num_sources=60, num_targets=60, flow=flow)
    monkeypatch.setattr('pygfuse.cpu.edges.sort.sort_by_target', None)
    graph = Graph.of(edge_index, num_sources=60, num_targets=60, flow=flow)
    monkeypatch.undo()
    for name in ('indptr', 'index'):
        torch.testing.assert_close(getattr(graph.csr, name), getattr(expected.csr, name))
        torch.testing.assert_close(getattr(graph.csc, name), getattr(expected.csc, name))
    torch.testing.assert_close(graph.coo(), edge_index)


@pytest.mark.parametrize('without_self', [False, True])
def test_memory_grows_with_the_points_alone(without_self):
    def peak(count: int) -> int:
        x = points(count, 16)
        return peak_bytes(lambda: knn_graph(x, 20, loop=not without_self), warmup=1)

    small, large = peak(2000), peak(8000)
    assert large < 4.2 * small
    assert large < 8000 * 8000  # less than a byte for each pair


BATCH = torch.tensor([0, 0, 1, 1])
WRONG = {
    'k': (lambda x: knn(x, x, 0), "Expected 'k' to be a positive integer (got 0)"),
    'k of another type': (lambda x: knn_graph(x, 2.0), "Expected 'k' to be a positive integer (got 2.0)"),
    'x of three dimensions': (lambda x: knn(x.view(4, 3, 1), x, 2), "Expected 'x' to be two-dimensional"),
    'y of three dimensions': (lambda x: knn(x, x.view(4, 3, 1), 2), "Expected 'y' to be two-dimensional"),
    'y of another width': (lambda x: knn(x, x[:, :2], 2), "Expected 'y' to have as many features as 'x', 3 (got"),
    'y of another type': (lambda x: knn(x, x.double(), 2), "Expected 'y' to be of the type of 'x', torch.float32"),
    'x complex': (lambda x: knn_graph(x.to(torch.complex64), 2), "Expected 'x' to be real (got torch.complex64)"),
    'short batch': (lambda x: knn_graph(x, 2, BATCH[:3]), "Expected 'batch' to hold one number for each of 4 points"),
    'batch of two dimensions': (lambda x: knn_graph(x, 2, BATCH.view(4, 1)), "Expected 'batch' to hold one number"),
    'unsorted batch': (lambda x: knn_graph(x, 2, BATCH.flip(0)), "Expected 'batch' to ascend from 0"),
    'negative batch': (lambda x: knn_graph(x, 2, BATCH - 1), "Expected 'batch' to ascend from 0"),
    'batch of floats': (lambda x: knn_graph(x, 2, BATCH.float()), "Expected 'batch' to be of an integer type (got"),
    'large batch': (
        lambda x: knn_graph(x, 2, BATCH, batch_size=1),
        "Expected 'batch' to hold numbers below batch_size",
    ),
    'negative batch_size': (
        lambda x: knn_graph(x, 2, batch_size=-1),
        "Expected 'batch_size' to be None or a positive integer (got -1)",
    ),
    'batch_size of another type': (lambda x: knn(x, x, 2, batch_size=1.0), "Expected 'batch_size' to be None or a"),
    'batch_size of no clouds': (
        lambda x: knn_graph(x, 2, batch_size=0),
        "Expected 'batch_size' to be positive where there are points (got 0)",
    ),
    'batch_size of no clouds with queries': (
        lambda x: knn(x[:0], x, 2, batch_size=0),
        "Expected 'batch_size' to be positive where there are points (got 0)",
    ),
    'batch_x': (lambda x: knn(x, x, 2, BATCH.flip(0), BATCH), "Expected 'batch_x' to ascend from 0"),
    'batch_y': (lambda x: knn(x, x, 2, BATCH, BATCH[:2]), "Expected 'batch_y' to hold one number for each of 4 points"),
    'flow': (lambda x: knn_graph(x, 2, flow='up'), "Expected 'flow' to be one of"),
}


def test_no_clouds_have_no_points():
    assert knn_graph(points(0, 3), 2, batch_size=0).shape == (2, 0)


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_are_named(name):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call(points(4, 3))


def test_public_names():
    assert pygfuse.knn is knn
    assert pygfuse.knn_graph is knn_graph


def test_within_transforms_of_torch_func():
    positions = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def energy(positions: Tensor) -> Tensor:
        first, second = knn_graph(positions, 4)
        return (positions[first] - positions[second]).square().sum(1).sqrt().sum()

    leaf = positions.clone().requires_grad_()
    (expected,) = torch.autograd.grad(energy(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(energy)(positions), expected)
    torch.testing.assert_close(torch.func.jacrev(energy)(positions), expected)
