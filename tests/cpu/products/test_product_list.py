"""Products of a list are those of torch, whatever their shapes, layouts and number of threads."""

import pytest
import torch
from torch import Tensor

from pygfuse.codegen.product_list import TURNED, WORDS, Matrix, ProductList, product_words, sum_words
from pygfuse.cpu.products import product_list
from pygfuse.cpu.products.product_list import DEPTH, multiply, multiply_listed

# rows, depth and width: none, one, less than a register, with a rest of rows and channels, and more than one piece deep
SHAPES = [
    *[(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (5, 7, 3), (6, 16, 16), (13, 45, 70), (25, 64, 64)],
    *[(7, DEPTH + 1, 17), (14, 3 * DEPTH, 100)],
]
PARTS = pytest.mark.parametrize('in_parts', [False, True])


def words(
    left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None, addend: Tensor | None = None
) -> tuple[int, ...]:
    """``out = addend + bias + left @ right``; a `right` whose columns lie side by side is read as it lies."""
    is_turned = right.stride(1) != 1 and right.stride(0) == 1
    steps = right.stride(1) if is_turned else right.stride(0)
    own = (0, 0) if addend is None else (addend.data_ptr(), addend.stride(0))
    return (
        TURNED if is_turned else 0, left.shape[0], left.shape[1], right.shape[1], left.data_ptr(), *left.stride(),
        right.data_ptr(), steps, 0 if bias is None else bias.data_ptr(), *own, out.data_ptr(), out.stride(0),
    )  # fmt: skip


@pytest.fixture
def in_parts_or_not(in_parts, monkeypatch):
    monkeypatch.setattr(product_list, 'MOST_OF_ONE', 0 if in_parts else 2**60)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


@PARTS
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('shape', SHAPES)
def test_products(shape, dtype, in_parts_or_not):
    rows, depth, width = shape
    left, right, bias, addend = drawn(rows, depth), drawn(depth, width), drawn(width), drawn(rows, width)
    for left_as in (left, left.t().contiguous().t()):
        for right_as in (right, right.t().contiguous().t()):
            for own, other in ((None, None), (bias, None), (None, addend), (bias, addend)):
                given = [None if t is None else t.to(dtype) for t in (left_as, right_as, own, other)]
                # rows that are longer than what is written
                around = torch.full((rows + 2, width + 3), 7.0, dtype=dtype)
                out = around[1 : rows + 1, 1 : width + 1]
                multiply(dtype, words(given[0], given[1], out, *given[2:]), rows * depth * width)
                expected = left @ right + (0 if own is None else own) + (0 if other is None else other)
                torch.testing.assert_close(
                    out, expected.to(dtype), atol=1e-4 if dtype is torch.float32 else 1e-12, rtol=0
                )
                around[1 : rows + 1, 1 : width + 1] = 7.0
                assert (around == 7.0).all()


@PARTS
def test_a_product_of_an_earlier_result(in_parts_or_not):
    x, first, second = drawn(25, 9), drawn(9, 33), drawn(33, 5)
    hidden, out = torch.empty(25, 33, dtype=torch.float64), torch.empty(25, 5, dtype=torch.float64)
    # a third is added to the second, in place
    listed = words(x, first, hidden) + words(hidden, second, out) + words(x, first[:, :5], out, addend=out)
    assert len(listed) == 3 * WORDS
    multiply(torch.float64, listed, 0)
    torch.testing.assert_close(out, x @ first @ second + x @ first[:, :5])


@PARTS
def test_a_list_that_is_written_once(in_parts_or_not):
    x, second = Matrix('x', 9), Matrix('second', 'width')
    rows, width = 25, 33
    listed = ProductList(
        [
            *product_words(('rows', 9, 'width'), x, Matrix('first', 'width'), Matrix('hidden', 'width'), 'bias'),
            *product_words(('rows', 'width', 9), Matrix('hidden', 'width'), second.turned, Matrix('out', 9)),
        ]
    )
    assert listed.names == ('rows', 'width', 'x', 'first', 'bias', 'hidden', 'second', 'out')
    assert listed.count == 2
    for _ in range(2):
        given = drawn(rows, 9), drawn(9, width), drawn(width), drawn(rows, width), drawn(9, width), drawn(rows, 9)
        numbers = rows, width, *[tensor.data_ptr() for tensor in given]
        multiply_listed(torch.float64, listed, (*listed.head, *numbers), 1)
        left, first, bias, hidden, right, out = given
        torch.testing.assert_close(hidden, left @ first + bias)
        torch.testing.assert_close(out, hidden @ right.t())
        # others, of other sizes
        rows, width = 7, 70


@PARTS
def test_a_sum_of_blocks_of_columns(in_parts_or_not):
    for rows, count, width in ((0, 3, 5), (1, 1, 1), (25, 3, 70), (14, 5, 16)):
        blocks, around = drawn(rows, count * width), torch.full((rows, width + 3), 7.0, dtype=torch.float64)
        found = sum_words((rows, count, width), Matrix(blocks.data_ptr(), count * width, width), Matrix(0, width + 3))
        found = (*found[:12], around.data_ptr(), *found[13:])
        # one that is added to it is behind it
        bias = drawn(width)
        added = words(drawn(rows, 0), drawn(0, width), around[:, :width], bias, around[:, :width])
        multiply(torch.float64, found + added, 1)
        torch.testing.assert_close(around[:, :width], blocks.view(rows, count, width).sum(1) + bias)
        assert (around[:, width:] == 7.0).all()


def test_sums_of_columns_are_products_with_ones():
    x, one, out = drawn(300, 40), torch.ones(1, dtype=torch.float64), torch.empty(1, 40, dtype=torch.float64)
    multiply(torch.float64, words(one.expand(1, 300), x, out), 0)
    torch.testing.assert_close(out[0], x.sum(0))


def test_the_same_bits_in_parts_and_whole(monkeypatch):
    left, right, found = drawn(301, 200, dtype=torch.float32), drawn(200, 50, dtype=torch.float32), []
    threads = torch.get_num_threads()
    for work, number in ((2**60, 1), (0, 1), (0, 2), (0, 5)):
        monkeypatch.setattr(product_list, 'MOST_OF_ONE', work)
        torch.set_num_threads(number)
        found.append(torch.empty(301, 50))
        multiply(torch.float32, words(left, right, found[-1]), 1)
    torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_what_is_not_finite():
    left = torch.zeros(8, 20)
    left[3, 4], left[5, 19] = float('inf'), float('nan')
    right, out = torch.ones(20, 18), torch.empty(8, 18)
    multiply(torch.float32, words(left, right, out), 0)
    torch.testing.assert_close(out, left @ right, equal_nan=True)


ZERO_ROWS = {
    'all but the first': lambda left: left[7:].zero_(),
    'all but the last': lambda left: left[:-7].zero_(),
    'all but some': lambda left: left[torch.arange(len(left)) % 29 != 5].zero_(),
    'all but a number': lambda left: left.mul_(left == left[333, 60]),
    'all': lambda left: left.zero_(),
}


@PARTS
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('zeros', ZERO_ROWS)
@pytest.mark.parametrize('others', [None, float('inf'), float('nan')])
def test_rows_that_are_zero(zeros, others, dtype, in_parts_or_not):
    left = drawn(400, 70, dtype=dtype)
    ZERO_ROWS[zeros](left)
    for factor in (left, left.t()):
        right, bias, addend = drawn(factor.shape[1], 37), drawn(37), drawn(factor.shape[0], 37)
        if others is not None:
            right[-60, 30] = others
        right, bias, addend = (tensor.to(dtype) for tensor in (right, bias, addend))
        out = torch.empty_like(addend)
        multiply(dtype, words(factor, right, out, bias, addend), out.numel() * factor.shape[1])
        expected = factor @ right + bias + addend
        tolerance = 1e-4 if dtype is torch.float32 else 1e-12
        torch.testing.assert_close(out, expected, atol=tolerance, rtol=0, equal_nan=True)


@pytest.mark.parametrize('width', [8, 40, 90])
@pytest.mark.parametrize('depth', [10, 70, 300])
def test_rows_that_are_zero_times_a_transpose(depth, width):
    """What is not finite stands in the last row and column of a factor that is read as it lies, or the other way."""
    left = torch.zeros(100, depth)
    for factor, lies in ((left, False), (left, True), (torch.zeros(depth, 100).t(), True)):
        right = drawn(width, depth).float().t() if lies else drawn(depth, width).float()
        right[-1, -1] = float('nan')
        out = torch.empty(100, width)
        multiply(torch.float32, words(factor, right, out), 0)
        torch.testing.assert_close(out, factor @ right, equal_nan=True)


@pytest.mark.parametrize('rows', [5, 400])
def test_no_depth(rows):
    """A bias that is added alone: there is no left factor, and no memory at its address."""
    bias, out = drawn(40), drawn(rows, 40)
    expected = out + bias
    written = Matrix(str(out.data_ptr()), 40)
    found = product_words((rows, 0, 40), None, None, written, bias.data_ptr(), written)
    multiply(torch.float64, tuple(map(int, found)), 0)
    assert torch.equal(out, expected)


def test_a_factor_that_is_not_a_number_is_not_zero():
    left, right, out = torch.zeros(300, 20), torch.ones(20, 16), torch.empty(300, 16)
    left[200, 19] = float('nan')
    multiply(torch.float32, words(left, right, out), 0)
    assert out.isnan().nonzero()[:, 0].unique().tolist() == [200]
    multiply(torch.float32, words(left.t(), out.zero_(), sums := torch.empty(20, 16)), 0)
    assert sums.isnan().nonzero()[:, 0].unique().tolist() == [19]


def test_rounding_of_long_sums():
    left, right = drawn(6, 100_000, dtype=torch.float32), drawn(100_000, 20, dtype=torch.float32)
    out, exact = torch.empty(6, 20), left.double() @ right.double()
    multiply(torch.float32, words(left, right, out), 0)
    assert (out - exact).norm() <= 2e-6 * exact.norm()
