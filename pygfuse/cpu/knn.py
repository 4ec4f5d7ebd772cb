"""k nearest neighbours on a CPU: brute force in tiles, with a running list of the nearest.

Squared distances are sums of squared differences from the first dimension to the last, each operation rounded to the
points' type and none fused with another; of equal distances the lower number comes first. The result is thus a matter
of definition: the same on every processor and for any number of threads. What is no number counts as infinity.

Points are packed in panels: the lanes of a register hold points, not dimensions, so that the order of the sum costs
nothing. A part of the work is a block of queries. For each chunk of its cloud it takes the distances of four queries,
panel by panel, onto the stack, and then lets each query choose: a bound from above for its k-th distance leaves few
candidates, which are put in order by counting, for each, those ahead of it: no list is shifted and no branch guessed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from pygfuse.codegen import llvm
from pygfuse.cpu import simd
from pygfuse.cpu.inlining import inlined
from pygfuse.cpu.kernel import ELEMENT_TYPES, Kernel
from pygfuse.cpu.layout import INT64, Layout
from pygfuse.cpu.simd import ChannelRow

# queries whose distances to a panel are in registers together, and those of one part of the work
GROUP = 4
PART_QUERIES = 32
# a chunk's distances to a group of queries lie on the stack, its points in the second-level cache
TILE_BYTES = 1 << 14
CHUNK_BYTES = 1 << 18
# candidates beyond twice the length of a list that are collected before they are put in order
SPARE = 128
INFINITY = float('inf')


def lanes_of(dtype: torch.dtype) -> int:
    """Values of a register."""
    return simd.register_bytes() // dtype.itemsize


def panel_width(dtype: torch.dtype) -> int:
    """Points of a panel: as many as fill the registers with sums for `GROUP` queries."""
    # AVX-512 has 32 registers, the others 16
    return (4 if simd.register_bytes() == 64 else 2) * lanes_of(dtype)


@intrinsic
def add_squared_difference(typingctx, total, row, value):
    """``total + (row - value)^2``, lane by lane, each operation rounded."""

    def emit(context, builder, signature, arguments):
        kind = signature.return_type
        totals, rows = (simd.unpack(builder, kind, argument) for argument in arguments[:2])
        value = simd.splat(builder, arguments[2], kind.lanes)
        sums = []
        for total, row in zip(totals, rows, strict=True):
            difference = builder.fsub(row, value)
            sums.append(builder.fadd(total, builder.fmul(difference, difference)))
        return simd.pack(builder, context, kind, sums)

    return total(total, row, total.element), emit


@intrinsic
def lanes_not_above(typingctx, row, limit):
    """A number whose bit i tells whether lane i of the row is not above the limit; what is no number is not."""

    def emit(context, builder, signature, arguments):
        kind: ChannelRow = signature.args[0]
        limit = simd.splat(builder, arguments[1], kind.lanes)
        found = ir.Constant(INT64, 0)
        for block, vector in zip(kind.blocks, simd.unpack(builder, kind, arguments[0]), strict=True):
            bits = builder.bitcast(builder.fcmp_unordered('<=', vector, limit), ir.IntType(kind.lanes))
            shifted = builder.shl(builder.zext(bits, INT64), ir.Constant(INT64, block.start))
            found = builder.or_(found, shifted)
        return found

    return types.uint64(row, row.element), emit


@intrinsic
def lowest_bit(typingctx, bits):
    """The position of the lowest bit that is set; there must be one."""

    def emit(context, builder, signature, arguments):
        kind = ir.FunctionType(INT64, [INT64, ir.IntType(1)])
        name = 'llvm.cttz.i64'
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, [arguments[0], ir.Constant(ir.IntType(1), 1)])

    return types.int64(types.uint64), emit


@intrinsic
def smaller(typingctx, x, y):
    """The smaller value of two registers, lane by lane; `x` where `y` is no number."""

    def emit(context, builder, signature, arguments):
        kind = signature.return_type
        ((x,), (y,)) = (simd.unpack(builder, kind, argument) for argument in arguments)
        return simd.pack(builder, context, kind, [builder.select(builder.fcmp_ordered('<', y, x), y, x)])

    return x(x, y), emit


@intrinsic
def count_if_ahead(typingctx, counts, row, first, value, position):
    """`counts`, and one more in the lanes of a register `row` that `value` is ahead of.

    Lane i has the position ``first + i``; of equal values the one with the lower position is ahead.
    """

    def emit(context, builder, signature, arguments):
        kind = signature.return_type
        ((counts,), (row,)) = (simd.unpack(builder, kind, argument) for argument in arguments[:2])
        first, value, position = arguments[2:]
        value = simd.splat(builder, value, kind.lanes)
        lanes = ir.Constant(ir.VectorType(llvm.INT32, kind.lanes), list(range(kind.lanes)))
        lane = builder.trunc(builder.sub(position, first), llvm.INT32)
        behind = builder.icmp_signed('>', lanes, simd.splat(builder, lane, kind.lanes))
        tied = builder.and_(builder.fcmp_ordered('==', value, row), behind)
        ahead = builder.or_(builder.fcmp_ordered('<', value, row), tied)
        one, zero = simd.constant(row.type, 1.0), simd.constant(row.type, 0.0)
        return simd.pack(builder, context, kind, [builder.fadd(counts, builder.select(ahead, one, zero))])

    return counts(counts, row, types.int64, counts.element, types.int64), emit


def _room(element: types.Float, length: int) -> Callable:
    """``room()``: that many values on the stack."""

    @intrinsic
    def room(typingctx):
        def emit(context, builder, signature, arguments):
            kind = simd.llvm_element(element)
            with builder.goto_entry_block():
                found = builder.alloca(ir.ArrayType(kind, length))
                found.align = 64
            return builder.bitcast(found, kind.as_pointer())

        return types.CPointer(element)(), emit

    return room


def _distances(layout: Layout, stride: int) -> Callable:
    """``distances(points, panel, y, first, last, dims, tile, place)``: of at most four queries to a panel.

    The queries are [first, last], the last one again where there are fewer than four; the distances of query i go to
    ``tile[i * stride + place:]``.
    """
    width = layout.channels
    load_row, store_row, row_zeros = layout.load_row, layout.store_row, layout.row_zeros

    # a caller's fast mathematics would be inherited, and fuse operations
    @functools.partial(inlined, fastmath=False)
    def distances(points, panel, y, first, last, dims, tile, place):
        q0, q1, q2, q3 = first * dims, min(first + 1, last) * dims, min(first + 2, last) * dims, last * dims
        d0, d1, d2, d3 = row_zeros(), row_zeros(), row_zeros(), row_zeros()
        for d in range(dims):
            row = load_row(points, panel + d * width)
            d0 = add_squared_difference(d0, row, y[np.uint64(q0 + d)])
            d1 = add_squared_difference(d1, row, y[np.uint64(q1 + d)])
            d2 = add_squared_difference(d2, row, y[np.uint64(q2 + d)])
            d3 = add_squared_difference(d3, row, y[np.uint64(q3 + d)])
        store_row(tile, place, d0)
        store_row(tile, stride + place, d1)
        store_row(tile, 2 * stride + place, d2)
        store_row(tile, 3 * stride + place, d3)

    return distances


def _rank(line: Layout) -> Callable:
    """``rank(values, base, count, ranks)``: for each value the number of those ahead of it, as the values' type."""
    lanes, load_line, store_line, line_zeros = line.channels, line.load_row, line.store_row, line.row_zeros

    @inlined
    def rank(values, base, count, ranks):
        for first in range(0, count, lanes):
            row, counts = load_line(values, base + first), line_zeros()
            for i in range(count):
                counts = count_if_ahead(counts, row, first, values[np.uint64(base + i)], i)
            store_line(ranks, base + first, counts)

    return rank


def _bound(line: Layout, rank: Callable) -> Callable:
    """``bound(tile, begin, end, wanted, values, base, ranks)``: at least `wanted` of tile[begin:end] are not above it.

    Registers are dealt out to as many groups as it takes to have somewhat more lanes than `wanted`. Each lane's least
    value stands for the lane: the bound is the `wanted`-th of these.
    """
    lanes, load_line, store_line, line_zeros = line.channels, line.load_row, line.store_row, line.row_zeros

    @inlined
    def bound(tile, begin, end, wanted, values, base, ranks):
        groups = 4 * wanted // (3 * lanes) + 1
        registers = (end - begin) // lanes
        if registers < 2 * groups:
            return INFINITY
        for group in range(groups):
            store_line(values, base + group * lanes, line_zeros() + INFINITY)
        group = 0
        for register in range(registers):
            place = base + group * lanes
            least = smaller(load_line(values, place), load_line(tile, begin + register * lanes))
            store_line(values, place, least)
            group = group + 1 if group + 1 < groups else 0
        rank(values, base, groups * lanes, ranks)
        for i in range(base, base + groups * lanes):
            if ranks[np.uint64(i)] == wanted - 1:
                return values[np.uint64(i)]
        return INFINITY

    return bound


def _nearest_body(layout: Layout, line: Layout, stride: int) -> Callable:
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
    room, distances_of, rank = _room(layout.element, GROUP * stride), _distances(layout, stride), _rank(line)
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
        tile, tile_begin, low, high, start, own, held, length, first, distances, neighbours,
        values, numbers, ranks, base, capacity,
    ):  # fmt: skip
        """Takes the points of a chunk's places [low, high), but for `own`, into a list that holds `held` so far."""
        take_list(first, held, distances, neighbours, values, numbers, base)
        if held == length:
            limit = distances[np.uint64(first + length - 1)]
        else:
            # the query itself is among those that the bound counts
            limit = bound(tile, tile_begin + low, tile_begin + high, length + (own >= 0), values, base, ranks)
            take_list(first, held, distances, neighbours, values, numbers, base)
        count = held
        for panel in range(low - low % width, high, width):
            bits = lanes_not_above(load_row(tile, tile_begin + panel), limit)
            if panel < low:
                bits = bits >> np.uint64(low - panel) << np.uint64(low - panel)
            if panel + width > high:
                bits &= (np.uint64(1) << np.uint64(high - panel)) - np.uint64(1)
            while bits != np.uint64(0):
                place = panel + lowest_bit(bits)
                bits &= bits - np.uint64(1)
                distance = tile[tile_begin + place]
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
        tile = room()
        for start in range(begin - begin % width, end, chunk):
            stop = min(start + chunk, end)
            low, high = max(begin - start, 0), stop - start
            for query in range(first_query, last_query, GROUP):
                last = min(query + GROUP, last_query) - 1
                for panel in range(start, stop, width):
                    distances_of(points, panel * dims, y, query, last, dims, tile, panel - start)
                for i in range(last + 1 - query):
                    own, seen = -1, start + low - begin
                    if without_self:
                        own = query + i - start
                        seen -= begin <= query + i < start + low
                    choose(
                        tile, i * stride, low, high, start, own, min(seen, length), length,
                        lists + (query + i - first_query) * length, distances, neighbours,
                        values, numbers, ranks, part * capacity, capacity,
                    )  # fmt: skip
        for query in range(first_query, last_query):
            for i in range(length):
                queries[np.uint64(lists + (query - first_query) * length + i)] = query

    return nearest


def chunk_limit(dtype: torch.dtype) -> int:
    """Points of a chunk at most: as many as the stack's tile has room for."""
    return TILE_BYTES // (GROUP * dtype.itemsize)


@functools.cache
def _nearest_kernel(dtype: torch.dtype) -> Kernel:
    element = ELEMENT_TYPES[dtype]
    layout, line = Layout(element, 1, panel_width(dtype)), Layout(element, 1, lanes_of(dtype))
    constants = (repr((layout.row, line.row)),)
    return Kernel(_nearest_body(layout, line, chunk_limit(dtype)), f'nearest neighbours, {element}', constants)


def pack(x: Tensor) -> Tensor:
    """Points ``[points, dims]`` in panels ``[panels, dims, points of a panel]``, the last filled with zeros."""
    width = panel_width(x.dtype)
    points, dims = x.shape
    panels = -(-points // width)
    packed = x.new_empty(panels, dims, width)
    whole = points // width
    packed[:whole] = x[: whole * width].view(whole, width, dims).transpose(1, 2)
    if whole < panels:
        packed[whole] = 0
        packed[whole, :, : points - whole * width] = x[whole * width :].t()
    return packed


def _blocks(ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor) -> tuple[Tensor, int]:
    """The blocks of queries as `_nearest_body` reads them, and the length of all lists together."""
    queries = ptr_y.diff()
    lists = torch.cat([queries.new_zeros(1), (queries * lengths).cumsum(0)])
    counts = torch.where(lengths > 0, -(-queries // PART_QUERIES), 0)
    cloud = torch.arange(len(counts)).repeat_interleave(counts)
    number = torch.arange(len(cloud)) - (counts.cumsum(0) - counts)[cloud]
    first = ptr_y[cloud] + number * PART_QUERIES
    last = torch.minimum(first + PART_QUERIES, ptr_y[cloud + 1])
    place = lists[cloud] + (first - ptr_y[cloud]) * lengths[cloud]
    return torch.stack([first, last, ptr_x[cloud], ptr_x[cloud + 1], lengths[cloud], place], dim=1), int(lists[-1])


def nearest(
    x: Tensor, y: Tensor, ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor, without_self: bool, queries_first: bool
) -> Tensor:
    """The nearest points of each query, query by query, from near to far.

    Args:
        x: The points, ``[N, F]``, float32 or float64, contiguous.
        y: The queries, ``[M, F]``, of the same type.
        ptr_x: Where each cloud's points begin, and the end, ``[clouds + 1]``, int64.
        ptr_y: Where each cloud's queries begin, and the end.
        lengths: How many neighbours a query of each cloud gets, ``[clouds]``, int64: at most as many as there are.
        without_self: Whether point i is no neighbour of query i.
        queries_first: Which row of the result holds the queries.

    Returns:
        ``[2, sum of the lists' lengths]``, int64: queries and neighbours.
    """
    blocks, total = _blocks(ptr_x, ptr_y, lengths)
    pair = torch.empty(2, total, dtype=torch.int64)
    if total == 0:
        return pair
    queries, neighbours = (pair[0], pair[1]) if queries_first else (pair[1], pair[0])
    dims, width = x.shape[1], panel_width(x.dtype)
    panels = CHUNK_BYTES // (max(dims, 1) * width * x.itemsize)
    chunk = min(max(panels, 1) * width, chunk_limit(x.dtype))
    lanes = lanes_of(x.dtype)
    capacity = -(-(2 * int(lengths.max()) + SPARE) // lanes) * lanes
    room = len(blocks) * capacity
    _nearest_kernel(x.dtype)(
        len(blocks),
        *(blocks, pack(x), y, dims, chunk, int(without_self), capacity),
        *(x.new_empty(room), pair.new_empty(room), x.new_empty(room)),
        *(x.new_empty(total), neighbours, queries),
    )
    return pair
