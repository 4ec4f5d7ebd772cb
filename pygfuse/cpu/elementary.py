"""Exponential and logarithm of LLVM vectors on a CPU: polynomials, to a few units in the last place."""

from __future__ import annotations

import dataclasses

from llvmlite import ir

from pygfuse.codegen.llvm import add, constant, divide, multiply, subtract


def odd_series(builder, square: ir.Value, terms: int) -> ir.Value:
    """1 + s^2 / 3 + s^4 / 5 + ..., so many terms."""
    series = constant(square.type, 1.0 / (2 * terms - 1))
    for k in range(terms - 1, 0, -1):
        series = add(builder, multiply(builder, series, square), constant(square.type, 1.0 / (2 * k - 1)))
    return series


@dataclasses.dataclass(frozen=True)
class _Exponential:
    """exp as 2^n times a polynomial in the rest: where 2^n comes from n in the exponent's bits."""

    shift: float  # adding it leaves the nearest integer in the low bits
    mantissa: int
    lowest: float  # below, the result is 0
    highest: float  # above, it is infinite
    all_lost: float  # below, exp(x) - 1 is -1
    ln2_high: float
    ln2_low: float
    coefficients: tuple[float, ...]  # of (exp(r) - 1) / r on [-ln 2 / 2, ln 2 / 2], highest first

    @property
    def bits(self) -> int:
        return 64 if self.mantissa == 52 else 32

    @property
    def bias(self) -> int:
        """What is added to an exponent in its bits."""
        return 1023 if self.mantissa == 52 else 127


def _reciprocal_factorials(degree: int) -> tuple[float, ...]:
    values = [1.0]
    for k in range(1, degree + 1):
        values.append(values[-1] / k)
    return tuple(reversed(values[1:]))


_EXPONENTIALS = {
    'float': _Exponential(
        12582912.0, 23, -104.0, 88.8, -18.0, 0.693145751953125, 1.42860682030941723e-6, _reciprocal_factorials(7)
    ),
    'double': _Exponential(
        6755399441055744.0,
        52,
        -745.2,
        709.9,
        -38.0,
        0.693147180369123816490,
        1.90821492927058770002e-10,
        _reciprocal_factorials(13),
    ),
}


def _reduced(builder, scheme: _Exponential, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """With x = n log 2 + r: the integer n, r and (exp(r) - 1) / r."""
    vector = x.type
    shift = constant(vector, scheme.shift)
    shifted = add(builder, multiply(builder, x, constant(vector, 1.4426950408889634)), shift)
    whole = subtract(builder, shifted, shift)
    rest = subtract(builder, x, multiply(builder, whole, constant(vector, scheme.ln2_high)))
    rest = subtract(builder, rest, multiply(builder, whole, constant(vector, scheme.ln2_low)))
    growth = constant(vector, scheme.coefficients[0])
    for coefficient in scheme.coefficients[1:]:
        growth = add(builder, multiply(builder, growth, rest), constant(vector, coefficient))
    kind = ir.VectorType(ir.IntType(scheme.bits), vector.count)
    n = builder.sub(builder.bitcast(shifted, kind), builder.bitcast(shift, kind))
    return n, rest, growth


def _power_of_two(builder, scheme: _Exponential, vector: ir.VectorType, biased: ir.Value) -> ir.Value:
    """2^n, given n plus the bias."""
    places = ir.Constant(biased.type, [scheme.mantissa] * vector.count)
    return builder.bitcast(builder.shl(biased, places), vector)


def _above(builder, x: ir.Value, limit: float) -> ir.Value:
    """Whether x > limit, or NaN."""
    return builder.fcmp_unordered('>', x, constant(x.type, limit))


def _at_most(builder, x: ir.Value, limit: float) -> ir.Value:
    """The lesser of both; NaN stays NaN."""
    return builder.select(builder.fcmp_ordered('>', x, constant(x.type, limit)), constant(x.type, limit), x)


def exponential(builder, x: ir.Value) -> ir.Value:
    """exp, to a few units in the last place; NaN stays NaN, what is less than a normal number has its digits, too."""
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    # what is 0 is not computed: on some processors numbers below the normal ones take long
    above, zero = _above(builder, x, scheme.lowest), constant(vector, 0.0)
    n, rest, growth = _reduced(builder, scheme, builder.select(above, _at_most(builder, x, scheme.highest), zero))
    result = add(builder, multiply(builder, growth, rest), constant(vector, 1.0))
    # 2^n may be no normal number: it is the product of two that are
    twice_bias = ir.Constant(n.type, [2 * scheme.bias] * vector.count)
    biased = builder.add(n, twice_bias)
    half = builder.lshr(biased, ir.Constant(n.type, [1] * vector.count))
    for part in (half, builder.sub(biased, half)):
        result = multiply(builder, result, _power_of_two(builder, scheme, vector, part))
    return builder.select(above, result, zero)


def exponential_minus_one(builder, x: ir.Value) -> ir.Value:
    """exp(x) - 1, to a few units in the last place of any x."""
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    lowest = constant(vector, scheme.all_lost)
    inside = builder.select(_above(builder, x, scheme.all_lost), _at_most(builder, x, scheme.highest), lowest)
    n, rest, growth = _reduced(builder, scheme, inside)
    small = multiply(builder, growth, rest)
    # 2^n small + 2^n - 1, by half of it: 2^n itself may be infinite
    less = ir.Constant(n.type, [scheme.bias - 1] * vector.count)
    power = _power_of_two(builder, scheme, vector, builder.add(n, less))
    half = add(builder, multiply(builder, small, power), subtract(builder, power, constant(vector, 0.5)))
    is_small = builder.icmp_signed('==', n, ir.Constant(n.type, [0] * vector.count))
    return builder.select(is_small, small, add(builder, half, half))


def logarithm(builder, x: ir.Value) -> ir.Value:
    """log of a positive normal number, to a few units in the last place; NaN and infinity give NaN.

    With x = 2^n m and s = (m - 1) / (m + 1), log x = n log 2 + 2 (s + s^3 / 3 + s^5 / 5 + ...).
    """
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    width = scheme.bits
    whole_type = ir.VectorType(ir.IntType(width), vector.count)

    def integers(value):
        return ir.Constant(whole_type, [value] * vector.count)

    # subtracting the bits of sqrt(1/2) first puts m between sqrt(1/2) and sqrt(2)
    root = 0x3F3504F3 if width == 32 else 0x3FE6A09E667F3BCD
    bits = builder.bitcast(x, whole_type)
    exponent = builder.ashr(builder.sub(bits, integers(root)), integers(scheme.mantissa))
    m = builder.bitcast(builder.sub(bits, builder.shl(exponent, integers(scheme.mantissa))), vector)
    n = builder.sitofp(exponent, vector)
    one = constant(vector, 1.0)
    s = divide(builder, subtract(builder, m, one), add(builder, m, one))
    square = multiply(builder, s, s)
    terms = 6 if width == 32 else 12
    series = odd_series(builder, square, terms)
    low = add(
        builder,
        multiply(builder, multiply(builder, constant(vector, 2.0), s), series),
        multiply(builder, n, constant(vector, scheme.ln2_low)),
    )
    result = add(builder, multiply(builder, n, constant(vector, scheme.ln2_high)), low)
    return add(builder, result, builder.fsub(x, x))
