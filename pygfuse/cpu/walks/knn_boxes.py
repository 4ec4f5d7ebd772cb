"""The walk of nearest neighbours among boxes: some queries close together, and the panels that may hold what is nearer
than the nearest so far."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numba import types

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.choice_of_nearest import keep_nearest
from pygfuse.cpu.walks.distances import (
    add_squared_difference,
    append_lanes,
    count_bits,
    lanes_not_above,
    lowest_bit,
)
from pygfuse.program.vocabulary import maximum

INFINITY = float('inf')


# as the distances of the points in a box are computed, none of which is then less
@functools.partial(inlined, fuses_products=False)
def _gap(low, high, other_low, other_high):
    """How far two intervals lie apart, squared."""
    gap = low - other_high
    if gap < other_low - high:
        gap = other_low - high
    if gap < 0.0:
        gap = 0.0
    return gap * gap


@functools.partial(inlined, fuses_products=False)
def _distance(lows, highs, box, other_lows, other_highs, other, dims):
    """The squared distance between two boxes."""
    box, other = box * dims, other * dims
    total = _gap(lows[box], highs[box], other_lows[other], other_highs[other])
    for d in range(1, dims):
        total += _gap(lows[box + d], highs[box + d], other_lows[other + d], other_highs[other + d])
    return total


@inlined
def _nearest_box(lows, highs, first, last, other_lows, other_highs, other, dims):
    """The box of [first, last) that is nearest to another."""
    nearest, least = first, INFINITY
    for box in range(first, last):
        distance = float(_distance(lows, highs, box, other_lows, other_highs, other, dims))
        if distance < least:
            nearest = box
            least = distance
    return nearest


@inlined
def _put_in_order(values, numbers, base, count, neighbours, first):
    """Puts numbers in the order of their values, of equal ones in their own."""
    for i in range(base, base + count):
        value, number = values[i], numbers[i]
        ahead = 0
        for j in range(base, base + count):
            ahead += (values[j] < value) | ((values[j] == value) & (numbers[j] < number))
        neighbours[first + ahead] = np.int64(number)


def nearest_in_boxes_body(panel: Layout, numbers_of_panel: Layout, queries_of_block: Layout, group: int) -> Callable:
    """The search of one block of queries in one cloud.

    Args:
        panel: The points of a panel.
        numbers_of_panel: Their numbers.
        queries_of_block: The queries of a block.
        group: Panels of a group.
    """
    width, block = panel.channels, queries_of_block.channels
    load_points, points_full, load_numbers = panel.load_row, panel.row_full, numbers_of_panel.load_row
    load_queries, queries_full = queries_of_block.load_row, queries_of_block.row_full
    element = np.float32 if panel.element == types.float32 else np.float64

    @functools.partial(inlined, fuses_products=False)
    def distances_to_points(points, number, queries, query, dims):
        total = points_full(0.0)
        for d in range(dims):
            row = load_points(points, (number * dims + d) * width)
            total = add_squared_difference(total, row, queries[np.uint64(query + d * block)])
        return total

    @functools.partial(inlined, fuses_products=False)
    def distances_to_box(lows, highs, number, queries, first_query, dims):
        total = queries_full(0.0)
        for d in range(dims):
            row = load_queries(queries, first_query + d * block)
            low, high = lows[np.uint64(number * dims + d)], highs[np.uint64(number * dims + d)]
            gap = maximum(maximum(queries_full(low) - row, row - queries_full(high)), queries_full(0.0))
            total = total + gap * gap
        return total

    @inlined
    def choose(values, found, counts, bounds, own, length, room, end):
        """Keeps the nearest of a query's candidates, if there are more than it takes."""
        if counts[own] > length:
            bounds[own] = keep_nearest(values, found, own * room, counts[own], length, end)
            counts[own] = length

    @inlined
    def widest_of(bounds):
        widest = -1.0
        for own in range(block):
            if bounds[own] > widest:
                widest = float(bounds[own])
        return widest

    @inlined
    def visit(
        number, points, numbers, count, lows, highs, queries, part, dims, without_self, length, room, end, values,
        found, counts, bounds,
    ):  # fmt: skip
        """Takes the points of a panel that are near enough to each query."""
        first_query, begin = part * block * dims, number * width
        away = distances_to_box(lows, highs, number, queries, first_query, dims)
        near = lanes_not_above(away, load_queries(bounds, 0))
        while near != np.uint64(0):
            own = lowest_bit(near)
            near &= near - np.uint64(1)
            row = distances_to_points(points, number, queries, first_query + own, dims)
            bits = lanes_not_above(row, bounds[own])
            if count - begin < width:
                bits &= (np.uint64(1) << np.uint64(count - begin)) - np.uint64(1)
            if without_self:
                query = part * block + own
                if begin <= query < begin + width:
                    itself = np.uint64(1) << np.uint64(query - begin)
                    bits = (bits | itself) ^ itself
            if bits != np.uint64(0):
                place = own * room + counts[own]
                append_lanes(values, place, row, bits)
                append_lanes(found, place, load_numbers(numbers, begin), bits)
                counts[own] += count_bits(bits)
                if counts[own] + 2 * width > room:
                    choose(values, found, counts, bounds, own, length, room, end)

    def nearest(
        part, points, numbers, count, lows, highs, group_lows, group_highs, queries, query_order, block_lows,
        block_highs, dims, without_self, length, room, end, neighbours, targets,
    ):  # fmt: skip
        held = min(block, len(query_order) - part * block)
        panels, groups = len(lows) // dims, len(group_lows) // dims
        values, found = np.empty(block * room, element), np.empty(block * room, np.float64)
        counts, bounds = np.empty(block, np.int64), np.empty(block, element)
        for own in range(block):
            counts[own] = 0
            bounds[own] = INFINITY if own < held else -1.0
        near = _nearest_box(group_lows, group_highs, 0, groups, block_lows, block_highs, part, dims)
        begin, stop = near * group, min((near + 1) * group, panels)
        start = _nearest_box(lows, highs, begin, stop, block_lows, block_highs, part, dims)
        widest = INFINITY
        for step in range(-2, groups):
            # first the nearest panel, then its group, then all others
            low, high, but = step * group, min((step + 1) * group, panels), -1
            if step == -2:
                low, high = start, start + 1
            elif step == -1:
                low, high, but = begin, stop, start
            elif step == near or _distance(group_lows, group_highs, step, block_lows, block_highs, part, dims) > widest:
                continue
            for number in range(low, high):
                if number != but and _distance(lows, highs, number, block_lows, block_highs, part, dims) <= widest:
                    visit(
                        number, points, numbers, count, lows, highs, queries, part, dims, without_self, length, room,
                        end, values, found, counts, bounds,
                    )  # fmt: skip
            if step < 0:
                for own in range(held):
                    choose(values, found, counts, bounds, own, length, room, end)
            widest = widest_of(bounds)
        for own in range(held):
            choose(values, found, counts, bounds, own, length, room, end)
            query = query_order[part * block + own]
            place = query * length
            _put_in_order(values, found, own * room, length, neighbours, place)
            for i in range(length):
                targets[place + i] = query

    return nearest
