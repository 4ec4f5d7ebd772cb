"""Exponential and logarithm of LLVM vectors on a CPU: polynomials, to a few units in the last place."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

from llvmlite import ir

from pygfuse.codegen.llvm import INT32, add, call, constant, divide, multiply, negate, splat, subtract, suffix
from pygfuse.cpu.vectors import avx512


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
        12582912.0,
        23,
        -104.0,
        88.8,
        -18.0,
        0.693145751953125,
        1.42860682030941723e-6,
        # of least relative error, 2e-9
        (0.0013843646, 0.008374164, 0.041668002, 0.16666432, 0.49999994, 1.0),
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


def constants(builder, vector: ir.VectorType, numbers: Sequence[float]) -> Callable[[int], ir.Value]:
    """A function of a place in `numbers` that reads the number from memory, where it is used.

    An instruction takes one operand from memory. Of constants LLVM would fill the registers, and leave none to work on
    several values at once; so it must not know that what is read is the same each time.
    """
    array = ir.ArrayType(vector.element, len(numbers))
    name = 'constants_' + hashlib.blake2s(repr((str(array), tuple(numbers))).encode()).hexdigest()
    table = builder.module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(builder.module, array, name)
        table.linkage, table.global_constant = 'internal', True
        table.initializer = ir.Constant(array, list(numbers))
    element = vector.element.as_pointer()
    unknown = ir.FunctionType(element, [element])
    pointer = builder.asm(unknown, '', '=r,0', [builder.bitcast(table, element)], True)

    def read(place: int) -> ir.Value:
        return splat(builder, builder.load(builder.gep(pointer, [ir.Constant(INT32, place)])), vector.count)

    return read


def polynomial(builder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """The polynomial with these coefficients, highest first."""
    read = constants(builder, x.type, coefficients)
    result = read(0)
    for i in range(1, len(coefficients)):
        result = add(builder, multiply(builder, result, x), read(i))
    return result


def _reduced(builder, scheme: _Exponential, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """With x = n log 2 + r: the integer n, also as a float, r and (exp(r) - 1) / r."""
    vector = x.type
    shift = constant(vector, scheme.shift)
    shifted = add(builder, multiply(builder, x, constant(vector, 1.4426950408889634)), shift)
    whole = subtract(builder, shifted, shift)
    rest = subtract(builder, x, multiply(builder, whole, constant(vector, scheme.ln2_high)))
    rest = subtract(builder, rest, multiply(builder, whole, constant(vector, scheme.ln2_low)))
    kind = ir.VectorType(ir.IntType(scheme.bits), vector.count)
    n = builder.sub(builder.bitcast(shifted, kind), builder.bitcast(shift, kind))
    return n, whole, rest, polynomial(builder, rest, scheme.coefficients)


def _power_of_two(builder, scheme: _Exponential, vector: ir.VectorType, biased: ir.Value) -> ir.Value:
    """2^n, given n plus the bias."""
    places = ir.Constant(biased.type, [scheme.mantissa] * vector.count)
    return builder.bitcast(builder.shl(biased, places), vector)


def _above(builder, x: ir.Value, limit: float) -> ir.Value:
    """Whether x > limit, or NaN."""
    return builder.fcmp_unordered('>', x, constant(x.type, limit))


def _at_least(builder, x: ir.Value, limit: float) -> ir.Value:
    """The greater of both; NaN stays NaN."""
    return builder.select(_above(builder, x, limit), x, constant(x.type, limit))


def _at_most(builder, x: ir.Value, limit: float) -> ir.Value:
    """The lesser of both; NaN stays NaN."""
    return builder.select(builder.fcmp_ordered('>', x, constant(x.type, limit)), constant(x.type, limit), x)


def exponential(builder, x: ir.Value) -> ir.Value:
    """exp, to a few units in the last place; NaN stays NaN, what is less than a normal number has its digits, too."""
    return _exponential_below(builder, _at_most(builder, x, _EXPONENTIALS[str(x.type.element)].highest))


def tail(builder, x: ir.Value) -> ir.Value:
    """exp(-|x|), as `exponential`."""
    size = call(builder, f'llvm.fabs.{suffix(x.type)}', [x], x.type)
    return _exponential_below(builder, negate(builder, size))


def _exponential_below(builder, x: ir.Value) -> ir.Value:
    """exp of what is not so large that the result is infinite by more than one doubling."""
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    one = constant(vector, 1.0)
    # what is 0 is not computed: on some processors numbers below the normal ones take long
    above, zero = _above(builder, x, scheme.lowest), constant(vector, 0.0)
    if avx512.has(vector):
        _, whole, rest, growth = _reduced(builder, scheme, x)
        return avx512.scaled(builder, add(builder, multiply(builder, growth, rest), one), whole, above)
    n, _, rest, growth = _reduced(builder, scheme, builder.select(above, x, zero))
    result = add(builder, multiply(builder, growth, rest), one)
    # 2^n may be no normal number: it is the product of two that are
    twice_bias = ir.Constant(n.type, [2 * scheme.bias] * vector.count)
    biased = builder.add(n, twice_bias)
    half = builder.lshr(biased, ir.Constant(n.type, [1] * vector.count))
    for part in (half, builder.sub(biased, half)):
        result = multiply(builder, result, _power_of_two(builder, scheme, vector, part))
    return builder.select(above, result, zero)


# log(1 + e) / e for e in [0, 1], of least relative error, 3e-8
_LOGARITHM = (
    0.0052327067, -0.029505314, 0.078226127, -0.13663265, 0.19106019, -0.24842986, 0.33319098, -0.49999493, 0.99999994,
)  # fmt: skip


def logarithm_above_one(builder, e: ir.Value) -> ir.Value:
    """log(1 + e) of an e from 0 to 1, with all digits of a small one.

    In float64 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = e / (2 + e).
    """
    if isinstance(e.type.element, ir.FloatType):
        return multiply(builder, e, polynomial(builder, e, _LOGARITHM))
    two = constant(e.type, 2.0)
    twice_s = multiply(builder, e, divide(builder, two, add(builder, two, e)))
    square = multiply(builder, multiply(builder, twice_s, twice_s), constant(e.type, 0.25))
    return multiply(builder, twice_s, odd_series(builder, square, 17))


# in 1 / (1 + |x| / 4), highest first, with relative errors of 1.3e-8 and 4e-17
_NORMAL_TAILS = {
    'float': (
        0.0157418441,
        -0.05837098,
        0.0415892863,
        0.0413678096,
        0.00240035857,
        0.0919320949,
        0.0702728822,
        0.0958633854,
        0.0994535661,
        0.0997497554,
    ),
    'double': (
        -0.0010122350213441524,
        0.011096471880184597,
        -0.054406282913560956,
        0.1544424516474848,
        -0.26991779697144513,
        0.2670277219048097,
        -0.04922290379091282,
        -0.27548256352588485,
        0.4778805031969773,
        -0.4670310516161868,
        0.3317856140129587,
        -0.17592946165709222,
        0.0680096565489385,
        -0.03072241832130962,
        0.0032696963836554745,
        0.005864963379556649,
        0.023616019479006024,
        0.04321725613067316,
        0.06350614776899742,
        0.0810349656839141,
        0.09350210585723466,
        0.09973556983946887,
        0.09973557010387663,
    ),
}


def normal_tail(builder, x: ir.Value) -> ir.Value:
    """The share of a normal distribution beyond ``|x|``, over ``exp(-x^2 / 2)``, to a few units in the last place."""
    one, size = constant(x.type, 1.0), call(builder, f'llvm.fabs.{suffix(x.type)}', [x], x.type)
    t = divide(builder, one, add(builder, one, multiply(builder, size, constant(x.type, 0.25))))
    return multiply(builder, polynomial(builder, t, _NORMAL_TAILS[str(x.type.element)]), t)


def exponential_minus_one(builder, x: ir.Value) -> ir.Value:
    """exp(x) - 1, to a few units in the last place of any x."""
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    inside = _at_most(builder, _at_least(builder, x, scheme.all_lost), scheme.highest)
    n, _, rest, growth = _reduced(builder, scheme, inside)
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
