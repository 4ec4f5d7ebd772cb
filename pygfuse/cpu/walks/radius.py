"""The walk of all points within a distance: some queries in the order of their cells, and the cells around each."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.choice_of_nearest import keep_nearest
from pygfuse.cpu.walks.distances import (
    add_squared_difference,
    append_lanes,
    count_bits,
    count_if_below,
    lanes_not_above,
)
from pygfuse.cpu.walks.ordered import begin_buckets, first_not_below

# queries of one part of the work
PART_QUERIES = 256
# numbers that are put in order by counting those below each; more are put in order by their bits
FEW = 96
DIGIT = 8
# those that are counted for side by side, so that no sum waits for the one before
TOGETHER = 32
# candidates beyond twice as many as are wanted that are collected before the nearest are chosen
SPARE = 128


@inlined
def _start_runs(cell, cells, columns, runs):
    """Sets the first cell of each run around a cell."""
    for c in range(len(columns)):
        runs[c] = first_not_below(cells, 0, len(cells), cell + columns[c])


@inlined
def _find_runs(cell, cells, starts, columns, width, runs, begins, ends):
    """The points of each run around a cell that has some, and the number of these.

    The first cells of runs are those of a cell that comes before it.
    """
    held = 0
    for c in range(len(columns)):
        first, lowest = runs[c], cell + columns[c]
        while first < len(cells) and cells[first] < lowest:
            first += 1
        runs[c] = first
        last = first
        while last < len(cells) and cells[last] <= lowest + width:
            last += 1
        begins[held] = starts[first]
        ends[held] = starts[last]
        held += first < last
    return held


def _lanes_within(line: Layout, known_dims: int | None) -> Callable:
    """``lanes_within``: the distances of points [place, ...) to a query, and which of those before `end` are not above
    a limit and not `own`."""
    lanes, load_line, line_full = line.channels, line.load_row, line.row_full

    @functools.partial(inlined, fuses_products=False)
    def distances(points, stride, place, queries, query_stride, query, dims):
        total = line_full(0.0)
        for d in range(dims if known_dims is None else known_dims):
            coordinate = queries[np.uint64(d * query_stride + query)]
            total = add_squared_difference(total, load_line(points, d * stride + place), coordinate)
        return total

    @inlined
    def lanes_within(points, stride, place, end, own, queries, query_stride, query, dims, limit):
        row = distances(points, stride, place, queries, query_stride, query, dims)
        bits = lanes_not_above(row, limit)
        if end - place < lanes:
            bits &= (np.uint64(1) << np.uint64(end - place)) - np.uint64(1)
        if place <= own < place + lanes:
            bits &= (np.uint64(1) << np.uint64(lanes)) - np.uint64(1) - (np.uint64(1) << np.uint64(own - place))
        return row, bits

    return lanes_within


def count_body(line: Layout, known_dims: int | None) -> Callable:
    """Counts the points within the limit of each query of a part.

    Args:
        line: A register.
        known_dims: Number of dimensions, if it is compiled for one.
    """
    lanes, lanes_within = line.channels, _lanes_within(line, known_dims)

    def count(
        part, cells, starts, columns, width, points, stride, query_cells, query_order, queries, query_stride, dims,
        limit, without_self, counts,
    ):  # fmt: skip
        first, last = part * PART_QUERIES, min((part + 1) * PART_QUERIES, len(query_cells))
        runs, begins = np.empty(len(columns), np.int64), np.empty(len(columns), np.int64)
        ends = np.empty(len(columns), np.int64)
        _start_runs(query_cells[first], cells, columns, runs)
        query = first
        while query < last:
            cell = query_cells[query]
            held = _find_runs(cell, cells, starts, columns, width, runs, begins, ends)
            while query < last and query_cells[query] == cell:
                total = 0
                for run in range(held):
                    end = ends[run]
                    for place in range(begins[run], end, lanes):
                        _, bits = lanes_within(
                            points, stride, place, end, -1, queries, query_stride, query, dims, limit
                        )
                        total += count_bits(bits)
                counts[query_order[query]] = total - without_self
                query += 1

    return count


def _put_ascending(line: Layout) -> Callable:
    """``put_ascending(found, count, spare, buckets, passes, sources, first)``: numbers that all differ, in order.

    Both `found` and `spare` have room for as many as whole lines hold.
    """
    lanes, load_line, store_line, line_full = line.channels, line.load_row, line.store_row, line.row_full

    @inlined
    def by_counting(found, count, spare, sources, first):
        for start in range(0, count, lanes):
            row, below = load_line(found, start), line_full(0.0)
            for i in range(count):
                below = count_if_below(below, row, found[np.uint64(i)])
            store_line(spare, start, below)
        for i in range(count):
            sources[np.uint64(first + np.int64(spare[np.uint64(i)]))] = np.int64(found[np.uint64(i)])

    @inlined
    def by_bits(found, count, spare, buckets, passes, sources, first):
        numbers, others = found, spare
        for digit in range(passes):
            shift = digit * DIGIT
            begin_buckets(numbers, count, shift, DIGIT, buckets)
            for i in range(count):
                bucket = (np.int64(numbers[i]) >> shift) & ((1 << DIGIT) - 1)
                others[buckets[bucket]] = numbers[i]
                buckets[bucket] += 1
            numbers, others = others, numbers
        for i in range(count):
            sources[first + i] = np.int64(numbers[i])

    @inlined
    def put_ascending(found, count, spare, buckets, passes, sources, first):
        if count <= FEW:
            by_counting(found, count, spare, sources, first)
        else:
            by_bits(found, count, spare, buckets, passes, sources, first)

    return put_ascending


def write_body(line: Layout, known_dims: int | None, limited: bool) -> Callable:
    """Writes the points within the limit of each query of a part, in the order of their numbers.

    Args:
        line: A register.
        known_dims: Number of dimensions, if it is compiled for one.
        limited: Whether a query takes only some of them, the nearest.
    """
    lanes, load_line, lanes_within = line.channels, line.load_row, _lanes_within(line, known_dims)
    put_ascending = _put_ascending(Layout(line.element, 1, TOGETHER))

    def write(
        part, cells, starts, columns, width, points, stride, numbers, query_cells, query_order, queries, query_stride,
        dims, limit, without_self, wanted, room, end_number, passes, offsets, sources, targets,
    ):  # fmt: skip
        first, last = part * PART_QUERIES, min((part + 1) * PART_QUERIES, len(query_cells))
        runs, begins = np.empty(len(columns), np.int64), np.empty(len(columns), np.int64)
        ends, buckets = np.empty(len(columns), np.int64), np.empty(1 << DIGIT, np.int64)
        found, spare = np.empty(room, np.float64), np.empty(room, np.float64)
        values = np.empty(room, np.float64) if limited else None
        _start_runs(query_cells[first], cells, columns, runs)
        query = first
        while query < last:
            cell = query_cells[query]
            held = _find_runs(cell, cells, starts, columns, width, runs, begins, ends)
            while query < last and query_cells[query] == cell:
                own = query if without_self else -1
                count, bound = 0, limit
                for run in range(held):
                    end = ends[run]
                    for place in range(begins[run], end, lanes):
                        row, bits = lanes_within(
                            points, stride, place, end, own, queries, query_stride, query, dims, bound
                        )
                        append_lanes(found, count, load_line(numbers, place), bits)
                        if limited:
                            append_lanes(values, count, row, bits)
                        count += count_bits(bits)
                        if limited and count + lanes > room:
                            bound = keep_nearest(values, found, 0, count, wanted, end_number)
                            count = wanted
                if limited and count > wanted:
                    bound = keep_nearest(values, found, 0, count, wanted, end_number)
                    count = wanted
                target = query_order[query]
                at = offsets[target]
                put_ascending(found, count, spare, buckets, passes, sources, at)
                for i in range(count):
                    targets[np.uint64(at + i)] = target
                query += 1

    return write
