"""Kernels on the rows of nodes, no edges involved."""

from __future__ import annotations

import functools
import math

from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu import row_tiling as plan
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.parts import piece_of
from pygfuse.program.vocabulary import sum_channels

_ROWS = 1024


@functools.lru_cache(maxsize=64)
def _head_dots_kernel(layout: Layout) -> Kernel:
    load_row, store_heads = layout.load_row, layout.store_heads

    def dots(part, tiles, x, y, rows, total_heads, width, result):
        _, piece, head, channel = piece_of(part, tiles)
        for v in range(piece * _ROWS, min(rows, (piece + 1) * _ROWS)):
            product = load_row(x, v * width + channel) * load_row(y, v * width + channel)
            store_heads(result, v * total_heads + head, sum_channels(product))

    return Kernel(dots, f'dots of rows, {layout.heads} x {layout.channels}, {layout.element}', (str(layout.row),))


def head_dots(x: Tensor, y: Tensor, heads: int) -> Tensor:
    """The dot of two rows over each head's channels.

    Args:
        x: ``[rows, heads * channels]``, contiguous.
        y: The same.
        heads: Number of heads.

    Returns:
        ``[rows, heads]``.
    """
    rows, width = x.shape
    tiling = plan.tiling(x.dtype, heads, width // heads, plan.BACKWARD_REGISTERS, False)
    result = x.new_empty(rows, heads)
    pieces = (rows + _ROWS - 1) // _ROWS
    _head_dots_kernel(tiling.layout)(pieces * tiling.count, tiling.tiles, x, y, rows, heads, width, result)
    return result


_ELEMENTS = 2**16
# PyTorch's own operators are parallel above so many elements
_PARALLEL = 2**14


@functools.cache
def _fill_kernel() -> Kernel:
    def fill(part, value, memory):
        for i in range(part * _ELEMENTS, min(len(memory), (part + 1) * _ELEMENTS)):
            memory[i] = value

    return Kernel(fill, 'a number in all places')


def filled(memory: Tensor, value: float) -> Tensor:
    """The tensor, contiguous, with a number in all places; also in a forked child."""
    _fill_kernel()(-(-memory.numel() // _ELEMENTS), value, memory)
    return memory


def zeros(like: Tensor, *shape: int) -> Tensor:
    """A tensor of zeros of the type of `like`; also in a forked child, where PyTorch's own parallel operators hang."""
    if math.prod(shape) < _PARALLEL:
        return like.new_zeros(shape)
    memory = on_huge_pages(like.new_empty(shape))
    return filled(memory, 0)


@functools.cache
def _sum_kernel() -> Kernel:
    def add(part, count, copies, result):
        size = len(result)
        begin, end = part * _ELEMENTS, min(size, (part + 1) * _ELEMENTS)
        for i in range(begin, end):
            result[i] = copies[i]
        for k in range(1, count):
            for i in range(begin, end):
                result[i] += copies[k * size + i]

    return Kernel(add, 'sum of copies')


def added_up(copies: Tensor) -> Tensor:
    """The sum over the first dimension, in its order; also in a forked child.

    Args:
        copies: ``[copies, ...]``, contiguous, at least one.
    """
    if copies.shape[0] == 1:
        return copies[0]
    result = copies.new_empty(copies.shape[1:])
    _sum_kernel()(-(-result.numel() // _ELEMENTS), copies.shape[0], copies, result)
    return result


def total(parts: Tensor) -> Tensor:
    """The sum over the first dimension, by halves: it keeps the digits that adding one after another would lose.

    Args:
        parts: ``[parts, ...]``, at least one.
    """
    return parts[0] if parts.shape[0] == 1 else parts.sum(dim=0)
