from __future__ import annotations

import pytest
import torch

from pygfuse.memory import peak_bytes
from pygfuse.ops import large_results
from pygfuse.ops.large_results import added, product

ROWS, CHANNELS = 2**14, 64  # 4 MB of float32


@pytest.fixture
def advised(monkeypatch):
    """What was asked for on huge pages."""
    found = []

    def on_huge_pages(tensor):
        found.append(tensor.data_ptr())
        return tensor

    monkeypatch.setattr(large_results, 'on_huge_pages', on_huge_pages)
    return found


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('rows', [3, ROWS])
def test_product_is_that_of_torch(advised, rows, with_bias):
    x, weight, bias = torch.randn(rows, 8), torch.randn(CHANNELS, 8), torch.randn(CHANNELS) if with_bias else None
    with torch.no_grad():
        found = product(x, weight.t(), bias)
    assert torch.equal(found, torch.nn.functional.linear(x, weight, bias))
    assert advised == ([found.data_ptr()] if rows == ROWS else [])


def test_a_product_that_is_recorded_is_differentiated(advised):
    x, weight = torch.randn(ROWS, 8), torch.randn(8, CHANNELS, requires_grad=True)
    product(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).unsqueeze(1).expand(8, CHANNELS), rtol=1e-3, atol=1e-2)
    assert advised == []


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


class Own(torch.Tensor):
    """A class of tensors that sees every call."""


@pytest.mark.parametrize('others', OTHERS)
def test_other_sums_are_left_to_torch(advised, others):
    first, second = OTHERS[others](torch.randn(ROWS, CHANNELS))
    found = added(first, second)
    assert torch.equal(found, first + second)
    assert type(found) is type(first + second)
    assert advised == []


def test_peaks_are_counted():
    first, second = torch.randn(ROWS, CHANNELS), torch.randn(CHANNELS)
    assert peak_bytes(lambda: added(first, second)) == first.nbytes
    with torch.no_grad():
        assert peak_bytes(lambda: product(first, torch.eye(CHANNELS))) == first.nbytes + CHANNELS * CHANNELS * 4
