from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numba import types

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import Function, inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.vectors.simd import blocks_of, register_bytes
from pygfuse.program.vocabulary import exp, leaky_relu, log, maximum, positive, sum_channels

DTYPES = [torch.float32, torch.float64]
SHAPES = [(1, 1), (1, 7), (4, 8), (3, 5), (8, 3), (5, 17), (2, 16), (1, 64), (7, 1)]
INFINITY, NAN = float('inf'), float('nan')


def lanes(dtype: torch.dtype) -> int:
    return register_bytes() // dtype.itemsize


def apply(word, *operands: torch.Tensor) -> torch.Tensor:
    """A word on vectors of heads, for 1-D tensors of one length."""
    width = lanes(operands[0].dtype)
    layout = Layout(ELEMENT_TYPES[operands[0].dtype], width, 1)
    load, store = layout.load_heads, layout.store_heads
    if len(operands) == 1:

        def body(part, x, out):
            store(out, part * width, word(load(x, part * width)))

    else:

        def body(part, x, y, out):
            store(out, part * width, word(load(x, part * width), load(y, part * width)))

    length = len(operands[0])
    parts = -(-length // width)
    padded = [torch.cat([operand, operand.new_ones(parts * width - length)]) for operand in operands]
    out = torch.empty_like(padded[0])
    Kernel(body, f'test of {word.name if isinstance(word, Function) else word.__name__}', (str(layout.head),))(
        parts, *padded, out
    )
    return out[:length]


def units_in_the_last_place(found: torch.Tensor, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the type of `found`."""
    dtype = found.numpy().dtype
    spacing = np.spacing(np.abs(exact).astype(dtype)).astype(np.longdouble)
    return float(np.max(np.abs(found.numpy().astype(np.longdouble) - exact) / spacing))


@pytest.mark.parametrize(('dtype', 'low', 'high'), [(torch.float32, -86.9, 88.0), (torch.float64, -707.9, 709.0)])
def test_exp_is_exact_to_two_units(dtype, low, high):
    x = torch.cat([torch.linspace(low, high, 100_001, dtype=dtype), torch.linspace(-1, 1, 50_001, dtype=dtype)])
    exact = np.exp(x.numpy().astype(np.longdouble))
    assert units_in_the_last_place(apply(exp, x), exact) < 2


@pytest.mark.parametrize('dtype', DTYPES)
def test_exp_of_extremes(dtype):
    x = torch.tensor([0.0, -0.0, -INFINITY, INFINITY, NAN, -1e30, 1e30, 1e-40, -1e5, 1e5], dtype=dtype)
    assert apply(exp, x).tolist() == pytest.approx([1, 1, 0, INFINITY, NAN, 0, INFINITY, 1, 0, INFINITY], nan_ok=True)


@pytest.mark.parametrize('dtype', DTYPES)
def test_log_is_exact_to_three_units(dtype):
    info = torch.finfo(dtype)
    steps = np.linspace(math.log(info.tiny), math.log(info.max) * 0.999, 100_001)
    x = torch.cat([torch.from_numpy(np.exp(steps)).to(dtype), torch.linspace(0.3, 3, 50_000, dtype=dtype)])
    assert units_in_the_last_place(apply(log, x), np.log(x.numpy().astype(np.longdouble))) < 3


@pytest.mark.parametrize('dtype', DTYPES)
def test_log_of_extremes(dtype):
    found = apply(log, torch.tensor([1.0, NAN, 2.0, 1e30], dtype=dtype))
    assert found[0] == 0
    assert found[1].isnan()
    torch.testing.assert_close(found[2:], torch.tensor([2.0, 1e30], dtype=dtype).log())


@pytest.mark.parametrize('dtype', DTYPES)
def test_maximum_keeps_nan(dtype):
    x = torch.tensor([1.0, NAN, 3.0, NAN, -INFINITY, INFINITY], dtype=dtype)
    y = torch.tensor([2.0, 1.0, NAN, NAN, 5.0, 1.0], dtype=dtype)
    torch.testing.assert_close(apply(maximum, x, y), torch.maximum(x, y), equal_nan=True, rtol=0, atol=0)


def rectified(x, y):
    return leaky_relu(x, 0.25) - positive(y, x, y * 2.0) + x / (y + 0.5) - (-y)


@pytest.mark.parametrize('dtype', DTYPES)
def test_the_other_words_are_those_of_torch(dtype):
    x, y = torch.randn(2, 1000, dtype=dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(apply(inlined(rectified), x, y), rectified(x, y))


# Rows of heads and channels


def on_rows(heads: int, channels: int, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over channels of ``x + y``, and `x` times the spread `y`; x is [rows, heads * channels], y [rows, heads]."""
    layout = Layout(ELEMENT_TYPES[x.dtype], heads, channels)
    load_row, load_heads, store_row, store_heads = (
        layout.load_row,
        layout.load_heads,
        layout.store_row,
        layout.store_heads,
    )
    width = heads * channels

    def body(part, x, y, sums, products):
        row = load_row(x, part * width)
        spread = load_heads(y, part * heads)
        store_heads(sums, part * heads, sum_channels(row))
        store_row(products, part * width, row * spread)

    sums, products = torch.full_like(y, NAN), torch.full_like(x, NAN)
    Kernel(body, 'test of rows', (str(layout.row),))(len(x), x, y, sums, products)
    return sums, products


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
def test_sum_channels_and_spread(heads, channels, dtype):
    x = torch.randn(9, heads * channels, dtype=dtype, generator=torch.Generator().manual_seed(0))
    y = torch.randn(9, heads, dtype=dtype, generator=torch.Generator().manual_seed(1))
    sums, products = on_rows(heads, channels, x, y)
    by_head = x.view(9, heads, channels)
    torch.testing.assert_close(sums, by_head.sum(-1))
    assert torch.equal(products, (by_head * y.unsqueeze(-1)).flatten(1))


def summed_at_once(layout: Layout, x: torch.Tensor) -> torch.Tensor:
    """Sums over channels of `step` edges' rows side by side."""
    load_row, step, width = layout.load_row, layout.step, layout.heads * layout.channels
    make_buffer, store, load, store_edges = (
        layout.rows_buffer, layout.store_unsummed, layout.sum_unsummed, layout.store_edges,
    )  # fmt: skip

    def body(part, x, sums):
        buffer = make_buffer()
        for k in range(step):
            store(buffer, k, load_row(x, (part * step + k) * width))
        store_edges(sums, part * step * layout_heads, load(buffer))

    layout_heads = layout.heads
    sums = x.new_empty(len(x), layout.heads)
    Kernel(body, 'test of sums at once', (str(layout.row), str(layout.edges)))(len(x) // step, x, sums)
    return sums


@pytest.mark.parametrize('edge_limit', [None, 2])
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize(
    ('heads', 'channels'), [(1, 1), (1, 5), (1, 16), (1, 64), (2, 4), (2, 24), (3, 1), (3, 7), (3, 64), (4, 16)]
)
def test_sums_over_channels_of_several_edges_are_those_of_each(heads, channels, dtype, edge_limit):
    layout = Layout(ELEMENT_TYPES[dtype], heads, channels, edge_limit)
    if layout.step == 1:
        pytest.skip('the heads of one edge fill a register')
    x = torch.randn(4 * layout.step, heads * channels, dtype=dtype, generator=torch.Generator().manual_seed(0))
    each, _ = on_rows(heads, channels, x, x.new_zeros(len(x), heads))
    assert torch.equal(summed_at_once(layout, x), each)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize(('heads', 'channels'), [(1, 5), (2, 8), (3, 16), (3, 24), (4, 64)])
def test_heads_are_spread_as_they_are_read(heads, channels, dtype):
    layout, width = Layout(ELEMENT_TYPES[dtype], heads, channels), heads * channels
    load, store_row, row_full = layout.load_spread, layout.store_row, layout.row_full

    def body(part, x, rows):
        store_row(rows, part * width, load(x, part * heads) + row_full(0.0))

    x = torch.randn(5, heads, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows = x.new_empty(5, width)
    Kernel(body, 'test of spread heads', (str(layout.row),))(5, x, rows)
    assert torch.equal(rows, x.repeat_interleave(channels, dim=1))


def test_a_row_is_not_read_or_written_beyond_its_end():
    heads, channels = 3, 5
    room = torch.full((3, heads * channels), NAN)
    room[1] = 1.0
    sums, products = on_rows(heads, channels, room, torch.ones(3, heads))
    assert bool(sums[1].eq(5).all())
    assert bool(sums[0].isnan().all())
    assert bool(products[1].eq(1).all())
    assert bool(products[2].isnan().all())


@pytest.mark.parametrize('width', [4, 8, 16])
@pytest.mark.parametrize(('heads', 'channels'), [*SHAPES, (5, 300), (64, 2), (3, 9)])
def test_blocks_hold_every_value_once(heads, channels, width):
    blocks = blocks_of(heads, channels, width)
    held = [value for block in blocks for value in range(block.start, block.start + block.valid)]
    assert held == list(range(heads * channels))
    for block in blocks:
        assert len(block.heads) == len(blocks[0].heads) <= width
        owners = [(block.start + lane) // channels for lane in range(block.valid)]
        assert list(block.heads[: block.valid]) == owners


def test_a_vector_of_edges_fills_a_register():
    for heads in (1, 2, 3, 4, 8, 100):
        layout = Layout(types.float32, heads, 4)
        assert layout.step >= 1
        assert layout.step * heads <= max(heads, lanes(torch.float32))
