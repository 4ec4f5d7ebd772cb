"""What kernels on few edges are written of: a look at the edges, a reduction, and the gradients that it gives edges."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from pygfuse.cpu.networks.row_stages import ACTIVATION_REGISTERS, RowText
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.ends import ends_of, is_any_outside
from pygfuse.cpu.walks.inlining import compiled

EXTREMES = ('max', 'min')


def places_of(widths: Sequence[int], unit: str) -> list[str]:
    """Where buffers of these widths begin, one behind another, in what is given for `unit`."""
    return [f'{unit} * {sum(widths[:i])}' for i in range(len(widths))]


def checked(text: RowText) -> None:
    """Edges are looked at before anything is read by them, and counted by target."""
    text.say(
        """
        targets, sources, num_edges = ends_of(edges, target_row)
        failed[0] = 0
        if is_any_outside(targets, sources, num_edges, num_targets, num_sources):
            failed[0] = 1
            return
        counts = empty(num_targets, element)
        for v in range(num_targets):
            counts[v] = 0.0
        for edge in range(num_edges):
            counts[targets[edge]] += 1.0
        """,
        ends_of=ends_of,
        is_any_outside=is_any_outside,
    )


def turned(text: RowText, name: str, weight: str, after: int, before: int) -> None:
    """A weight as products read it, ``[before, after]``, under a name."""
    text.say(
        f"""
        {name} = empty({after * before}, element)
        for row in range({after}):
            for column in range({before}):
                {name}[column * {after} + row] = {weight}[row * {before} + column]
        """
    )


def zeroed(text: RowText, name: str, length: int | str, indent: int = 1) -> None:
    """So many zeros."""
    text.say(f'for place in range({length}):', indent)
    text.say(f'{name}[place] = 0.0', indent + 1)


def reduced(text: RowText, reduce: str, width: int, values: str) -> None:
    """All values of edges, reduced to ``out``."""
    opened(text, reduce, width)
    gather = functools.partial(gathered, reduce)
    text.call(width, ACTIVATION_REGISTERS, gather, f'0, num_edges, targets, {width}, column, {values}, out')
    closed(text, reduce, width)


def opened(text: RowText, reduce: str, width: int) -> None:
    """What ``out`` is before any edge is `gathered`."""
    text.call(width, ACTIVATION_REGISTERS, functools.partial(_opened, reduce), f'num_targets, {width}, column, out')


def closed(text: RowText, reduce: str, width: int) -> None:
    """What ``out`` is once all edges are `gathered`."""
    arguments = f'num_targets, counts, {width}, column, out'
    text.call(width, ACTIVATION_REGISTERS, functools.partial(_closed, reduce), arguments)


def _opened(reduce: str, block: Layout) -> Function:
    """``open(num_targets, width, column, out)``."""
    text = """
def open(num_targets, width, column, out):
    for v in range(num_targets):
        store_row(out, v * width + column, row_full(begun))
    return
"""
    return of_block(text, block, reduce)


def gathered(reduce: str, block: Layout) -> Function:
    """``gather(first, last, targets, width, column, values, out)``."""
    text = """
def gather(first, last, targets, width, column, values, out):
    for e in range(first, last):
        at = targets[e] * width + column
        value = load_row(values, e * width + column)
        if extreme:
            store_row(out, at, maximum(load_row(out, at), value * sign))
        else:
            store_row(out, at, load_row(out, at) + value)
    return
"""
    return of_block(text, block, reduce)


def _closed(reduce: str, block: Layout) -> Function:
    """``close(num_targets, counts, width, column, out)``."""
    text = """
def close(num_targets, counts, width, column, out):
    for v in range(num_targets):
        at = v * width + column
        if counts[v] == 0.0:
            store_row(out, at, row_full(0.0))
        elif mean:
            store_row(out, at, load_row(out, at) / counts[v])
        elif negative:
            store_row(out, at, load_row(out, at) * sign)
    return
"""
    return of_block(text, block, reduce)


def spread(reduce: str, block: Layout) -> Function:
    """``spread(first, last, num_targets, targets, counts, width, column, values, best, share, grad, out)``.

    The gradients of edges' values, before an extreme those of all. Edges that tie in a maximum share its gradient; all
    of one that is NaN get NaN.
    """
    text = """
def spread(first, last, num_targets, targets, counts, width, column, values, best, share, grad, out):
    if extreme:
        for v in range(num_targets):
            store_row(best, v * width + column, row_full(begun))
            store_row(share, v * width + column, row_full(0.0))
        for e in range(first, last):
            at = targets[e] * width + column
            store_row(best, at, maximum(load_row(best, at), load_row(values, e * width + column) * sign))
        for e in range(first, last):
            at = targets[e] * width + column
            own, ties = load_row(best, at), load_row(share, at)
            store_row(share, at, equal(load_row(values, e * width + column) * sign, own, ties + 1.0, ties))
        for v in range(num_targets):
            at = v * width + column
            store_row(share, at, load_row(grad, at) / load_row(share, at))
        for e in range(first, last):
            at = targets[e] * width + column
            own = load_row(best, at)
            none = equal(own, own, row_full(0.0), own)
            found = equal(load_row(values, e * width + column) * sign, own, load_row(share, at), none)
            store_row(out, e * width + column, found)
    else:
        for e in range(first, last):
            row = load_row(grad, targets[e] * width + column)
            if mean:
                row = row / counts[targets[e]]
            store_row(out, e * width + column, row)
    return
"""
    return of_block(text, block, reduce)


def of_block(text: str, block: Layout, reduce: str = 'sum', **scope: object) -> Function:
    """A function of a block of channels from its text, which names what a block and a reduction have."""
    is_extreme, is_smallest = reduce in EXTREMES, reduce == 'min'
    return compiled(
        text.strip(), load_row=block.load_row, store_row=block.store_row, row_full=block.row_full,
        begun=-np.inf if is_extreme else 0.0, extreme=is_extreme, negative=is_smallest, mean=reduce == 'mean',
        sign=-1.0 if is_smallest else 1.0, **scope,
    )  # fmt: skip
