"""Gaussians of distances and their derivatives, and sums of them weighted by a gradient, each in one pass."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.inlining import compiled

_REGISTERS, _DISTANCES_A_PART = 4, 512


def _value(terms: int) -> Function:
    """``value(u, factors)``: ``exp(factors[0] * u * u)`` times a polynomial of u with the other factors."""
    polynomial = f'factors[{terms}]'
    for i in reversed(range(1, terms)):
        polynomial = f'(u * {polynomial} + factors[{i}])'
    return compiled(f'def value(u, factors):\n    return exp(factors[0] * (u * u)) * {polynomial}')


def _rows_body(terms: int, layout: Layout) -> Callable:
    load_row, store_row, row_full, value = layout.load_row, layout.store_row, layout.row_full, _value(terms)

    def rows(part, starts, count, step, width, distance, offset, factors, scale, out):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(piece * step, min(count, (piece + 1) * step)):
            found = value(row_full(distance[e]) - load_row(offset, channel), factors)
            if scale is not None:
                found = found * scale[e]
            store_row(out, e * width + channel, found)

    return rows


def _sums_body(terms: int, layout: Layout) -> Callable:
    load_row, row_full, total, value = layout.load_row, layout.row_full, layout.total, _value(terms)

    def sums(part, starts, count, step, width, distance, offset, factors, weights, out):
        for e in range(part * step, min(count, (part + 1) * step)):
            found = row_full(0.0)
            for i in range(len(starts)):
                channel = starts[i]
                here = value(row_full(distance[e]) - load_row(offset, channel), factors)
                found = found + here * load_row(weights, e * width + channel)
            out[e] = out[e] + total(found)

    return sums


@functools.lru_cache(maxsize=64)
def _kernel(body: Callable[[int, Layout], Callable], terms: int, layout: Layout) -> Kernel:
    name = f'{body.__name__.strip("_")} of Gaussians, {terms}, {layout.channels}, {layout.element}'
    return Kernel(body(terms, layout), name, (str(layout.row),))


def smeared(distance: Tensor, offset: Tensor, factors: Tensor, scale: Tensor | None) -> Tensor:
    """``scale * exp(factors[0] * u ** 2) * (factors[1] + factors[2] * u + ...)`` with ``u = distance - offset``.

    Args:
        distance: ``[edges]``.
        offset: ``[centres]``.
        factors: At least two numbers.
        scale: Like `distance`; None: 1.

    Returns:
        ``[edges, centres]``.
    """
    count, width = len(distance), len(offset)
    out = on_huge_pages(distance.new_empty(count, width))
    for layout, starts in blocks(out.dtype, width, _REGISTERS):
        _kernel(_rows_body, len(factors) - 1, layout)(
            -(-count // _DISTANCES_A_PART) * len(starts),
            *(starts, count, _DISTANCES_A_PART, width, distance, offset, factors, scale, out),
        )
    return out


def sum_of_smeared(distance: Tensor, offset: Tensor, factors: Tensor, weights: Tensor) -> Tensor:
    """The sum over all centres of `smeared` times ``weights``, ``[edges, centres]``: one number a distance."""
    count, width = weights.shape
    out = distance.new_zeros(count)
    for layout, starts in blocks(out.dtype, width, _REGISTERS):
        _kernel(_sums_body, len(factors) - 1, layout)(
            -(-count // _DISTANCES_A_PART),
            *(starts, count, _DISTANCES_A_PART, width, distance, offset, factors, weights, out),
        )
    return out
