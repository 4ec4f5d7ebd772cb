"""How the values of heads and channels lie in memory, and the loads, stores and reductions of them.

A `Layout` fixes element type, heads and channels; its attributes are Numba intrinsics to be used in kernel bodies.
Memory is row-major and contiguous: a heads operand is ``[rows, heads]``, a channels operand ``[rows, heads *
channels]``. `step` edges are worked on side by side where only heads are concerned (see `HeadVector`).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu.vectors import (
    elementwise,  # noqa: F401  gives vectors their operators
    memory,
    simd,
)
from pygfuse.cpu.vectors.channel_sums import length_in_one, sum_into_one, sum_of_edges, sum_over_channels
from pygfuse.cpu.vectors.edge_vectors import EdgeVectors, beyond
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.packs import like, loads_of, map_items, stores_of
from pygfuse.cpu.vectors.simd import ChannelRow, HeadVector


class Layout(EdgeVectors):
    """Intrinsics on rows of `heads` x `channels` values of type `element`; `step` edges side by side.

    Args:
        element: ``numba.types.float32`` or ``float64``.
        heads: Number of heads held at once.
        channels: Channels of each head held at once.
        edge_limit: The most edges side by side, a power of two; by default as many as fill a register.
        edge_least: The least number of them, where a register holds more than one; a power of two.
    """

    def __init__(
        self, element: types.Float, heads: int, channels: int, edge_limit: int | None = None, edge_least: int = 1
    ) -> None:
        lanes = simd.register_bytes() // memory.alignment(element)
        self.element, self.heads, self.channels = element, heads, channels
        step = 1 << max(0, (lanes // heads).bit_length() - 1)
        step = max(step, edge_least) if step > 1 else step
        self.step = step if edge_limit is None else min(step, edge_limit)
        self.row = ChannelRow(element, heads, channels)
        self.head = HeadVector(element, 1, heads)
        self.edges = HeadVector(element, self.step, heads)

    # Rows of channels

    @functools.cached_property
    def row_full(self):
        """``row_full(value)``: the same number for every channel."""
        return _full(self.row)

    @functools.cached_property
    def load_row(self):
        """``load_row(memory, offset)``: the row whose first value is element `offset`; of a tuple, the tuple."""
        return loads_of(self.row, functools.partial(memory.load_row, self.row))

    @functools.cached_property
    def store_row(self):
        """``store_row(memory, offset, row)``; of tuples of memories and rows, each."""
        return stores_of(self.row, memory.store_row)

    @functools.cached_property
    def fetch_row(self):
        """``fetch_row(memory, offset)``: asks for the row whose first value is element `offset`; of a tuple, each."""
        return self._fetch(self.row.heads * self.row.channels)

    @functools.cached_property
    def fetch_heads(self):
        """``fetch_heads(memory, offset)``: as `fetch_row`, for a value of each head."""
        return self._fetch(self.heads)

    def _fetch(self, count: int):
        element = self.element

        @intrinsic
        def fetch(values, offset):
            def emit(context, builder, signature, arguments):
                single = not isinstance(signature.args[0], types.BaseTuple)
                for i in range(1 if single else len(signature.args[0])):
                    value = arguments[0] if single else builder.extract_value(arguments[0], i)
                    memory.ask_for_some(element, count, builder, value, arguments[1])
                return context.get_dummy_value()

            return types.void(values, types.int64), emit

        return fetch

    @functools.cached_property
    def total(self):
        """``total(row)``: the sum over all heads and channels, a number."""
        row, element = self.row, self.element

        @intrinsic
        def total(value):
            def emit(context, builder, signature, arguments):
                heads = sum_over_channels(builder, row, simd.unpack(builder, row, arguments[0]))
                sum_ = builder.extract_element(heads, ir.Constant(llvm.INT32, 0))
                for head in range(1, row.heads):
                    sum_ = builder.fadd(sum_, builder.extract_element(heads, ir.Constant(llvm.INT32, head)))
                return sum_

            return element(row), emit

        return total

    # Vectors of heads, for one edge or for several side by side

    @functools.cached_property
    def heads_full(self):
        """``heads_full(value)``: the same value for every head of one edge."""
        return _full(self.head)

    @functools.cached_property
    def edges_full(self):
        """``edges_full(value)``: the same value for every head of a vector of edges."""
        return _full(self.edges)

    @functools.cached_property
    def load_heads(self):
        """``load_heads(memory, offset)``; for a tuple of memories, the tuple of what is there."""
        return loads_of(self.head, functools.partial(memory.load_vector, self.head))

    @functools.cached_property
    def load_edges(self):
        """``load_edges(memory, offset)``: a vector of edges' values that lie side by side, all of them."""
        return loads_of(self.edges, functools.partial(memory.load_vector, self.edges))

    @functools.cached_property
    def load_spread(self):
        """``load_spread(memory, offset)``: values of heads as a row, or as heads where a register holds several.

        A number goes from memory to all lanes of a register in one load, where heads in a register take a shuffle.
        """
        row = self.row
        if any(len(set(block.heads)) > 1 for block in row.blocks):
            return self.load_heads

        @intrinsic
        def load_spread(buffer, offset):
            def emit(context, builder, signature, arguments):
                element, vectors = simd.llvm_element(row.element), []
                for block in row.blocks:
                    place = builder.add(arguments[1], ir.Constant(memory.INT64, block.heads[0]))
                    number = builder.load(memory.pointer_to(builder, arguments[0], place, element))
                    vectors.append(llvm.splat(builder, number, row.lanes))
                return simd.pack(builder, context, row, vectors)

            return row(buffer, types.int64), emit

        return load_spread

    @functools.cached_property
    def store_heads(self):
        """``store_heads(memory, offset, heads)``."""
        return stores_of(self.head, memory.store_vector)

    @functools.cached_property
    def store_edges(self):
        """``store_edges(memory, offset, edges)``: all edges of the vector."""
        return stores_of(self.edges, memory.store_vector)

    @functools.cached_property
    def mask_edges(self):
        """``mask_edges(edges, count, value)``: `value` in place of the edges from number `count` on."""
        edges = self.edges

        @intrinsic
        def mask_edges(vector, count, value):
            def emit(context, builder, signature, arguments):
                fill = simd.broadcast(context, builder, signature.args[2], arguments[2], edges)[0]
                return builder.select(beyond(builder, edges, arguments[1]), fill, arguments[0])

            return edges(edges, types.int64, value), emit

        return mask_edges

    @functools.cached_property
    def any_above(self):
        """``any_above(edges, heads)``: whether any edge's value is above its head's."""
        edges, head = self.edges, self.head

        @intrinsic
        def any_above(vector, limit):
            def emit(context, builder, signature, arguments):
                limit = simd.broadcast(context, builder, head, arguments[1], edges)[0]
                above = builder.fcmp_ordered('>', arguments[0], limit)
                bits = builder.bitcast(above, ir.IntType(edges.lanes))
                return builder.icmp_unsigned('!=', bits, ir.Constant(bits.type, 0))

            return types.boolean(edges, head), emit

        return any_above

    @functools.cached_property
    def sum_edges(self):
        """``sum_edges(edges)``: the sum over the edges, one value a head; of a tuple, the tuple."""
        return _reduce(self.edges, self.head, llvm.add)

    @functools.cached_property
    def max_edges(self):
        """``max_edges(edges)``: the maximum over the edges, one value a head."""
        return _reduce(self.edges, self.head, llvm.greater)

    @functools.cached_property
    def repeat(self):
        """``repeat(heads)``: one edge's values for every edge of the vector; of a tuple, the tuple."""
        edges, head = self.edges, self.head

        @intrinsic
        def repeat(value):
            result = like(value, edges)

            def emit(context, builder, signature, arguments):
                def widen(kind, vector):
                    return simd.broadcast(context, builder, head, vector, edges)[0]

                return map_items(context, builder, signature.args[0], arguments[0], result, widen)

            return result(value), emit

        return repeat

    @functools.cached_property
    def buffer(self):
        """``buffer()``: room on the stack for the values of one vector of edges."""
        return memory.room_for(self.element, self.edges.lanes)

    # Sums over the channels of several edges at once

    @functools.cached_property
    def rows_buffer(self):
        """``rows_buffer()``: room on the stack for what `store_unsummed` keeps of a vector of edges."""
        return memory.room_for(self.element, self.step * self.row.lanes)

    @functools.cached_property
    def store_unsummed(self):
        """``store_unsummed(buffer, k, row)``: keeps what edge k's row comes to, short of lanes that were left empty."""
        row = self.row

        @intrinsic
        def store_unsummed(buffer, k, value):
            def emit(context, builder, signature, arguments):
                vectors = simd.broadcast(context, builder, value, arguments[2], row)
                vector = sum_into_one(builder, row, vectors)
                offset = builder.mul(arguments[1], ir.Constant(memory.INT64, row.lanes))
                builder.store(vector, memory.pointer_to(builder, arguments[0], offset, vector.type))
                return context.get_dummy_value()

            return types.void(buffer, types.int64, value), emit

        return store_unsummed

    @functools.cached_property
    def sum_unsummed(self):
        """``sum_unsummed(buffer)``: the sums over each head's channels of all edges that were stored."""
        row, edges = self.row, self.edges

        @intrinsic
        def sum_unsummed(buffer):
            def emit(context, builder, signature, arguments):
                vector = simd.llvm_vector(row.element, row.lanes)
                places = (ir.Constant(memory.INT64, k * row.lanes) for k in range(edges.edges))
                found = [builder.load(memory.pointer_to(builder, arguments[0], place, vector)) for place in places]
                return sum_of_edges(builder, row.heads, found, length_in_one(row))

            return edges(buffer), emit

        return sum_unsummed


def _full(kind: simd.SimdType):
    @intrinsic
    def full(value):
        def emit(context, builder, signature, arguments):
            vectors = simd.broadcast(context, builder, signature.args[0], arguments[0], kind)
            return simd.pack(builder, context, kind, vectors)

        return kind(value), emit

    return full


def _reduce(edges: HeadVector, head: HeadVector, combine):
    """A fold of a vector's edges by halves, in a fixed order."""

    @intrinsic
    def reduce(value):
        result = like(value, head)

        def emit(context, builder, signature, arguments):
            def fold(kind, vector):
                count = edges.edges
                while count > 1:
                    half = count // 2 * head.heads
                    low = llvm.shuffle(builder, vector, range(half))
                    vector = combine(builder, low, llvm.shuffle(builder, vector, range(half, 2 * half)))
                    count //= 2
                return vector

            return map_items(context, builder, signature.args[0], arguments[0], result, fold)

        return result(value), emit

    return reduce
