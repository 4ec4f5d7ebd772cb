"""Numbers in kernels of the CPU: their common types, conversions and operators, as LLVM instructions.

Integers meet as int64, or as uint64 where both are without a sign; with a float they meet as float64, like two floats
of different types. A comparison gives a boolean.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np
import torch
from llvmlite import ir
from numba import types

ELEMENT_TYPES = {
    torch.float32: types.float32,
    torch.float64: types.float64,
    torch.int32: types.int32,
    torch.int64: types.int64,
    torch.uint8: types.uint8,
    torch.bool: types.uint8,
}
# what kernels allocate
NUMPY_TYPES = {torch.float32: np.float32, torch.float64: np.float64}
LLVM_TYPES = {
    types.boolean: ir.IntType(1),
    types.uint8: ir.IntType(8),
    types.int32: ir.IntType(32),
    types.int64: ir.IntType(64),
    types.uint64: ir.IntType(64),
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
}
_COMPARISONS = {ast.Lt: '<', ast.LtE: '<=', ast.Gt: '>', ast.GtE: '>=', ast.Eq: '==', ast.NotEq: '!='}
_BITS = {ast.BitAnd: 'and_', ast.BitOr: 'or_', ast.BitXor: 'xor', ast.LShift: 'shl'}
_INTEGERS = {ast.Add: 'add', ast.Sub: 'sub', ast.Mult: 'mul'}
_FLOATS = {ast.Add: 'fadd', ast.Sub: 'fsub', ast.Mult: 'fmul', ast.Div: 'fdiv'}


def is_float(kind: types.Type) -> bool:
    return isinstance(kind, types.Float)


def is_signed(kind: types.Type) -> bool:
    return isinstance(kind, types.Integer) and kind.signed


def cast(builder: ir.IRBuilder, value: ir.Value, kind: types.Type, to: types.Type) -> ir.Value:
    """A number as one of another type."""
    if kind == to:
        return value
    target = LLVM_TYPES[to]
    if to == types.boolean:
        return truth(builder, value, kind)
    if is_float(kind):
        if is_float(to):
            return (builder.fpext if to.bitwidth > kind.bitwidth else builder.fptrunc)(value, target)
        return (builder.fptosi if is_signed(to) else builder.fptoui)(value, target)
    if is_float(to):
        return (builder.sitofp if is_signed(kind) else builder.uitofp)(value, target)
    if target.width <= value.type.width:
        return builder.trunc(value, target) if target.width < value.type.width else value
    return (builder.sext if is_signed(kind) else builder.zext)(value, target)


def truth(builder: ir.IRBuilder, value: ir.Value, kind: types.Type) -> ir.Value:
    """Whether a number is not zero, as one bit."""
    if kind == types.boolean:
        return value
    zero = ir.Constant(value.type, 0)
    return builder.fcmp_unordered('!=', value, zero) if is_float(kind) else builder.icmp_signed('!=', value, zero)


def common_kind(kinds: Sequence[types.Type]) -> types.Type:
    """The type in which numbers meet.

    Raises:
        ValueError: If an integer of 64 bits without a sign meets one with a sign.
    """
    if any(is_float(kind) for kind in kinds):
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else types.float64
    if types.uint64 not in kinds:
        return types.int64
    if any(is_signed(kind) for kind in kinds):
        raise ValueError(f'Expected integers that all have a sign or all have none (got {kinds})')
    return types.uint64


def binary(
    builder: ir.IRBuilder, operation: type[ast.operator], kinds: Sequence[types.Type], values: Sequence[ir.Value]
) -> tuple[types.Type, ir.Value]:
    """An operator on two numbers; a division by zero gives 0 of integers."""
    kind = types.float64 if operation is ast.Div and not any(map(is_float, kinds)) else common_kind(kinds)
    x, y = (cast(builder, value, own, kind) for own, value in zip(kinds, values, strict=True))
    if is_float(kind):
        return kind, getattr(builder, _FLOATS[operation])(x, y)
    if operation in _BITS:
        return kind, getattr(builder, _BITS[operation])(x, y)
    if operation is ast.RShift:
        return kind, (builder.ashr if is_signed(kind) else builder.lshr)(x, y)
    if operation in (ast.FloorDiv, ast.Mod):
        quotient, rest = _divide(builder, kind, x, y)
        return kind, quotient if operation is ast.FloorDiv else rest
    flags = ['nsw'] if is_signed(kind) else []
    return kind, getattr(builder, _INTEGERS[operation])(x, y, flags=flags)


def _divide(builder: ir.IRBuilder, kind: types.Type, x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Quotient, rounded down, and rest of two integers; both 0 where the divisor is."""
    zero, one = ir.Constant(y.type, 0), ir.Constant(y.type, 1)
    by_zero = builder.icmp_signed('==', y, zero)
    divisor = builder.select(by_zero, one, y)
    if is_signed(kind):
        quotient, rest = builder.sdiv(x, divisor), builder.srem(x, divisor)
        signs_differ = builder.icmp_signed('<', builder.xor(rest, divisor), zero)
        down = builder.and_(builder.icmp_signed('!=', rest, zero), signs_differ)
        quotient = builder.select(down, builder.sub(quotient, one), quotient)
        rest = builder.select(down, builder.add(rest, divisor), rest)
    else:
        quotient, rest = builder.udiv(x, divisor), builder.urem(x, divisor)
    return builder.select(by_zero, zero, quotient), builder.select(by_zero, zero, rest)


def compare(
    builder: ir.IRBuilder, operation: type[ast.cmpop], kinds: Sequence[types.Type], values: Sequence[ir.Value]
) -> ir.Value:
    """A comparison of two numbers, as one bit; of what is no number, only ``!=`` holds."""
    kind, sign = common_kind(kinds), _COMPARISONS[operation]
    x, y = (cast(builder, value, own, kind) for own, value in zip(kinds, values, strict=True))
    if is_float(kind):
        return (builder.fcmp_unordered if sign == '!=' else builder.fcmp_ordered)(sign, x, y)
    return (builder.icmp_signed if is_signed(kind) else builder.icmp_unsigned)(sign, x, y)


def negative(builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> tuple[types.Type, ir.Value]:
    """A number with the other sign."""
    if is_float(kind):
        return kind, builder.fneg(value)
    return types.int64, builder.neg(cast(builder, value, kind, types.int64))


def extreme(
    builder: ir.IRBuilder, largest: bool, kinds: Sequence[types.Type], values: Sequence[ir.Value]
) -> tuple[types.Type, ir.Value]:
    """The largest or smallest of some integers."""
    kind = common_kind(kinds)
    found, *others = (cast(builder, value, own, kind) for own, value in zip(kinds, values, strict=True))
    compared = builder.icmp_signed if is_signed(kind) else builder.icmp_unsigned
    for other in others:
        found = builder.select(compared('>' if largest else '<', other, found), other, found)
    return kind, found
