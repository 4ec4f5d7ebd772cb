"""Vectors of edges and memory: values of the rows that an index names are gathered, scattered or added to."""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.channel_sums import sum_over_channels
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.memory import (
    INT64,
    alignment,
    masked_load,
    masked_store,
    pointer_to,
    rows_of_edges,
    some_lanes,
)
from pygfuse.cpu.vectors.packs import each_item, like, map_items
from pygfuse.cpu.vectors.simd import ChannelRow, HeadVector


class EdgeVectors:
    """What edges side by side reads and writes by an index."""

    edges: HeadVector

    @functools.cached_property
    def load_some_edges(self):
        """``load_some_edges(memory, offset, count)``: the first `count` edges of a vector, and 0 for the others."""
        edges = self.edges

        @intrinsic
        def load_some_edges(memory, offset, count):
            def emit(context, builder, signature, arguments):
                vector = simd.llvm_vector(edges.element, edges.lanes)
                pointer = pointer_to(builder, arguments[0], arguments[1], vector)
                mask = builder.not_(beyond(builder, edges, arguments[2]))
                return masked_load(builder, edges.element, pointer, mask)

            return edges(memory, types.int64, types.int64), emit

        return load_some_edges

    @functools.cached_property
    def store_some_edges(self):
        """``store_some_edges(memory, offset, edges, count)``: the first `count` edges; of tuples, each."""
        edges = self.edges

        @intrinsic
        def store_some_edges(memory, offset, value, count):
            def emit(context, builder, signature, arguments):
                def store(kind, memory, vector):
                    pointer = pointer_to(builder, memory, arguments[1], vector.type)
                    whole = builder.icmp_signed('>=', arguments[3], ir.Constant(INT64, edges.edges))
                    # a masked store costs several plain ones
                    with builder.if_else(whole, likely=True) as (then, otherwise):
                        with then:
                            builder.store(vector, pointer, align=alignment(edges.element))
                        with otherwise:
                            mask = builder.not_(beyond(builder, edges, arguments[3]))
                            masked_store(builder, edges.element, vector, pointer, mask)

                each_item(context, builder, edges, signature, arguments, 0, 2, store)
                return context.get_dummy_value()

            return types.void(memory, types.int64, value, types.int64), emit

        return store_some_edges

    @functools.cached_property
    def scatter_edges(self):
        """``scatter_edges(memory, index, begin, end, stride, first, edges)``: the reverse of `gather_edges`.

        The rows must differ; past `end` nothing is written. Of tuples of memories and values, each.
        """
        return self._scatter(adds=False)

    @functools.cached_property
    def add_edges(self):
        """``add_edges(...)``: as `scatter_edges`, but adds to what is there; rows may repeat."""
        return self._scatter(adds=True)

    def _scatter(self, adds: bool):
        edges = self.edges

        def store(builder, memory, vector, offsets, begin, end):
            mask = builder.not_(beyond(builder, edges, builder.sub(end, begin)))
            for k, offset in enumerate(offsets):
                lanes = range(k * edges.heads, (k + 1) * edges.heads)
                some = some_lanes(builder, vector, lanes)
                pointer = pointer_to(builder, memory, offset, some.type)
                if adds:
                    some = llvm.add(builder, some, builder.load(pointer, align=alignment(edges.element)))
                masked_store(builder, edges.element, some, pointer, some_lanes(builder, mask, lanes))

        return _scattered(edges, store)

    @functools.cached_property
    def gather_edges(self):
        """``gather_edges(memory, index, begin, end, stride, first)``: values of the rows that an index names.

        Edge k of the vector gets ``memory[index[begin + k] * stride + first:]``; past `end`, the row of the last
        edge again. For a tuple of memories, a tuple. An index of None stands for the identity.
        """
        edges = self.edges

        @intrinsic
        def gather_edges(memory, index, begin, end, stride, first):
            result = like(memory, edges)

            def emit(context, builder, signature, arguments):
                kinds = signature.args
                rows = rows_of_edges(builder, edges.edges, kinds[1], *arguments[1:4])
                offsets = [builder.add(builder.mul(row, arguments[4]), arguments[5]) for row in rows]

                def gather(kind, value):
                    vector = simd.llvm_vector(edges.element, edges.heads)
                    pointers = [pointer_to(builder, value, offset, vector) for offset in offsets]
                    loads = [builder.load(pointer, align=alignment(edges.element)) for pointer in pointers]
                    return llvm.concatenate(builder, loads)

                return map_items(context, builder, kinds[0], arguments[0], result, gather)

            return result(memory, index, types.int64, types.int64, types.int64, types.int64), emit

        return gather_edges

    @functools.cached_property
    def gather_scalars(self):
        """``gather_scalars(memories, index, begin, end)``: one number an edge, for all heads; a tuple of a tuple."""
        edges = self.edges

        @intrinsic
        def gather_scalars(memory, index, begin, end):
            result = types.Tuple((edges,) * len(memory))

            def emit(context, builder, signature, arguments):
                rows = rows_of_edges(builder, edges.edges, signature.args[1], *arguments[1:4])
                element = simd.llvm_element(edges.element)

                def gather(kind, value):
                    numbers = ir.Constant(ir.VectorType(element, edges.edges), ir.Undefined)
                    for k, row in enumerate(rows):
                        number = builder.load(pointer_to(builder, value, row, element))
                        numbers = builder.insert_element(numbers, number, ir.Constant(llvm.INT32, k))
                    return llvm.shuffle(builder, numbers, [lane // edges.heads for lane in range(edges.lanes)])

                return map_items(context, builder, signature.args[0], arguments[0], result, gather)

            return result(memory, index, types.int64, types.int64), emit

        return gather_scalars

    @functools.cached_property
    def scatter_scalars(self):
        """``scatter_scalars(memories, index, begin, end, stride, first, values)``: each edge's sum over heads.

        Edge k's sum is written to ``memory[index[begin + k] * stride + first]``; past `end` nothing is.
        """
        edges, element = self.edges, simd.llvm_element(self.edges.element)

        def store(builder, memory, vector, offsets, begin, end):
            sums = sum_over_channels(
                builder, ChannelRow(edges.element, edges.edges, edges.heads), _as_blocks(builder, edges, vector)
            )
            for k, offset in enumerate(offsets):
                number = builder.extract_element(sums, ir.Constant(llvm.INT32, k))
                inside = builder.icmp_signed('<', builder.add(begin, ir.Constant(INT64, k)), end)
                with builder.if_then(inside):
                    builder.store(number, pointer_to(builder, memory, offset, element))

        return _scattered(edges, store)


def _scattered(edges: HeadVector, store: Callable):
    """An intrinsic that stores a vector of edges at ``index[begin + k] * stride + first``; of tuples, each.

    Args:
        edges: The vector.
        store: Writes one vector to the places of its edges, of which those from `end` on are none.
    """

    @intrinsic
    def scatter(memory, index, begin, end, stride, first, value):
        def emit(context, builder, signature, arguments):
            _, index, begin, end, stride, first, _ = arguments
            rows = rows_of_edges(builder, edges.edges, signature.args[1], index, begin, end)
            offsets = [builder.add(builder.mul(row, stride), first) for row in rows]

            def store_one(kind, memory, vector):
                store(builder, memory, vector, offsets, begin, end)

            each_item(context, builder, edges, signature, arguments, 0, 6, store_one)
            return context.get_dummy_value()

        index64 = types.int64
        return types.void(memory, index, index64, index64, index64, index64, value), emit

    return scatter


def beyond(builder, edges: HeadVector, count: ir.Value) -> ir.Value:
    """A mask of the lanes of the edges from number `count` on."""
    kind = ir.VectorType(INT64, edges.lanes)
    numbers = ir.Constant(kind, [lane // edges.heads for lane in range(edges.lanes)])
    return builder.icmp_signed('>=', numbers, llvm.splat(builder, count, edges.lanes))


def _as_blocks(builder, edges: HeadVector, vector: ir.Value) -> list[ir.Value]:
    """The lanes of a vector of edges in the blocks of a row that has edges for heads and heads for channels."""
    row = ChannelRow(edges.element, edges.edges, edges.heads)
    last = edges.lanes - 1
    return [
        llvm.shuffle(
            builder, vector, [min(block.start + min(lane, block.valid - 1), last) for lane in range(row.lanes)]
        )
        for block in row.blocks
    ]
