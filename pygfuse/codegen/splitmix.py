"""`pygfuse.program.splitmix` as LLVM instructions on vectors of floating numbers: the same on every device."""

from __future__ import annotations

from llvmlite import ir

from pygfuse.program.splitmix import DIGITS, FACTORS, MARK_SHIFT, SHIFTS

_INT32 = ir.IntType(32)


def dropout_factor(builder, mark: ir.Value, key: ir.Value, probability: ir.Value) -> ir.Value:
    """0 where the number that is drawn is less than a probability, else ``1 / (1 - probability)``."""
    type_ = mark.type
    word, increment = _bits(builder, mark), builder.or_(_bits(builder, key), _word(type_.count, 1))
    word = builder.mul(_mixed(builder, word, MARK_SHIFT), increment)
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        word = builder.mul(_mixed(builder, word, shift), _word(type_.count, factor))
    word = builder.lshr(_mixed(builder, word, SHIFTS[-1]), _word(type_.count, 32 - DIGITS))
    # a signed conversion takes one instruction, and no word is that large
    drawn = builder.fmul(builder.sitofp(word, type_), ir.Constant(type_, [2.0**-DIGITS] * type_.count))
    one, zero = (ir.Constant(type_, [number] * type_.count) for number in (1.0, 0.0))
    scale = builder.fdiv(one, builder.fsub(one, probability))
    return builder.select(builder.fcmp_ordered('>=', drawn, probability), scale, zero)


def _mixed(builder, word: ir.Value, shift: int) -> ir.Value:
    return builder.xor(word, builder.lshr(word, _word(word.type.count, shift)))


def _word(count: int, number: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INT32, count), [number] * count)


def _bits(builder, x: ir.Value) -> ir.Value:
    """The bits of numbers in float32, from which those of a wider type were made."""
    count = x.type.count
    if isinstance(x.type.element, ir.DoubleType):
        x = builder.fptrunc(x, ir.VectorType(ir.FloatType(), count))
    return builder.bitcast(x, ir.VectorType(_INT32, count))
