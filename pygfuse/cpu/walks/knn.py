"""The walk of nearest neighbours: one block of queries, and the points of its cloud chunk by chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import room_for
from pygfuse.cpu.walks.distances import add_squared_difference, count_if_ahead, lanes_not_above, lowest_bit, smaller

# queries whose distances to a panel are in registers together
QUERIES_TOGETHER = 4
INFINITY = float('inf')


def _distances(layout: Layout, stride: int) -> Callable:
    """``distances(points, panel, y, first, last, dims, buffer, place)``: of at most four queries to a panel.

    The queries are [first, last], the last one again where there are fewer than four; the distances of query i go to
    ``buffer[i * stride + place:]``.
    """
    width = layout.channels
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full

    @functools.partial(inlined, fuses_products=False)
    def distances(points, panel, y, first, last, dims, buffer, place):
        q0, q1, q2, q3 = first * dims, min(first + 1, last) * dims, min(first + 2, last) * dims, last * dims
        d0, d1, d2, d3 = row_full(0.0), row_full(0.0), row_full(0.0), row_full(0.0)
        for d in range(dims):
            row = load_row(points, panel + d * width)
            d0 = add_squared_difference(d0, row, y[np.uint64(q0 + d)])
            d1 = add_squared_difference(d1, row, y[np.uint64(q1 + d)])
            d2 = add_squared_difference(d2, row, y[np.uint64(q2 + d)])
            d3 = add_squared_difference(d3, row, y[np.uint64(q3 + d)])
        store_row(buffer, place, d0)
        store_row(buffer, stride + place, d1)
        store_row(buffer, 2 * stride + place, d2)
        store_row(buffer, 3 * stride + place, d3)

    return distances


def _rank(line: Layout) -> Callable:
    """``rank(values, base, count, ranks)``: for each value the number of those ahead of it, as the values' type."""
    lanes, load_line, store_line, line_full = line.channels, line.load_row, line.store_row, line.row_full

    @inlined
    def rank(values, base, count, ranks):
        for first in range(0, count, lanes):
            row, counts = load_line(values, base + first), line_full(0.0)
            for i in range(count):
                counts = count_if_ahead(counts, row, first, values[np.uint64(base + i)], i)
            store_line(ranks, base + first, counts)

    return rank


def _bound(line: Layout, rank: Callable) -> Callable:
    """``bound(buffer, begin, end, wanted, values, base, ranks)``: at least `wanted` of them are not above it.

    Registers are dealt out to as many buckets as it takes to have somewhat more lanes than `wanted`. Each lane's least
    value stands for the lane: the bound is the `wanted`-th of these.
    """
    lanes, load_line, store_line, line_full = line.channels, line.load_row, line.store_row, line.row_full

    @inlined
    def bound(buffer, begin, end, wanted, values, base, ranks):
        buckets = 4 * wanted // (3 * lanes) + 1
        registers = (end - begin) // lanes
        if registers < 2 * buckets:
            return INFINITY
        for bucket in range(buckets):
            store_line(values, base + bucket * lanes, line_full(0.0) + INFINITY)
        bucket = 0
        for register in range(registers):
            place = base + bucket * lanes
            least = smaller(load_line(values, place), load_line(buffer, begin + register * lanes))
            store_line(values, place, least)
            bucket = bucket + 1 if bucket + 1 < buckets else 0
        rank(values, base, buckets * lanes, ranks)
        for i in range(base, base + buckets * lanes):
            if ranks[np.uint64(i)] == wanted - 1:
                return values[np.uint64(i)]
        return INFINITY

    return bound


def nearest_body(layout: Layout, line: Layout, stride: int) -> Callable:
    """The search of one block of queries in its cloud.

    Its row of `blocks` holds the first query and the one behind the last, the first point and the one behind the last,
    the length of a list and where the first query's list begins. The lists are kept in the output.

    Args:
        layout: A panel.
        line: A register.
        stride: Points of a chunk at most.
    """
    width = layout.channels
    load_row = layout.load_row
    room, distances_of, rank = (
        room_for(layout.element, QUERIES_TOGETHER * stride),
        _distances(layout, stride),
        _rank(line),
    )
    bound = _bound(line, rank)

    @inlined
    def put_in_order(values, numbers, base, count, ranks, first, length, distances, neighbours):
        """Makes the list at `first` of the candidates, whose numbers ascend where values are equal."""
        rank(values, base, count, ranks)
        for i in range(base, base + count):
            place = np.int64(ranks[np.uint64(i)])
            if place < length:
                distances[np.uint64(first + place)] = values[np.uint64(i)]
                neighbours[np.uint64(first + place)] = numbers[np.uint64(i)]

    @inlined
    def take_list(first, held, distances, neighbours, values, numbers, base):
        """Makes the list at `first` the candidates."""
        for i in range(held):
            values[np.uint64(base + i)] = distances[np.uint64(first + i)]
            numbers[np.uint64(base + i)] = neighbours[np.uint64(first + i)]

    @inlined
    def choose(
        buffer, offset, low, high, start, own, held, length, first, distances, neighbours,
        values, numbers, ranks, base, capacity,
    ):  # fmt: skip
        """Takes the points of a chunk's places [low, high), but for `own`, into a list that holds `held` so far."""
        take_list(first, held, distances, neighbours, values, numbers, base)
        if held == length:
            limit = distances[np.uint64(first + length - 1)]
        else:
            # the query itself is among those that the bound counts
            limit = bound(buffer, offset + low, offset + high, length + (own >= 0), values, base, ranks)
            take_list(first, held, distances, neighbours, values, numbers, base)
        count = held
        for panel in range(low - low % width, high, width):
            bits = lanes_not_above(load_row(buffer, offset + panel), limit)
            if panel < low:
                bits = bits >> np.uint64(low - panel) << np.uint64(low - panel)
            if panel + width > high:
                bits &= (np.uint64(1) << np.uint64(high - panel)) - np.uint64(1)
            while bits != np.uint64(0):
                place = panel + lowest_bit(bits)
                bits &= bits - np.uint64(1)
                distance = buffer[offset + place]
                if not distance < INFINITY:
                    distance = INFINITY
                # a full list's numbers are lower than those to come
                if place != own and (held < length or distance < limit):
                    values[np.uint64(base + count)] = distance
                    numbers[np.uint64(base + count)] = start + place
                    count += 1
                    if count == capacity:
                        put_in_order(values, numbers, base, count, ranks, first, length, distances, neighbours)
                        held = count = length
                        take_list(first, held, distances, neighbours, values, numbers, base)
                        limit = distances[np.uint64(first + length - 1)]
        put_in_order(values, numbers, base, count, ranks, first, length, distances, neighbours)

    def nearest(
        part, blocks, points, y, dims, chunk, without_self, capacity, values, numbers, ranks, distances, neighbours,
        queries,
    ):  # fmt: skip
        first_query, last_query = blocks[6 * part], blocks[6 * part + 1]
        begin, end = blocks[6 * part + 2], blocks[6 * part + 3]
        length, lists = blocks[6 * part + 4], blocks[6 * part + 5]
        buffer = room()
        for start in range(begin - begin % width, end, chunk):
            stop = min(start + chunk, end)
            low, high = max(begin - start, 0), stop - start
            for query in range(first_query, last_query, QUERIES_TOGETHER):
                last = min(query + QUERIES_TOGETHER, last_query) - 1
                for panel in range(start, stop, width):
                    distances_of(points, panel * dims, y, query, last, dims, buffer, panel - start)
                for i in range(last + 1 - query):
                    own, seen = -1, start + low - begin
                    if without_self:
                        own = query + i - start
                        seen -= begin <= query + i < start + low
                    choose(
                        buffer, i * stride, low, high, start, own, min(seen, length), length,
                        lists + (query + i - first_query) * length, distances, neighbours,
                        values, numbers, ranks, part * capacity, capacity,
                    )  # fmt: skip
        for query in range(first_query, last_query):
            for i in range(length):
                queries[np.uint64(lists + (query - first_query) * length + i)] = query

    return nearest
