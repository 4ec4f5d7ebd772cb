from __future__ import annotations

import pytest
import torch

from pygfuse.cpu.products import product_list
from pygfuse.memory import peak_bytes
from pygfuse.ops.nodes import large_products
from pygfuse.ops.nodes.large_products import added_product, is_adjoint_listed, product
from tests.support.pages import Own, watched

ROWS, CHANNELS = 2**14, 64  # 4 MB of float32


@pytest.fixture
def advised(monkeypatch):
    """What was asked for on huge pages."""
    return watched(monkeypatch, large_products)


@pytest.fixture
def by_torch(monkeypatch):
    monkeypatch.setattr(product_list, 'is_faster', lambda *_: False)


@pytest.fixture
def listed(monkeypatch):
    """The sizes of lists that run, where torch's products are said to be slow."""
    found, run = [], product_list.multiply_listed
    monkeypatch.setattr(product_list, 'is_faster', lambda *_: True)
    monkeypatch.setattr(
        product_list, 'multiply_listed', lambda *arguments: found.append(arguments[1].count) or run(*arguments)
    )
    return found


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('rows', [3, ROWS])
def test_product_is_that_of_torch(advised, by_torch, rows, with_bias):
    x, weight, bias = torch.randn(rows, 8), torch.randn(CHANNELS, 8), torch.randn(CHANNELS) if with_bias else None
    with torch.no_grad():
        found = product(x, weight.t(), bias)
    assert torch.equal(found, torch.nn.functional.linear(x, weight, bias))
    assert advised == ([found.data_ptr()] if rows == ROWS else [])


LAYOUTS = {
    'a transposed weight': (lambda: torch.randn(9, 5), lambda: torch.randn(17, 5).t()),
    'a weight': (lambda: torch.randn(9, 5), lambda: torch.randn(5, 17)),
    'some columns of rows': (lambda: torch.randn(9, 8)[:, 1:6], lambda: torch.randn(5, 17)),
    'some columns of a weight': (lambda: torch.randn(9, 5), lambda: torch.randn(5, 20)[:, 2:19]),
    'one row': (lambda: torch.randn(1, 5), lambda: torch.randn(5, 17)),
    'one column': (lambda: torch.randn(9, 1), lambda: torch.randn(1, 17)),
    'one channel': (lambda: torch.randn(9, 5), lambda: torch.randn(5, 1)),
    'no rows': (lambda: torch.randn(0, 5), lambda: torch.randn(5, 17)),
    'a transposed weight of doubles': (lambda: torch.randn(9, 5).double(), lambda: torch.randn(17, 5).double().t()),
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_products_by_a_list(listed, layout):
    first, second = (make() for make in LAYOUTS[layout])
    bias, to = torch.randn_like(second[0]), torch.randn_like(first @ second)
    with torch.no_grad():
        torch.testing.assert_close(product(first, second), first @ second)
        torch.testing.assert_close(product(first, second, bias), first @ second + bias)
        expected = to + first @ second
        assert added_product(to, first, second) is to
    torch.testing.assert_close(to, expected)
    assert len(listed) == 3


NOT_LISTED = {
    'expanded rows': lambda: (torch.randn(9, 1).expand(9, 5), torch.randn(5, 17)),
    'transposed rows': lambda: (torch.randn(5, 9).t(), torch.randn(5, 17)),
    'a class of its own': lambda: (torch.randn(9, 5).as_subclass(Own), torch.randn(5, 17)),
}


@pytest.mark.parametrize('given', NOT_LISTED)
def test_products_by_torch_where_lists_are_faster(listed, given):
    first, second = NOT_LISTED[given]()
    with torch.no_grad():
        torch.testing.assert_close(product(first, second), first @ second)
    assert not listed


def test_shapes_that_do_not_fit_are_refused(listed):
    first, second = torch.randn(9, 5), torch.randn(4, 17)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match='cannot be multiplied'):
            product(first, second)
        with pytest.raises(RuntimeError, match='cannot be multiplied'):
            added_product(torch.zeros(9, 17), first, second)
        with pytest.raises(RuntimeError):
            product(first, second.t()[:5], torch.zeros(3))
    assert not listed


GRADIENTS = {
    'as they should be': ({}, True),
    'of another type': ({'grad': torch.ones(7, 3).double()}, False),
    'of other rows': ({'grad': torch.ones(6, 3)}, False),
    'added to rows that are not contiguous': ({'to': torch.ones(4, 7).t()}, False),
    'added to other rows': ({'to': torch.ones(6, 4)}, False),
    'sparse': ({'grad': torch.ones(7, 3).to_sparse()}, False),
    'of a class of its own': ({'x': torch.ones(7, 4).as_subclass(Own)}, False),
}


@pytest.mark.parametrize('case', GRADIENTS)
def test_gradients_by_a_list(case, listed):
    changed, expected = GRADIENTS[case]
    tensors = {'grad': torch.ones(7, 3), 'x': torch.ones(7, 4), 'weight': torch.ones(3, 4), **changed}
    with torch.no_grad():
        assert is_adjoint_listed(**tensors) == expected
    assert not is_adjoint_listed(**tensors)


def test_a_product_that_is_recorded_is_differentiated(advised):
    x, weight = torch.randn(ROWS, 8), torch.randn(8, CHANNELS, requires_grad=True)
    product(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).unsqueeze(1).expand(8, CHANNELS), rtol=1e-3, atol=1e-2)
    assert advised == []


@pytest.mark.parametrize('is_recorded', [False, True])
def test_products_that_are_added(is_recorded):
    to, first, second = torch.randn(ROWS, 3), torch.randn(ROWS, 5), torch.randn(5, 3, requires_grad=is_recorded)
    expected = to + first @ second
    with torch.set_grad_enabled(is_recorded):
        found = added_product(to, first, second)
    torch.testing.assert_close(found, expected)
    assert (found is to) == (not is_recorded)


def test_peaks_are_counted():
    first = torch.randn(ROWS, CHANNELS)
    with torch.no_grad():
        assert peak_bytes(lambda: product(first, torch.eye(CHANNELS))) == first.nbytes + CHANNELS * CHANNELS * 4
