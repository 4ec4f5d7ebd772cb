"""How the values of heads and channels lie in memory, and the loads, stores and reductions of them.

A `Layout` fixes element type, heads and channels; its attributes are Numba intrinsics to be used in kernel bodies.
Memory is row-major and contiguous: a heads operand is ``[rows, heads]``, a channels operand ``[rows, heads *
channels]``. `group` edges are worked on side by side where only heads are concerned (see `HeadVector`).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pygfuse.codegen import llvm
from pygfuse.cpu import simd
from pygfuse.cpu.simd import ChannelRow, HeadVector

INT1, INT64 = ir.IntType(1), ir.IntType(64)


def _pointer(context, builder, kind: types.Type, value: ir.Value, offset: ir.Value, to: ir.Type) -> ir.Value:
    """The address of element `offset` of an array or a stack buffer."""
    data = value if isinstance(kind, types.CPointer) else context.make_array(kind)(context, builder, value=value).data
    return builder.bitcast(builder.gep(data, [offset]), to.as_pointer())


def _first_lanes(lanes: int, valid: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(INT1, lanes), [lane < valid for lane in range(lanes)])


def _align(element: types.Float) -> int:
    return element.bitwidth // 8


def _align_constant(element: types.Float) -> ir.Constant:
    return ir.Constant(llvm.INT32, _align(element))


def _masked_load(builder, element, pointer: ir.Value, mask: ir.Value) -> ir.Value:
    vector = pointer.type.pointee
    name = f'llvm.masked.load.{simd.suffix(vector)}.p0'
    operands = [pointer, _align_constant(element), mask, simd.constant(vector, 0.0)]
    return simd.call(builder, name, operands, vector)


def _part(builder, vector: ir.Value, lanes: range) -> ir.Value:
    """Some lanes of a vector; one lane as a number, as LLVM's VectorCombine fails on shuffles that give one lane."""
    if len(lanes) == 1:
        return builder.extract_element(vector, ir.Constant(llvm.INT32, lanes[0]))
    return simd.shuffle(builder, vector, lanes)


def _masked_store(builder, element, vector: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
    if not isinstance(vector.type, ir.VectorType):
        with builder.if_then(mask):
            builder.store(vector, pointer, align=_align(element))
        return
    name = f'llvm.masked.store.{simd.suffix(vector.type)}.p0'
    simd.call(builder, name, [vector, pointer, _align_constant(element), mask], ir.VoidType())


class Layout:
    """Intrinsics on rows of `heads` x `channels` values of type `element`; `group` edges side by side.

    Args:
        element: ``numba.types.float32`` or ``float64``.
        heads: Number of heads held at once.
        channels: Channels of each head held at once.
        group_limit: The most edges side by side, a power of two; by default as many as fill a register.
    """

    def __init__(self, element: types.Float, heads: int, channels: int, group_limit: int | None = None) -> None:
        lanes = simd.register_bytes() // _align(element)
        self.element, self.heads, self.channels = element, heads, channels
        group = 1 << max(0, (lanes // heads).bit_length() - 1)
        self.group = group if group_limit is None else min(group, group_limit)
        self.row = ChannelRow(element, heads, channels)
        self.head = HeadVector(element, 1, heads)
        self.edges = HeadVector(element, self.group, heads)

    # Rows of channels

    @functools.cached_property
    def row_zeros(self):
        row = self.row

        @intrinsic
        def row_zeros(typingctx):
            def emit(context, builder, signature, arguments):
                return ir.Constant(context.get_data_type(row), None)

            return row(), emit

        return row_zeros

    @functools.cached_property
    def load_row(self):
        """``load_row(memory, offset)``: the row whose first value is element `offset`; of a tuple, the tuple."""
        return _over_tuples(self.row, functools.partial(_load_row, self.row))

    @functools.cached_property
    def store_row(self):
        """``store_row(memory, offset, row)``; of tuples of memories and rows, each."""
        return _stores(self.row, _store_row)

    @functools.cached_property
    def total(self):
        """``total(row)``: the sum over all heads and channels, a number."""
        row, element = self.row, self.element

        @intrinsic
        def total(typingctx, value):
            def emit(context, builder, signature, arguments):
                heads = simd.sum_over_channels(builder, row, simd.unpack(builder, row, arguments[0]))
                sum_ = builder.extract_element(heads, ir.Constant(llvm.INT32, 0))
                for head in range(1, row.heads):
                    sum_ = builder.fadd(sum_, builder.extract_element(heads, ir.Constant(llvm.INT32, head)))
                return sum_

            return element(row), emit

        return total

    # Vectors of heads, for one edge or for a group of edges

    @functools.cached_property
    def heads_full(self):
        """``heads_full(value)``: the same value for every head of one edge."""
        return _full(self.head)

    @functools.cached_property
    def edges_full(self):
        """``edges_full(value)``: the same value for every head of a group of edges."""
        return _full(self.edges)

    @functools.cached_property
    def load_heads(self):
        """``load_heads(memory, offset)``; for a tuple of memories, the tuple of what is there."""
        return _over_tuples(self.head, functools.partial(_load_vector, self.head))

    @functools.cached_property
    def load_edges(self):
        """``load_edges(memory, offset)``: a group's values that lie side by side, all of them."""
        return _over_tuples(self.edges, functools.partial(_load_vector, self.edges))

    @functools.cached_property
    def store_heads(self):
        """``store_heads(memory, offset, heads)``."""
        return _stores(self.head, _store_vector)

    @functools.cached_property
    def store_edges(self):
        """``store_edges(memory, offset, edges)``: all edges of the group."""
        return _stores(self.edges, _store_vector)

    @functools.cached_property
    def store_some_edges(self):
        """``store_some_edges(memory, offset, edges, count)``: the first `count` edges of the group; of tuples, each."""
        edges = self.edges

        @intrinsic
        def store_some_edges(typingctx, memory, offset, value, count):
            def emit(context, builder, signature, arguments):
                def store(kind, memory, vector):
                    pointer = _pointer(context, builder, kind, memory, arguments[1], vector.type)
                    whole = builder.icmp_signed('>=', arguments[3], ir.Constant(INT64, edges.edges))
                    # a masked store costs several plain ones
                    with builder.if_else(whole, likely=True) as (then, otherwise):
                        with then:
                            builder.store(vector, pointer, align=_align(edges.element))
                        with otherwise:
                            mask = builder.not_(_beyond(builder, edges, arguments[3]))
                            _masked_store(builder, edges.element, vector, pointer, mask)

                _each(context, builder, edges, signature, arguments, 0, 2, store)
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

        @intrinsic
        def scatter(typingctx, memory, index, begin, end, stride, first, value):
            def emit(context, builder, signature, arguments):
                _, index, begin, end, stride, first, _ = arguments
                rows = group_rows(context, builder, edges.edges, signature.args[1], index, begin, end)
                offsets = [builder.add(builder.mul(row, stride), first) for row in rows]
                mask = builder.not_(_beyond(builder, edges, builder.sub(end, begin)))

                def store(kind, memory, vector):
                    for k, offset in enumerate(offsets):
                        lanes = range(k * edges.heads, (k + 1) * edges.heads)
                        some = _part(builder, vector, lanes)
                        pointer = _pointer(context, builder, kind, memory, offset, some.type)
                        if adds:
                            some = simd.add(builder, some, builder.load(pointer, align=_align(edges.element)))
                        _masked_store(builder, edges.element, some, pointer, _part(builder, mask, lanes))

                _each(context, builder, edges, signature, arguments, 0, 6, store)
                return context.get_dummy_value()

            index64 = types.int64
            return types.void(memory, index, index64, index64, index64, index64, value), emit

        return scatter

    @functools.cached_property
    def gather_edges(self):
        """``gather_edges(memory, index, begin, end, stride, first)``: values of the rows that an index names.

        Edge k of the group gets ``memory[index[begin + k] * stride + first:]``; past `end`, the row of the last
        edge again. For a tuple of memories, a tuple. An index of None stands for the identity.
        """
        edges = self.edges

        @intrinsic
        def gather_edges(typingctx, memory, index, begin, end, stride, first):
            is_tuple = isinstance(memory, types.BaseTuple)
            result = types.Tuple((edges,) * len(memory)) if is_tuple else edges

            def emit(context, builder, signature, arguments):
                kinds = signature.args
                rows = group_rows(context, builder, edges.edges, kinds[1], *arguments[1:4])
                offsets = [builder.add(builder.mul(row, arguments[4]), arguments[5]) for row in rows]

                def gather(kind, value):
                    vector = simd.llvm_vector(edges.element, edges.heads)
                    pointers = [_pointer(context, builder, kind, value, offset, vector) for offset in offsets]
                    loads = [builder.load(pointer, align=_align(edges.element)) for pointer in pointers]
                    return simd.concatenate(builder, loads)

                return _map_tuple(context, builder, kinds[0], arguments[0], result, gather)

            return result(memory, index, types.int64, types.int64, types.int64, types.int64), emit

        return gather_edges

    @functools.cached_property
    def gather_scalars(self):
        """``gather_scalars(memories, index, begin, end)``: one number an edge, for all heads; a tuple of a tuple."""
        edges = self.edges

        @intrinsic
        def gather_scalars(typingctx, memory, index, begin, end):
            result = types.Tuple((edges,) * len(memory))

            def emit(context, builder, signature, arguments):
                rows = group_rows(context, builder, edges.edges, signature.args[1], *arguments[1:4])
                element = simd.llvm_element(edges.element)

                def gather(kind, value):
                    numbers = ir.Constant(ir.VectorType(element, edges.edges), ir.Undefined)
                    for k, row in enumerate(rows):
                        number = builder.load(_pointer(context, builder, kind, value, row, element))
                        numbers = builder.insert_element(numbers, number, ir.Constant(llvm.INT32, k))
                    return simd.shuffle(builder, numbers, [lane // edges.heads for lane in range(edges.lanes)])

                return _map_tuple(context, builder, signature.args[0], arguments[0], result, gather)

            return result(memory, index, types.int64, types.int64), emit

        return gather_scalars

    @functools.cached_property
    def scatter_scalars(self):
        """``scatter_scalars(memories, index, begin, end, stride, first, values)``: each edge's sum over heads.

        Edge k's sum is written to ``memory[index[begin + k] * stride + first]``; past `end` nothing is.
        """
        edges = self.edges

        @intrinsic
        def scatter_scalars(typingctx, memory, index, begin, end, stride, first, value):
            def emit(context, builder, signature, arguments):
                _, index, begin, end, stride, first, _ = arguments
                rows = group_rows(context, builder, edges.edges, signature.args[1], index, begin, end)
                element = simd.llvm_element(edges.element)

                def store(kind, memory, vector):
                    sums = simd.sum_over_channels(
                        builder, ChannelRow(edges.element, edges.edges, edges.heads), _as_blocks(builder, edges, vector)
                    )
                    for k in range(edges.edges):
                        at = builder.add(builder.mul(rows[k], stride), first)
                        number = builder.extract_element(sums, ir.Constant(llvm.INT32, k))
                        inside = builder.icmp_signed('<', builder.add(begin, ir.Constant(INT64, k)), end)
                        with builder.if_then(inside):
                            builder.store(number, _pointer(context, builder, kind, memory, at, element))

                _each(context, builder, edges, signature, arguments, 0, 6, store)
                return context.get_dummy_value()

            index64 = types.int64
            return types.void(memory, index, index64, index64, index64, index64, value), emit

        return scatter_scalars

    @functools.cached_property
    def mask_edges(self):
        """``mask_edges(edges, count, value)``: `value` in place of the edges from number `count` on."""
        edges = self.edges

        @intrinsic
        def mask_edges(typingctx, vector, count, value):
            def emit(context, builder, signature, arguments):
                fill = simd.broadcast(context, builder, signature.args[2], arguments[2], edges)[0]
                return builder.select(_beyond(builder, edges, arguments[1]), fill, arguments[0])

            return edges(edges, types.int64, value), emit

        return mask_edges

    @functools.cached_property
    def any_above(self):
        """``any_above(edges, heads)``: whether any edge's value is above its head's."""
        edges, head = self.edges, self.head

        @intrinsic
        def any_above(typingctx, vector, limit):
            def emit(context, builder, signature, arguments):
                limit = simd.broadcast(context, builder, head, arguments[1], edges)[0]
                above = builder.fcmp_ordered('>', arguments[0], limit)
                bits = builder.bitcast(above, ir.IntType(edges.lanes))
                return builder.icmp_unsigned('!=', bits, ir.Constant(bits.type, 0))

            return types.boolean(edges, head), emit

        return any_above

    @functools.cached_property
    def sum_edges(self):
        """``sum_edges(edges)``: the sum over the group, one value a head; of a tuple, the tuple."""
        return _reduce(self.edges, self.head, simd.add)

    @functools.cached_property
    def max_edges(self):
        """``max_edges(edges)``: the maximum over the group, one value a head."""
        return _reduce(self.edges, self.head, llvm.greater)

    @functools.cached_property
    def repeat(self):
        """``repeat(heads)``: one edge's values for every edge of the group; of a tuple, the tuple."""
        edges, head = self.edges, self.head

        @intrinsic
        def repeat(typingctx, value):
            is_tuple = isinstance(value, types.BaseTuple)
            result = types.Tuple((edges,) * len(value)) if is_tuple else edges

            def emit(context, builder, signature, arguments):
                def widen(kind, vector):
                    return simd.broadcast(context, builder, head, vector, edges)[0]

                return _map_tuple(context, builder, signature.args[0], arguments[0], result, widen)

            return result(value), emit

        return repeat

    @functools.cached_property
    def buffer(self):
        """``buffer()``: room on the stack for the values of one group of edges."""
        edges = self.edges

        @intrinsic
        def buffer(typingctx):
            def emit(context, builder, signature, arguments):
                vector = simd.llvm_vector(edges.element, edges.lanes)
                with builder.goto_entry_block():
                    room = builder.alloca(vector)
                    room.align = 64
                return builder.bitcast(room, simd.llvm_element(edges.element).as_pointer())

            return types.CPointer(edges.element)(), emit

        return buffer


@intrinsic
def place_at(typingctx, index, position):
    """``place_at(index, position)``: the number at a position of an index, or the position itself for None."""

    def emit(context, builder, signature, arguments):
        kind = signature.args[0]
        if isinstance(kind, types.NoneType):
            return arguments[1]
        data = context.make_array(kind)(context, builder, value=arguments[0]).data
        found = builder.load(builder.gep(data, [arguments[1]]))
        return builder.sext(found, INT64) if found.type.width < 64 else found

    return types.int64(index, types.int64), emit


def _map_tuple(context, builder, kind, value, result, function):
    """`function` of every item of a tuple value, or of the value itself."""
    if not isinstance(kind, types.BaseTuple):
        return function(kind, value)
    items = [function(item, builder.extract_value(value, i)) for i, item in enumerate(kind)]
    return context.make_tuple(builder, result, items)


def _as_blocks(builder, edges: HeadVector, vector: ir.Value) -> list[ir.Value]:
    """The lanes of a group of edges in the blocks of a row that has edges for heads and heads for channels."""
    row = ChannelRow(edges.element, edges.edges, edges.heads)
    last = edges.lanes - 1
    return [
        simd.shuffle(
            builder, vector, [min(block.start + min(lane, block.valid - 1), last) for lane in range(row.lanes)]
        )
        for block in row.blocks
    ]


def _full(kind: HeadVector):
    @intrinsic
    def full(typingctx, value):
        def emit(context, builder, signature, arguments):
            return simd.broadcast(context, builder, signature.args[0], arguments[0], kind)[0]

        return kind(value), emit

    return full


def _load_vector(kind: HeadVector, context, builder, memory_kind, memory, offset):
    pointer = _pointer(context, builder, memory_kind, memory, offset, simd.llvm_vector(kind.element, kind.lanes))
    return builder.load(pointer, align=_align(kind.element))


def _load_row(row: ChannelRow, context, builder, memory_kind, memory, offset):
    vector = simd.llvm_vector(row.element, row.lanes)
    vectors = []
    for block in row.blocks:
        at = builder.add(offset, ir.Constant(INT64, block.start))
        pointer = _pointer(context, builder, memory_kind, memory, at, vector)
        if block.valid == row.lanes:
            vectors.append(builder.load(pointer, align=_align(row.element)))
        else:
            vectors.append(_masked_load(builder, row.element, pointer, _first_lanes(row.lanes, block.valid)))
    return simd.pack(builder, context, row, vectors)


def _store_row(row: ChannelRow, context, builder, memory_kind, memory, offset, value):
    vector = simd.llvm_vector(row.element, row.lanes)
    for block, part in zip(row.blocks, simd.unpack(builder, row, value), strict=True):
        at = builder.add(offset, ir.Constant(INT64, block.start))
        pointer = _pointer(context, builder, memory_kind, memory, at, vector)
        if block.valid == row.lanes:
            builder.store(part, pointer, align=_align(row.element))
        else:
            _masked_store(builder, row.element, part, pointer, _first_lanes(row.lanes, block.valid))


def _over_tuples(kind: simd.Tile, load):
    @intrinsic
    def load_all(typingctx, memory, offset):
        is_tuple = isinstance(memory, types.BaseTuple)
        result = types.Tuple((kind,) * len(memory)) if is_tuple else kind

        def emit(context, builder, signature, arguments):
            def one(memory_kind, value):
                return load(context, builder, memory_kind, value, arguments[1])

            return _map_tuple(context, builder, signature.args[0], arguments[0], result, one)

        return result(memory, types.int64), emit

    return load_all


def _each(context, builder, kind: simd.Tile, signature, arguments, memory: int, value: int, store) -> None:
    """Calls ``store(memory type, memory, value)`` for a memory and a value, or for each of two tuples of them.

    A gradient that is the number 0 arrives as such, and is made a tile here.
    """
    memories, values = signature.args[memory], signature.args[value]
    single = not isinstance(memories, types.BaseTuple)
    for i, (memory_kind, value_kind) in enumerate(
        [(memories, values)] if single else zip(memories, values, strict=True)
    ):
        to, what = (
            (arguments[memory], arguments[value])
            if single
            else (
                builder.extract_value(arguments[memory], i),
                builder.extract_value(arguments[value], i),
            )
        )
        if value_kind != kind:
            vectors = simd.broadcast(context, builder, value_kind, what, kind)
            what = simd.pack(builder, context, kind, vectors)
        store(memory_kind, to, what)


def _stores(kind: simd.Tile, store):
    @intrinsic
    def store_all(typingctx, memory, offset, value):
        def emit(context, builder, signature, arguments):
            def one(memory_kind, to, what):
                store(kind, context, builder, memory_kind, to, arguments[1], what)

            _each(context, builder, kind, signature, arguments, 0, 2, one)
            return context.get_dummy_value()

        return types.void(memory, types.int64, value), emit

    return store_all


def _store_vector(kind: HeadVector, context, builder, memory_kind, memory, offset, value):
    if kind.lanes == 1:
        value = _part(builder, value, range(1))
    pointer = _pointer(context, builder, memory_kind, memory, offset, value.type)
    builder.store(value, pointer, align=_align(kind.element))


def _beyond(builder, edges: HeadVector, count: ir.Value) -> ir.Value:
    """A mask of the lanes of the edges from number `count` on."""
    kind = ir.VectorType(INT64, edges.lanes)
    numbers = ir.Constant(kind, [lane // edges.heads for lane in range(edges.lanes)])
    return builder.icmp_signed('>=', numbers, simd.splat(builder, count, edges.lanes))


@intrinsic
def prefetch(typingctx, memory, offset):
    """``prefetch(memory, offset)``: asks for the cache line of an element; any offset is harmless."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments, ir.IntType(8))
        one, three = (ir.Constant(llvm.INT32, number) for number in (1, 3))
        operands = [pointer, ir.Constant(llvm.INT32, 0), three, one]  # for reading, into all levels, data
        simd.call(builder, 'llvm.prefetch.p0', operands, ir.VoidType())
        return context.get_dummy_value()

    return types.void(memory, types.int64), emit


def group_rows(context, builder, group: int, index_kind, index, begin, end) -> list[ir.Value]:
    """The rows that the index names for the edges of a group; past `end`, the last edge's row again."""
    last = builder.sub(end, ir.Constant(INT64, 1))
    rows = []
    for k in range(group):
        position = builder.add(begin, ir.Constant(INT64, k)) if k else begin
        inside = builder.select(builder.icmp_signed('<', position, last), position, last) if k else begin
        if isinstance(index_kind, types.NoneType):
            rows.append(inside)
            continue
        data = context.make_array(index_kind)(context, builder, value=index).data
        row = builder.load(builder.gep(data, [inside]))
        rows.append(builder.sext(row, INT64) if row.type.width < 64 else row)
    return rows


def _reduce(edges: HeadVector, head: HeadVector, combine):
    """A fold of the group's edges by halves, in a fixed order."""

    @intrinsic
    def reduce(typingctx, value):
        is_tuple = isinstance(value, types.BaseTuple)
        result = types.Tuple((head,) * len(value)) if is_tuple else head

        def emit(context, builder, signature, arguments):
            def fold(kind, vector):
                count = edges.edges
                while count > 1:
                    half = count // 2 * head.heads
                    low = simd.shuffle(builder, vector, range(half))
                    vector = combine(builder, low, simd.shuffle(builder, vector, range(half, 2 * half)))
                    count //= 2
                return vector

            return _map_tuple(context, builder, signature.args[0], arguments[0], result, fold)

        return result(value), emit

    return reduce
