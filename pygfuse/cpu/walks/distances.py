"""Squared distances in registers, one lane a point: sums of squares, comparisons with a limit, choices, and ranks."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.memory import INT1, INT64, alignment, pointer_to
from pygfuse.cpu.vectors.simd import ChannelRow


def _with_number(context, builder, signature, arguments, combine) -> ir.Value:
    """What `combine` makes of the registers of two rows, and of a number in all lanes."""
    kind = signature.return_type
    first, second = (simd.unpack(builder, kind, argument) for argument in arguments[:2])
    value = llvm.splat(builder, arguments[2], kind.lanes)
    return simd.pack(builder, context, kind, [combine(*both, value) for both in zip(first, second, strict=True)])


@intrinsic
def add_squared_difference(total, row, value):
    """``total + (row - value)^2``, lane by lane, each operation rounded."""

    def emit(context, builder, signature, arguments):
        def added(total, row, value):
            difference = builder.fsub(row, value)
            return builder.fadd(total, builder.fmul(difference, difference))

        return _with_number(context, builder, signature, arguments, added)

    return total(total, row, total.element), emit


@intrinsic
def lanes_not_above(row, limit):
    """A number whose bit i tells whether lane i of the row is not above the limit, a number or a row of them.

    What is no number is not above it.
    """

    def emit(context, builder, signature, arguments):
        kind: ChannelRow = signature.args[0]
        limits = simd.broadcast(context, builder, signature.args[1], arguments[1], kind)
        found = ir.Constant(INT64, 0)
        for block, vector, limit in zip(kind.blocks, simd.unpack(builder, kind, arguments[0]), limits, strict=True):
            bits = builder.bitcast(builder.fcmp_unordered('<=', vector, limit), ir.IntType(kind.lanes))
            shifted = builder.shl(builder.zext(bits, INT64), ir.Constant(INT64, block.start))
            found = builder.or_(found, shifted)
        return found

    return types.uint64(row, limit if limit == row else row.element), emit


@intrinsic
def lowest_bit(bits):
    """The position of the lowest bit that is set; there must be one."""

    def emit(context, builder, signature, arguments):
        kind = ir.FunctionType(INT64, [INT64, ir.IntType(1)])
        name = 'llvm.cttz.i64'
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, [arguments[0], ir.Constant(ir.IntType(1), 1)])

    return types.int64(types.uint64), emit


@intrinsic
def smaller(x, y):
    """The smaller value of two registers, lane by lane; `x` where `y` is no number."""

    def emit(context, builder, signature, arguments):
        kind = signature.return_type
        ((x,), (y,)) = (simd.unpack(builder, kind, argument) for argument in arguments)
        return simd.pack(builder, context, kind, [builder.select(builder.fcmp_ordered('<', y, x), y, x)])

    return x(x, y), emit


@intrinsic
def count_if_ahead(counts, row, first, value, position):
    """`counts`, and one more in the lanes of a register `row` that `value` is ahead of.

    Lane i has the position ``first + i``; of equal values the one with the lower position is ahead.
    """

    def emit(context, builder, signature, arguments):
        kind = signature.return_type
        ((counts,), (row,)) = (simd.unpack(builder, kind, argument) for argument in arguments[:2])
        first, value, position = arguments[2:]
        value = llvm.splat(builder, value, kind.lanes)
        lanes = ir.Constant(ir.VectorType(llvm.INT32, kind.lanes), list(range(kind.lanes)))
        lane = builder.trunc(builder.sub(position, first), llvm.INT32)
        behind = builder.icmp_signed('>', lanes, llvm.splat(builder, lane, kind.lanes))
        tied = builder.and_(builder.fcmp_ordered('==', value, row), behind)
        ahead = builder.or_(builder.fcmp_ordered('<', value, row), tied)
        one, zero = llvm.constant(row.type, 1.0), llvm.constant(row.type, 0.0)
        return simd.pack(builder, context, kind, [builder.fadd(counts, builder.select(ahead, one, zero))])

    return counts(counts, row, types.int64, counts.element, types.int64), emit


@intrinsic
def count_if_below(counts, row, value):
    """`counts`, and one more in the lanes of a register `row` that `value` is below."""

    def emit(context, builder, signature, arguments):
        def counted(count, row, value):
            one, zero = (llvm.constant(value.type, number) for number in (1.0, 0.0))
            return builder.fadd(count, builder.select(builder.fcmp_ordered('<', value, row), one, zero))

        return _with_number(context, builder, signature, arguments, counted)

    return counts(counts, row, counts.element), emit


@intrinsic
def count_bits(bits):
    """How many bits are set."""

    def emit(context, builder, signature, arguments):
        return llvm.call(builder, 'llvm.ctpop.i64', arguments, INT64)

    return types.int64(types.uint64), emit


@intrinsic
def bits_of(value):
    """The bits of a number: those of numbers that are not negative ascend as the numbers do."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], INT64)

    return types.int64(types.float64), emit


@intrinsic
def float_of_bits(bits):
    """The number that has these bits."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def append_lanes(memory, place, row, bits):
    """Stores the lanes of a row whose bits are set, one behind the other, from `place` on; whole registers may be
    written."""

    def emit(context, builder, signature, arguments):
        kind: ChannelRow = signature.args[2]
        memory, place, row, bits = arguments
        for block, vector in zip(kind.blocks, simd.unpack(builder, kind, row), strict=True):
            own = builder.lshr(bits, ir.Constant(INT64, block.start)) if block.start else bits
            in_one_register = kind.lanes * alignment(kind.element) == 64
            place = (_append_register if in_one_register else _append_each)(builder, memory, place, vector, own)
        return context.get_dummy_value()

    return types.void(memory, types.int64, row, types.uint64), emit


def _append_register(builder, memory: ir.Value, place: ir.Value, vector: ir.Value, bits: ir.Value) -> ir.Value:
    """Stores some lanes of a register of AVX-512; returns the place behind them."""
    lanes = vector.type.count
    bits = builder.trunc(bits, ir.IntType(lanes))
    mask = builder.bitcast(bits, ir.VectorType(INT1, lanes))
    # in a register first: what compresses into memory is slow on AMD's processors
    name = f'llvm.x86.avx512.mask.compress.{llvm.suffix(vector.type)}'
    packed = llvm.call(builder, name, [vector, ir.Constant(vector.type, ir.Undefined), mask], vector.type)
    builder.store(packed, pointer_to(builder, memory, place, vector.type), align=8)
    return builder.add(place, llvm.call(builder, 'llvm.ctpop.i64', [builder.zext(bits, INT64)], INT64))


def _append_each(builder, memory: ir.Value, place: ir.Value, vector: ir.Value, bits: ir.Value) -> ir.Value:
    """The same lane by lane: each is stored, and written over by the next if its bit is not set."""
    for lane in range(vector.type.count):
        number = builder.extract_element(vector, ir.Constant(llvm.INT32, lane))
        builder.store(number, builder.gep(memory, [place]))
        bit = builder.and_(builder.lshr(bits, ir.Constant(INT64, lane)), ir.Constant(INT64, 1))
        place = builder.add(place, bit)
    return place
