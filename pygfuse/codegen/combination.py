"""What both devices do with the state of a row: the output of a whole one, and one that lies in several parts.

The functions are made over the lanes' interface: of a layout of vectors on a CPU, of a lane of a warp on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pygfuse.codegen.precision import lowest
from pygfuse.program import vocabulary


def finisher(lanes: Any, reduce: str, normalises: bool, sums: bool = True) -> Callable:
    """``finish(...)``: writes a whole row's output and what its adjoint needs.

    Args:
        lanes: The device's instructions.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        normalises: Whether the weights are a softmax whose statistics are found here.
        sums: Whether there is an output.
    """
    extreme, smallest, mean = reduce in ('max', 'min'), reduce == 'min', reduce == 'mean'
    put_heads, put_row, row_full, equal = lanes.put_heads, lanes.put_row, lanes.row_full, vocabulary.equal

    @lanes.inlined
    def finish(v, head, channel, total_heads, width, degree, result, ties, top, total, results):
        if extreme:
            if degree == 0:
                result = row_full(0.0)
            # torch counts the zero that a row begins with among the ties, although it takes no part
            put_row(results.statistics, v * width + channel, equal(result, 0.0, ties + 1.0, ties))
            if smallest:
                result = -result
        if normalises:
            # of a row without edges too, of which the adjoint may load them
            put_heads(results.statistics, 2 * v * total_heads + head, top)
            put_heads(results.statistics, (2 * v + 1) * total_heads + head, 1.0 / total)
        if degree > 0:
            if normalises:
                result = result * (1.0 / total)
            if mean:
                result = result / degree
        if sums:
            put_row(results.out, v * width + channel, result)

    return finish


def writers(lanes: Any) -> tuple[Callable, Callable]:
    """``write(v, slot, is_whole, first, width, values, whole, partial)`` for values of heads, and for rows.

    Of a row that is not whole in its part, they are left in the part's slot.
    """

    def made(put: Callable) -> Callable:
        @lanes.inlined
        def write(v, slot, is_whole, first, width, values, whole, partial):
            if is_whole:
                put(whole, v * width + first, values)
            else:
                put(partial, slot * width + first, values)

        return write

    return made(lanes.put_heads), made(lanes.put_row)


def leaver(lanes: Any, reduce: str, normalises: bool) -> Callable:
    """``leave(slot, ...)``: leaves the state of a row, or of some edges of it, in a slot.

    Args:
        lanes, reduce, normalises: As for `finisher`.
    """
    extreme, put_heads, put_row = reduce in ('max', 'min'), lanes.put_heads, lanes.put_row

    @lanes.inlined
    def leave(slot, head, channel, total_heads, width, result, ties, top, total, partial):
        put_row(partial.partial_rows, slot * width + channel, result)
        if extreme:
            put_row(partial.partial_tops, slot * width + channel, ties)
        if normalises:
            put_heads(partial.partial_tops, slot * total_heads + head, top)
            put_heads(partial.partial_totals, slot * total_heads + head, total)

    return leave


def resumer(lanes: Any, element: str, reduce: str, normalises: bool) -> Callable:
    """``resume(slot, ...)``: the state of a row that was left in a slot: its result, ties, top and total.

    Args:
        lanes: The device's instructions.
        element: The type of arithmetic.
        reduce, normalises: As for `finisher`.
    """
    extreme, least = reduce in ('max', 'min'), lowest(element)
    load_heads, load_row, heads_full, row_full = lanes.load_heads, lanes.load_row, lanes.heads_full, lanes.row_full

    @lanes.inlined
    def resume(slot, head, channel, total_heads, width, partial):
        top, total, ties = heads_full(least), heads_full(0.0), row_full(0.0)
        result = load_row(partial.partial_rows, slot * width + channel)
        if extreme:
            ties = load_row(partial.partial_tops, slot * width + channel)
        if normalises:
            top = load_heads(partial.partial_tops, slot * total_heads + head)
            total = load_heads(partial.partial_totals, slot * total_heads + head)
        return result, ties, top, total

    return resume


def folder(lanes: Any, element: str, reduce: str, normalises: bool) -> Callable:
    """``fold(split, ...)``: the state of a row, or of some edges of it, from what was left in slots, in their order.

    Args:
        lanes: The device's instructions.
        element: The type of arithmetic.
        reduce, normalises: As for `finisher`.
    """
    extreme, least, place_at = reduce in ('max', 'min'), lowest(element), lanes.place_at
    load_heads, load_row, heads_full, row_full = lanes.load_heads, lanes.load_row, lanes.heads_full, lanes.row_full
    exp, maximum, equal = vocabulary.exp, vocabulary.maximum, vocabulary.equal

    @lanes.inlined
    def fold(split, head, channel, left, total_heads, width, partial):
        top, total, result, ties = heads_full(least), heads_full(0.0), row_full(0.0), row_full(0.0)
        if extreme:
            result = row_full(-np.inf)
        for k in range(place_at(left.split_indptr, split), place_at(left.split_indptr, split + 1)):
            slot = place_at(left.slots, k)
            found = load_row(partial.partial_rows, slot * width + channel)
            if extreme:
                best = maximum(found, result)
                theirs = equal(found, best, load_row(partial.partial_tops, slot * width + channel), 0.0)
                result, ties = best, equal(result, best, ties, 0.0) + theirs
            elif normalises:
                their_top = load_heads(partial.partial_tops, slot * total_heads + head)
                raised = maximum(top, their_top)
                mine, theirs = exp(top - raised), exp(their_top - raised)
                result, top = result * mine + found * theirs, raised
                total = total * mine + load_heads(partial.partial_totals, slot * total_heads + head) * theirs
            else:
                result = result + found
        return result, ties, top, total

    return fold


def combiner(lanes: Any, element: str, reduce: str, normalises: bool, sums: bool = True) -> Callable:
    """``combine_row(split, ...)``: finishes a row from what its parts left, in the order of edges.

    Args:
        lanes: The device's instructions.
        element: The type of arithmetic.
        reduce, normalises, sums: As for `finisher`.
    """
    fold, finish, place_at = (
        folder(lanes, element, reduce, normalises), finisher(lanes, reduce, normalises, sums), lanes.place_at,
    )  # fmt: skip

    @lanes.inlined
    def combine_row(split, head, channel, left, indptr, total_heads, width, partial, results):
        v = place_at(left.split_rows, split)
        result, ties, top, total = fold(split, head, channel, left, total_heads, width, partial)
        degree = place_at(indptr, v + 1) - place_at(indptr, v)
        finish(v, head, channel, total_heads, width, degree, result, ties, top, total, results)

    return combine_row
