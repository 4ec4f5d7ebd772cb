"""Looks, within a kernel, at whether rows are zero or finite: a gradient that is zero need not be multiplied."""

from __future__ import annotations

import functools

from numba import types

from pygfuse.cpu.translation.functions import Function, inlined
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.inlining import compiled


@functools.cache
def line_of(element: types.Float) -> Layout:
    """One register of numbers."""
    return Layout(element, 1, simd.register_bytes() * 8 // element.bitwidth)


@inlined
def are_corners_zero(values, first, last, step, begin, end):
    """Whether the first and the last number of the first and the last row are zero: a cheaper look before another."""
    top, bottom = first * step, (last - 1) * step
    return (
        values[top + begin] == 0.0
        and values[bottom + end - 1] == 0.0
        and values[top + end - 1] == 0.0
        and values[bottom + begin] == 0.0
    )


@functools.cache
def looks(line: Layout) -> tuple[Function, Function]:
    """Functions of numbers `begin` to `end` of rows `first` to `last`.

    ``are_zero(values, first, last, step, begin, end)``: whether all are zero, as NaN is not; ``are_finite(...)``:
    whether none is NaN or infinite.

    Args:
        line: One register.
    """
    lanes = line.channels

    def look(name: str, finds: str) -> Function:
        text = [
            f'def {name}(values, first, last, step, begin, end):',
            '    found = full(0.0)',
            '    for row in range(first, last):',
            # one way of loading for all, as each is code that takes time to compile
            f'        for i in range(begin, end, {lanes}):',
            '            value = load_some(values, row * step + i, end - i)',
            f'            found = {finds}',
            '    return not any_above(found, limit(0.0))',
        ]
        return compiled(
            '\n'.join(text), load_some=line.load_some_edges, full=line.edges_full, limit=line.heads_full,
            any_above=line.any_above,
        )  # fmt: skip

    # a difference of what is not finite from itself is NaN, which equals nothing
    finds = 'equal({}, full(0.0), found, full(1.0))'
    return look('are_zero', finds.format('value')), look('are_finite', finds.format('value - value'))
