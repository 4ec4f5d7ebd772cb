"""Kernels for the dots of each node's heads with one or two vectors a head, and their adjoint: rows are read once."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu import row_tiling
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.nodes.rows import total
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.parts import piece_of
from pygfuse.program.vocabulary import sum_channels

# so many rows are one part: sums of so few keep their digits
_ROWS = 256


@functools.lru_cache(maxsize=64)
def _products_kernel(layout: Layout) -> Kernel:
    load_row, store_heads = layout.load_row, layout.store_heads

    def products(part, tiles, x, first, second, rows, total_heads, width, of_first, of_second):
        _, piece, head, channel = piece_of(part, tiles)
        first_row = load_row(first, channel)
        if second is not None:
            second_row = load_row(second, channel)
        for v in range(piece * _ROWS, min(rows, (piece + 1) * _ROWS)):
            row = load_row(x, v * width + channel)
            store_heads(of_first, v * total_heads + head, sum_channels(row * first_row))
            if second is not None:
                store_heads(of_second, v * total_heads + head, sum_channels(row * second_row))

    return Kernel(products, f'products of heads, {layout.row}', (str(layout.row),))


@functools.lru_cache(maxsize=64)
def _adjoint_kernel(layout: Layout) -> Kernel:
    load_row, load_heads, store_row, row_full = layout.load_row, layout.load_heads, layout.store_row, layout.row_full

    def adjoint(
        part, tiles, x, first, second, grad_first, grad_second, begun, rows, total_heads, width, grad_x, sums,
        second_sums,
    ):  # fmt: skip
        _, piece, head, channel = piece_of(part, tiles)
        first_row = load_row(first, channel)
        if second is not None:
            second_row = load_row(second, channel)
        sum_, second_sum = row_full(0.0), row_full(0.0)
        for v in range(piece * _ROWS, min(rows, (piece + 1) * _ROWS)):
            row = load_row(x, v * width + channel)
            grad = load_heads(grad_first, v * total_heads + head)
            of_row = first_row * grad
            sum_ = sum_ + row * grad
            if second is not None:
                grad = load_heads(grad_second, v * total_heads + head)
                of_row = of_row + second_row * grad
                second_sum = second_sum + row * grad
            if begun is not None:
                of_row = of_row + load_row(begun, v * width + channel)
            store_row(grad_x, v * width + channel, of_row)
        store_row(sums, piece * width + channel, sum_)
        if second is not None:
            store_row(second_sums, piece * width + channel, second_sum)

    return Kernel(adjoint, f'products of heads backward, {layout.row}', (str(layout.row),))


class _Launches:
    """The two kernels for rows of one type and shape, with one vector or two, and gradients that are added to others or
    not: nobody asks what arguments are."""

    def __init__(self, dtype: torch.dtype, heads: int, channels: int, both: bool, begun: bool) -> None:
        tiling = row_tiling.tiling(dtype, heads, channels, row_tiling.BACKWARD_REGISTERS, False)
        self.tiles, self.count = tiling.tiles, tiling.count
        rows = torch.empty(0, dtype=dtype, device='cpu')
        other = rows if both else None
        given, there = (self.tiles, rows, rows, other), rows if begun else None
        self.products = _products_kernel(tiling.layout).untested((*given, 0, 0, 0, rows, other))
        self.adjoint = _adjoint_kernel(tiling.layout).untested((*given, rows, other, there, 0, 0, 0, rows, rows, other))


_launches = functools.lru_cache(maxsize=256)(_Launches)


def _pieces(rows: int) -> int:
    return -(-rows // _ROWS)


def _run(launch: Launch, pieces: int, launches: _Launches, *arguments: object) -> None:
    # one piece, of however many tiles, is too little work to wake another thread for
    launch.run(launch.pack(pieces * launches.count, launches.tiles, *arguments), min(pieces, torch.get_num_threads()))


def products(x: Tensor, first: Tensor, second: Tensor | None = None) -> tuple[Tensor, ...]:
    """The dots of each node's heads with one or two vectors a head.

    Args:
        x: ``[nodes, H, C]``, contiguous.
        first, second: ``[1, H, C]``, contiguous; the second may be missing.

    Returns:
        For each of them, ``[nodes, H]``.
    """
    rows, heads, channels = x.shape
    launches = _launches(x.dtype, heads, channels, second is not None, False)
    found = x.new_empty(rows, heads), None if second is None else x.new_empty(rows, heads)
    _run(launches.products, _pieces(rows), launches, x, first, second, rows, heads, heads * channels, *found)
    return found[:1] if second is None else found


def products_adjoint(
    x: Tensor,
    vectors: Sequence[Tensor],
    grads: Sequence[Tensor],
    begun: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of the arguments of `products`.

    Args:
        x, vectors: As there.
        grads: The gradients of its results, ``[nodes, H]`` each, contiguous.
        begun: What is added to the gradient of `x`, of its shape and contiguous, or None.
        out: Where that is written, which may be `begun`; None for a new tensor.
    """
    (first, second), (grad, second_grad) = ((*given, None)[:2] for given in (vectors, grads))
    rows, heads, channels = x.shape
    launches = _launches(x.dtype, heads, channels, second is not None, begun is not None)
    pieces = _pieces(rows)
    grad_x = on_huge_pages(x.new_empty(x.shape)) if out is None else out
    sums = x.new_empty(pieces, *first.shape)
    second_sums = None if second is None else x.new_empty(sums.shape)
    given = x, first, second, grad, second_grad, begun, rows, heads, heads * channels
    _run(launches.adjoint, pieces, launches, *given, grad_x, sums, second_sums)
    return grad_x, total(sums), *(() if second is None else (total(second_sums),))
