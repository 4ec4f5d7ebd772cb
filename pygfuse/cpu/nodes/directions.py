"""Kernels for rows of length one and those times a number, and their adjoint: rows are read once."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu import row_tiling
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.nodes.rows import total
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.program.vocabulary import sqrt, sum_channels

# so many rows are one part: sums of so few keep their digits
_ROWS = 256


@functools.lru_cache(maxsize=64)
def _directions_kernel(layout: Layout) -> Kernel:
    load_row, store_row, store_heads = layout.load_row, layout.store_row, layout.store_heads

    def directions(part, x, beta, least, rows, width, x_norm, scaled, lengths):
        for v in range(part * _ROWS, min(rows, (part + 1) * _ROWS)):
            row = load_row(x, v * width)
            store_heads(lengths, v, sqrt(sum_channels(row * row)))
            if lengths[v] < least:
                row = row / least
            else:
                row = row / lengths[v]
            store_row(x_norm, v * width, row)
            store_row(scaled, v * width, row * beta[0])

    return Kernel(directions, f'directions of rows, {layout.row}', (str(layout.row),))


@functools.lru_cache(maxsize=64)
def _adjoint_kernel(layout: Layout) -> Kernel:
    load_row, store_row, store_heads, heads_full = (
        layout.load_row, layout.store_row, layout.store_heads, layout.heads_full
    )  # fmt: skip

    def adjoint(part, x_norm, beta, least, lengths, of_norm, of_scaled, begun, rows, width, grad_x, sums):
        sum_ = heads_full(0.0)
        for v in range(part * _ROWS, min(rows, (part + 1) * _ROWS)):
            row, scaled = load_row(x_norm, v * width), load_row(of_scaled, v * width)
            sum_ = sum_ + sum_channels(row * scaled)
            grad = load_row(of_norm, v * width) + scaled * beta[0]
            if lengths[v] < least:
                grad = grad / least
            else:
                # no step along a row changes what is divided by its length
                grad = (grad - row * sum_channels(grad * row)) / lengths[v]
            if begun is not None:
                grad = grad + load_row(begun, v * width)
            store_row(grad_x, v * width, grad)
        store_heads(sums, part, sum_)

    return Kernel(adjoint, f'directions of rows backward, {layout.row}', (str(layout.row),))


def _layout(x: Tensor) -> Layout:
    return row_tiling.tiling(x.dtype, 1, x.shape[1], row_tiling.BACKWARD_REGISTERS, False).layout


def directions(x: Tensor, beta: Tensor, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows divided by their lengths, those times a number, and the lengths.

    Args:
        x: ``[rows, channels]``, contiguous.
        beta: The number, ``[1]``.
        least: Shorter rows are divided by it.

    Returns:
        Twice ``[rows, channels]``, and ``[rows]``.
    """
    rows, width = x.shape
    x_norm, scaled = on_huge_pages(torch.empty_like(x)), on_huge_pages(torch.empty_like(x))
    lengths = x.new_empty(rows)
    _directions_kernel(_layout(x))(-(-rows // _ROWS), x, beta, least, rows, width, x_norm, scaled, lengths)
    return x_norm, scaled, lengths


def directions_adjoint(
    x_norm: Tensor, beta: Tensor, least: float, lengths: Tensor, of_norm: Tensor, of_scaled: Tensor,
    begun: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of the rows and of the number that were given to `directions`.

    Args:
        x_norm, lengths: What it gave.
        beta, least: As there.
        of_norm, of_scaled: The gradients of its first two results, contiguous.
        begun: What is added to the gradient of the rows, contiguous, or None.
    """
    rows, width = x_norm.shape
    grad_x, sums = on_huge_pages(torch.empty_like(x_norm)), x_norm.new_empty(-(-rows // _ROWS))
    given = x_norm, beta, least, lengths, of_norm, of_scaled, begun
    _adjoint_kernel(_layout(x_norm))(len(sums), *given, rows, width, grad_x, sums)
    return grad_x, total(sums).view(beta.shape)
