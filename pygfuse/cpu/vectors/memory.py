"""Memory in kernels of the CPU: addresses, loads and stores of vectors and rows, and the numbers of an index."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.intrinsics import Intrinsic, intrinsic
from pygfuse.cpu.vectors.simd import ChannelRow, HeadVector

INT1, INT64 = ir.IntType(1), ir.IntType(64)
_CACHE_LINE = 64


def pointer_to(builder, value: ir.Value, offset: ir.Value, to: ir.Type) -> ir.Value:
    """The address of element `offset` of an array or a stack buffer."""
    return builder.bitcast(builder.gep(value, [offset]), to.as_pointer())


def _first_lanes(lanes: int, valid: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(INT1, lanes), [lane < valid for lane in range(lanes)])


def alignment(element: types.Float) -> int:
    return element.bitwidth // 8


def _align_constant(element: types.Float) -> ir.Constant:
    return ir.Constant(llvm.INT32, alignment(element))


def masked_load(builder, element, pointer: ir.Value, mask: ir.Value) -> ir.Value:
    vector = pointer.type.pointee
    name = f'llvm.masked.load.{llvm.suffix(vector)}.p0'
    operands = [pointer, _align_constant(element), mask, llvm.constant(vector, 0.0)]
    return llvm.call(builder, name, operands, vector)


def some_lanes(builder, vector: ir.Value, lanes: range) -> ir.Value:
    """Some lanes of a vector; one lane as a number, as LLVM's VectorCombine fails on shuffles that give one lane."""
    if len(lanes) == 1:
        return builder.extract_element(vector, ir.Constant(llvm.INT32, lanes[0]))
    return llvm.shuffle(builder, vector, lanes)


def masked_store(builder, element, vector: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
    if not isinstance(vector.type, ir.VectorType):
        with builder.if_then(mask):
            builder.store(vector, pointer, align=alignment(element))
        return
    name = f'llvm.masked.store.{llvm.suffix(vector.type)}.p0'
    llvm.call(builder, name, [vector, pointer, _align_constant(element), mask], ir.VoidType())


def load_vector(kind: HeadVector, context, builder, memory_kind, memory, offset):
    pointer = pointer_to(builder, memory, offset, simd.llvm_vector(kind.element, kind.lanes))
    return builder.load(pointer, align=alignment(kind.element))


def load_row(row: ChannelRow, context, builder, memory_kind, memory, offset):
    vector = simd.llvm_vector(row.element, row.lanes)
    vectors = []
    for block in row.blocks:
        at = builder.add(offset, ir.Constant(INT64, block.start))
        pointer = pointer_to(builder, memory, at, vector)
        if block.valid == row.lanes:
            vectors.append(builder.load(pointer, align=alignment(row.element)))
        else:
            vectors.append(masked_load(builder, row.element, pointer, _first_lanes(row.lanes, block.valid)))
    return simd.pack(builder, context, row, vectors)


def store_row(row: ChannelRow, context, builder, memory_kind, memory, offset, value):
    vector = simd.llvm_vector(row.element, row.lanes)
    for block, part in zip(row.blocks, simd.unpack(builder, row, value), strict=True):
        at = builder.add(offset, ir.Constant(INT64, block.start))
        pointer = pointer_to(builder, memory, at, vector)
        if block.valid == row.lanes:
            builder.store(part, pointer, align=alignment(row.element))
        else:
            masked_store(builder, row.element, part, pointer, _first_lanes(row.lanes, block.valid))


def store_vector(kind: HeadVector, context, builder, memory_kind, memory, offset, value):
    if kind.lanes == 1:
        value = some_lanes(builder, value, range(1))
    pointer = pointer_to(builder, memory, offset, value.type)
    builder.store(value, pointer, align=alignment(kind.element))


@intrinsic
def place_at(index, position):
    """``place_at(index, position)``: the number at a position of an index, or the position itself for None."""

    def emit(context, builder, signature, arguments):
        kind = signature.args[0]
        if isinstance(kind, types.NoneType):
            return arguments[1]
        found = builder.load(builder.gep(arguments[0], [arguments[1]]))
        return builder.sext(found, INT64) if found.type.width < 64 else found

    return types.int64(index, types.int64), emit


def ask_for(builder, value: ir.Value, offset: ir.Value) -> None:
    """Asks for the cache line of an element; any offset is harmless."""
    pointer = pointer_to(builder, value, offset, ir.IntType(8))
    one, three = (ir.Constant(llvm.INT32, number) for number in (1, 3))
    operands = [pointer, ir.Constant(llvm.INT32, 0), three, one]  # for reading, into all levels, data
    llvm.call(builder, 'llvm.prefetch.p0', operands, ir.VoidType())


def ask_for_some(element: types.Float, count: int, builder, value: ir.Value, offset: ir.Value) -> None:
    """Asks for the cache lines of `count` elements, as if the first began one."""
    for start in range(0, count, _CACHE_LINE // alignment(element)):
        ask_for(builder, value, builder.add(offset, ir.Constant(INT64, start)))


@intrinsic
def pointer_at(memory, offset):
    """``pointer_at(memory, offset)``: a pointer to an element."""

    def emit(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return memory(memory, types.int64), emit


@functools.cache
def numbers_at(element: types.Number) -> Intrinsic:
    """``at(address)``: a pointer to numbers of a type, from an address as a number."""

    @intrinsic
    def at(address):
        def emit(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), emit

    return at


@functools.cache
def turner(element: types.Float, size: int) -> Intrinsic:
    """``turn(memory, offset, step, out, place, out_step)``: writes the transpose of `size` rows of `size` numbers.

    Rows begin `step` numbers after one another, those of the transpose `out_step`. Each round interleaves the rows of
    the first half with those of the second.
    """
    halves = [[half * size // 2 + k // 2 + k % 2 * size for k in range(size)] for half in range(2)]

    @intrinsic
    def turn(memory, offset, step, out, place, out_step):
        def emit(context, builder, signature, arguments):
            memory, offset, step, out, place, out_step = arguments
            vector = simd.llvm_vector(element, size)

            def row(values, first, step, k):
                at = builder.add(first, builder.mul(step, ir.Constant(INT64, k)))
                return pointer_to(builder, values, at, vector)

            align = alignment(element)
            rows = [builder.load(row(memory, offset, step, k), align=align) for k in range(size)]
            for _ in range(size.bit_length() - 1):
                pairs = zip(rows[: size // 2], rows[size // 2 :], strict=True)
                rows = [llvm.shuffle(builder, one, half, other) for one, other in pairs for half in halves]
            for k, values in enumerate(rows):
                builder.store(values, row(out, place, out_step, k), align=align)
            return context.get_dummy_value()

        return types.void(memory, *(types.int64,) * 2, out, *(types.int64,) * 2), emit

    return turn


def room_for(element: types.Float, length: int) -> Intrinsic:
    """``room()``: that many values on the stack."""

    @intrinsic
    def room():
        def emit(context, builder, signature, arguments):
            kind = simd.llvm_element(element)
            with builder.goto_entry_block():
                found = builder.alloca(ir.ArrayType(kind, length))
                found.align = 64
            return builder.bitcast(found, kind.as_pointer())

        return types.CPointer(element)(), emit

    return room


@intrinsic
def prefetch(memory, offset):
    """``prefetch(memory, offset)``: asks for the cache line of an element; any offset is harmless."""

    def emit(context, builder, signature, arguments):
        ask_for(builder, *arguments)
        return context.get_dummy_value()

    return types.void(memory, types.int64), emit


def rows_of_edges(builder, edges: int, index_kind, index, begin, end) -> list[ir.Value]:
    """The rows that the index names for the edges of a vector; past `end`, the last edge's row again."""
    last = builder.sub(end, ir.Constant(INT64, 1))
    rows = []
    for k in range(edges):
        position = builder.add(begin, ir.Constant(INT64, k)) if k else begin
        inside = builder.select(builder.icmp_signed('<', position, last), position, last) if k else begin
        if isinstance(index_kind, types.NoneType):
            rows.append(inside)
            continue
        row = builder.load(builder.gep(index, [inside]))
        rows.append(builder.sext(row, INT64) if row.type.width < 64 else row)
    return rows
