from __future__ import annotations

import pytest
import torch

from pygfuse.memory import peak_bytes
from pygfuse.ops.nodes import large_sums
from pygfuse.ops.nodes.large_sums import added, added_to, difference, mean_of_heads, sum_of_heads
from pygfuse.ops.nodes.linear import apply_weight
from tests.support.pages import Own, watched

ROWS, CHANNELS = 2**14, 64  # 4 MB of float32


@pytest.fixture
def advised(monkeypatch):
    """What was asked for on huge pages."""
    return watched(monkeypatch, large_sums)


@pytest.mark.parametrize('kind', ['matrix', 'row'])
@pytest.mark.parametrize('rows', [3, ROWS])
def test_sum_is_that_of_torch(advised, rows, kind):
    first = torch.randn(rows, CHANNELS, requires_grad=True)
    second = torch.randn((rows, CHANNELS) if kind == 'matrix' else CHANNELS, requires_grad=True)
    grad, sums = torch.randn(rows, CHANNELS), []
    for sum_of in (added, torch.add):
        out = sum_of(first, second)
        sums.append((out, *torch.autograd.grad(out, (first, second), grad)))
    assert all(map(torch.equal, *sums))
    assert advised == ([sums[0][0].data_ptr()] if rows == ROWS else [])


def test_sum_twice_differentiated():
    first = torch.randn(ROWS, CHANNELS, requires_grad=True)
    second = torch.randn(CHANNELS, requires_grad=True)
    (of_second,) = torch.autograd.grad(added(first, second).square().sum(), second, create_graph=True)
    of_first, again = torch.autograd.grad(of_second.sum(), (first, second))
    torch.testing.assert_close(of_first, torch.full_like(first, 2.0))
    torch.testing.assert_close(again, torch.full_like(second, 2.0 * ROWS))


OTHERS = {
    'of other types': lambda first: (first, torch.randn(CHANNELS, dtype=torch.float64)),
    'a number for all': lambda first: (first, torch.randn(1)),
    'of three dimensions': lambda first: (first.view(ROWS // 2, 2, CHANNELS), torch.randn(CHANNELS)),
    'of a class of its own': lambda first: (torch.nn.Parameter(first).as_subclass(Own), torch.randn(CHANNELS)),
}


@pytest.mark.parametrize('others', OTHERS)
def test_other_sums_are_left_to_torch(advised, others):
    first, second = OTHERS[others](torch.randn(ROWS, CHANNELS))
    found = added(first, second)
    assert torch.equal(found, first + second)
    assert type(found) is type(first + second)
    assert advised == []


RESULTS = {
    'a map': (lambda x: apply_weight(x, torch.eye(CHANNELS)), True),
    'a sum': (lambda x: added(x, torch.ones(CHANNELS)), True),
    'what was written over': (lambda x: added_to(added(x, torch.ones(CHANNELS)), torch.ones(CHANNELS)), True),
    'what backward reads': (lambda x: x.exp(), False),
    'a sum with what backward reads': (lambda x: x.exp() + 1.0, False),
}


@pytest.mark.parametrize('result', RESULTS)
def test_sums_are_written_over_results_that_nobody_reads(result):
    make, is_unread = RESULTS[result]
    x, second = torch.randn(ROWS, CHANNELS, requires_grad=True), torch.randn(CHANNELS, requires_grad=True)
    first = make(x)
    out = added_to(first, second)
    assert (out.data_ptr() == first.data_ptr()) == is_unread
    expected = make(x) + second
    torch.testing.assert_close(out, expected)
    grad = torch.randn(ROWS, CHANNELS)
    for one, other in zip(*(torch.autograd.grad(each, (x, second), grad) for each in (out, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_leaf_is_not_written_to():
    x = torch.zeros(ROWS, CHANNELS, requires_grad=True)
    assert float(added_to(x, torch.ones(CHANNELS))[0, 0]) == 1.0
    assert float(x[0, 0]) == 0.0


def test_several_times_a_sum():
    x, second = (torch.randn(ROWS, CHANNELS, requires_grad=True) for _ in range(2))
    for first in (added(x, torch.ones(CHANNELS)), x.exp()):
        expected = first.detach() + 0.3 * second
        out = added_to(first, second, times=0.3)
        torch.testing.assert_close(out, expected)
        (of_second,) = torch.autograd.grad(out.sum(), second)
        torch.testing.assert_close(of_second, torch.full_like(second, 0.3))


@pytest.mark.parametrize('read', ['both', 'the difference', 'the second'])
@pytest.mark.parametrize('rows', [3, ROWS])
def test_difference_is_that_of_torch(advised, rows, read):
    first, second = (torch.randn(rows, CHANNELS, requires_grad=True) for _ in range(2))
    grads, found = (torch.randn(rows, CHANNELS), torch.randn(rows, CHANNELS)), []
    for function in (difference, lambda one, other: (one - other, other)):
        out = function(first, second)
        taken = slice(None) if read == 'both' else slice(0, 1) if read == 'the difference' else slice(1, 2)
        given = torch.autograd.grad(out[taken], (first, second), grads[taken], allow_unused=True)
        found.append([*out, *(torch.zeros_like(first) if one is None else one for one in given)])
    assert all(map(torch.equal, *found))
    assert len(advised) == (0 if rows == 3 else 2 if read == 'both' else 1)


def test_difference_twice_differentiated():
    first, second = (torch.randn(ROWS, CHANNELS, requires_grad=True) for _ in range(2))
    less, again = difference(first, second)
    found = torch.autograd.grad((less.square() + again.square()).sum(), (first, second), create_graph=True)
    of_first, of_second = torch.autograd.grad((found[0] + found[1]).sum(), (first, second))
    torch.testing.assert_close(of_first, torch.zeros_like(first))
    torch.testing.assert_close(of_second, torch.full_like(second, 2.0))


OF_HEADS = {'sum': (sum_of_heads, torch.Tensor.sum), 'mean': (mean_of_heads, torch.Tensor.mean)}


@pytest.mark.parametrize('reduce', OF_HEADS)
@pytest.mark.parametrize('rows', [3, ROWS])
def test_heads_are_reduced_as_by_torch(advised, rows, reduce):
    ours, theirs = OF_HEADS[reduce]
    x, grad = torch.randn(rows, 3, CHANNELS, requires_grad=True), torch.randn(rows, CHANNELS)
    found, expected = ours(x), theirs(x, dim=1)
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(out, x, grad)[0] for out in (found, expected)))
    assert len(advised) == (0 if rows == 3 else 2)
    (of_x,) = torch.autograd.grad(ours(x).square().sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(of_x.sum(), x)
    torch.testing.assert_close(again, torch.full_like(x, 2.0 * 3 if reduce == 'sum' else 2.0 / 3))


def test_peaks_are_counted():
    first, second = torch.randn(ROWS, CHANNELS), torch.randn(CHANNELS)
    assert peak_bytes(lambda: added(first, second)) == first.nbytes
    assert peak_bytes(lambda: sum_of_heads(first.view(-1, 2, CHANNELS))) == first.nbytes // 2
