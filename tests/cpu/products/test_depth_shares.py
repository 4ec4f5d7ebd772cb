"""Sums over many rows in parts: what is dealt, and that parts add up to the products of torch."""

import pytest
import torch

from pygfuse.codegen.product_list import ADDED_UP, IN_PARTS, TURNED, WORDS
from pygfuse.cpu.products import product_list
from pygfuse.cpu.products.depth_shares import shares_of
from tests.cpu.products.test_product_list import drawn, words

# more than one piece for each of the least number of parts, and a rest
ROWS = 4 * 3 * product_list.DEPTH + 5


def of_weight(grad, x, out, adds=False):
    """The words of a weight's gradient."""
    return words(grad.t(), x, out, addend=out if adds else None)


@pytest.fixture
def in_parts(monkeypatch):
    """The least number of parts, whatever the work; memory that nobody wrote is NaN."""
    monkeypatch.setattr(product_list, 'MOST_OF_ONE', 0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(('width', 'in_channels'), [(2, 1), (7, 70), (64, 64), (13, 16)])
@pytest.mark.parametrize('adds', [False, True])
def test_a_weights_gradient(width, in_channels, adds, dtype, in_parts):
    grad, x = drawn(ROWS, width, dtype=dtype), drawn(ROWS, in_channels, dtype=dtype)
    # rows that are longer than what is written
    around = torch.full((width + 2, in_channels + 3), 0.5, dtype=dtype)
    out = around[1:-1, 1:-2]
    listed = of_weight(grad, x, out, adds)
    assert shares_of(listed, 4).shares == [4]
    assert shares_of(listed, 4).size == 4 * width * in_channels
    product_list.multiply(dtype, listed, 1)
    expected = grad.double().t() @ x.double() + (0.5 if adds else 0.0)
    torch.testing.assert_close(out, expected.to(dtype), atol=2e-4 if dtype is torch.float32 else 1e-11, rtol=0)
    out[:] = 0.5
    assert (around == 0.5).all()


def test_beside_products_whose_rows_are_dealt(in_parts):
    grad, x, weight = drawn(ROWS, 9), drawn(ROWS, 20), drawn(9, 20)
    of_x, of_one = torch.empty_like(x), torch.empty_like(weight)
    of_both, of_bias, one = torch.empty_like(weight), torch.empty(1, 9, dtype=x.dtype), torch.ones(1, dtype=x.dtype)
    listed = (
        *words(grad, weight, of_x),
        *of_weight(grad, x, of_one),
        *of_weight(grad, of_x, of_both),
        *words(one.expand(1, ROWS), grad, of_bias),
        # two parts of one gradient
        *of_weight(grad, x, of_both, True),
    )
    assert [shares > 0 for shares in shares_of(listed, 4).shares] == [False, True, True, True, True]
    product_list.multiply(x.dtype, listed[: 2 * WORDS] + listed[3 * WORDS : 4 * WORDS], 1)
    torch.testing.assert_close(of_x, grad @ weight)
    torch.testing.assert_close(of_one, grad.t() @ x)
    torch.testing.assert_close(of_bias[0], grad.sum(0))
    # no list may read, as the right factor, what it wrote
    product_list.multiply(x.dtype, listed[2 * WORDS : 3 * WORDS] + listed[4 * WORDS :], 1)
    torch.testing.assert_close(of_both, grad.t() @ (of_x + x))


def test_a_product_that_adds_to_a_sum_in_parts(in_parts):
    """The sum is there once the list is done, too late for a product whose rows are dealt."""
    grad, x, few, other = drawn(ROWS, 9), drawn(ROWS, 20), drawn(9, 3), drawn(3, 20)
    out = torch.empty(9, 20, dtype=x.dtype)
    listed = of_weight(grad, x, out) + words(few, other, out, addend=out)
    assert shares_of(listed, 4) is None
    product_list.multiply(x.dtype, listed, 1)
    torch.testing.assert_close(out, grad.t() @ x + few @ other)


def test_whose_rows_are_dealt():
    grad, x = drawn(ROWS, 9), drawn(ROWS, 20)
    # rows of the left factor lie side by side
    assert shares_of(words(x[:9], drawn(20, 30), torch.empty(9, 30, dtype=x.dtype)), 4) is None
    # a right factor that is turned, and a bias
    listed = of_weight(grad, x, torch.empty(9, 20, dtype=x.dtype))
    assert shares_of((TURNED, *listed[1:]), 4) is None
    assert shares_of((*listed[:9], 1, *listed[10:]), 4) is None
    # some parts, where all would write more than half of what they read: 9 x 20 numbers each, and 29 a row
    most = ROWS * 29 // (2 * 9 * 20)
    assert [shares_of(listed, parts).shares for parts in (2, most, most + 1)] == [[2], [most], [most]]
    few = of_weight(grad[:20], x[:20], torch.empty(9, 20, dtype=x.dtype))
    assert shares_of(few, 4) is None


def test_what_the_kernel_is_told():
    grad, x, out = drawn(ROWS, 9), drawn(ROWS, 20), torch.empty(9, 20, dtype=torch.float64)
    listed = of_weight(grad, x, out, True)
    dealt, sums = shares_of(listed, 4).lists(1000, 8)
    left = grad.data_ptr(), 1, 9
    assert dealt == (IN_PARTS, 9, ROWS, 20, *left, x.data_ptr(), 20, 0, 0, 4, 1000, 20)
    assert sums == (ADDED_UP, 9, 4, 20, 0, 20, 0, 1000, 180, 0, out.data_ptr(), 20, out.data_ptr(), 20)


def test_fewer_shares_than_parts(monkeypatch):
    monkeypatch.setattr(product_list, 'MOST_OF_ONE', 0)
    grad, x, out = drawn(200, 40), drawn(200, 30), torch.empty(40, 30, dtype=torch.float64)
    listed = of_weight(grad, x, out)
    assert shares_of(listed, 64).shares == [5]
    product_list.multiply(x.dtype, listed, 64 * product_list.SHARE)
    torch.testing.assert_close(out, grad.t() @ x)


def test_the_same_bits_for_any_number_of_threads(in_parts, monkeypatch):
    grad, x, found = drawn(ROWS, 9, dtype=torch.float32), drawn(ROWS, 20, dtype=torch.float32), []
    threads = torch.get_num_threads()
    for number, added in ((1, 2**30), (2, 2**30), (2, 0), (5, 0)):
        monkeypatch.setattr(product_list, 'MOST_ADDED_BY_ONE', added)
        torch.set_num_threads(number)
        found.append(torch.empty(9, 20))
        product_list.multiply(torch.float32, of_weight(grad, x, found[-1]), 1)
    torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize('other', [1.0, float('nan')])
def test_rows_that_are_zero(other, in_parts):
    """Pieces that are zero are not multiplied, but by what is not finite."""
    grad, x = drawn(ROWS, 9), drawn(ROWS, 20)
    grad[70:], x[-1, 3] = 0.0, other
    out = torch.full((9, 20), 7.0, dtype=x.dtype)
    product_list.multiply(x.dtype, of_weight(grad, x, out), 1)
    torch.testing.assert_close(out, grad.t() @ x, equal_nan=True)


def test_what_parts_write_is_counted():
    from pygfuse.memory import peak_bytes

    rows = product_list.MOST_OF_ONE // (32 * 32) + 1
    grad, x, out = drawn(rows, 32), drawn(rows, 32), torch.empty(32, 32, dtype=torch.float64)
    listed = of_weight(grad, x, out)
    work = rows * 32 * 32
    assert peak_bytes(lambda: product_list.multiply(x.dtype, listed, work)) == 4 * 32 * 32 * 8
