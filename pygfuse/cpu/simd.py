"""Explicit SIMD for Numba: the values of an edge program as LLVM vectors.

Two Numba types hold them. `HeadVector` has one lane per head, for one edge or for several edges side by side, so that
the arithmetic on scores fills the registers whatever the number of heads. `ChannelRow` has one lane per head and
channel, as a list of register-sized blocks; a block never splits a head that fits into one. Both take Python's
operators and the words of `pygfuse.program.vocabulary`; a head vector meets a channel row by being spread over it, a
shuffle.

What reads and writes memory is in `pygfuse.cpu.layout`.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin
from numba.core.registry import cpu_target
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import register_model

from pygfuse.codegen import llvm
from pygfuse.codegen.llvm import (
    add,
    call,
    concatenate,
    constant,
    divide,
    magnitude,
    multiply,
    negate,
    power_of_two_at_least,
    relu,
    shuffle,
    splat,
    subtract,
    suffix,
)
from pygfuse.program import vocabulary


@functools.cache
def register_bytes() -> int:
    """Bytes of the widest vector register of the processor that Numba compiles for."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(',')
    if '+avx512f' in features:
        return 64
    return 32 if '+avx2' in features else 16


def llvm_element(element: types.Float) -> ir.Type:
    return ir.FloatType() if element == types.float32 else ir.DoubleType()


@dataclasses.dataclass(frozen=True)
class Block:
    """One register of a channel row: `valid` values from position `start` of the row, and the head of every lane."""

    start: int
    valid: int
    heads: tuple[int, ...]


def blocks_of(heads: int, channels: int, lanes: int) -> tuple[Block, ...]:
    """Cuts a row of heads x channels values into blocks of at most `lanes` lanes.

    A head of at least `lanes` channels takes blocks of its own; smaller heads share a block, as many as fit when each
    is given a power of two of lanes (which the sum over channels needs).
    """
    padded = power_of_two_at_least(channels)
    shared = max(1, lanes // padded)
    width = min(lanes, padded * power_of_two_at_least(min(shared, heads)))
    blocks = []
    for first in range(0, heads, shared):
        begin, end = first * channels, min(first + shared, heads) * channels
        for start in range(begin, end, lanes):
            valid = min(lanes, end - start)
            owners = tuple((start + min(lane, valid - 1)) // channels for lane in range(width))
            blocks.append(Block(start, valid, owners))
    return tuple(blocks)


class Tile(types.Type):
    """A value of an edge program, in registers."""

    element: types.Float
    heads: int


class HeadVector(Tile):
    """One value per head for each of `edges` edges: lane ``edge * heads + head`` of one LLVM vector."""

    def __init__(self, element: types.Float, edges: int, heads: int) -> None:
        self.element, self.edges, self.heads = element, edges, heads
        super().__init__(name=f'HeadVector({element}, {edges}, {heads})')

    @property
    def lanes(self) -> int:
        return self.edges * self.heads


class ChannelRow(Tile):
    """One value per head and channel of one edge, in blocks."""

    def __init__(self, element: types.Float, heads: int, channels: int) -> None:
        self.element, self.heads, self.channels = element, heads, channels
        self.blocks = blocks_of(heads, channels, register_bytes() // (element.bitwidth // 8))
        super().__init__(name=f'ChannelRow({element}, {heads}, {channels})')

    @property
    def lanes(self) -> int:
        return len(self.blocks[0].heads)


def llvm_vector(element: types.Float, lanes: int) -> ir.VectorType:
    return ir.VectorType(llvm_element(element), lanes)


@register_model(HeadVector)
class HeadVectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, llvm_vector(fe_type.element, fe_type.lanes))


@register_model(ChannelRow)
class ChannelRowModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        block = llvm_vector(fe_type.element, fe_type.lanes)
        super().__init__(dmm, fe_type, ir.ArrayType(block, len(fe_type.blocks)))


# Tiles at build time


def unpack(builder, kind: Tile, value: ir.Value) -> list[ir.Value]:
    """The LLVM vectors of a tile."""
    if isinstance(kind, HeadVector):
        return [value]
    return [builder.extract_value(value, i) for i in range(len(kind.blocks))]


def pack(builder, context, kind: Tile, vectors: Sequence[ir.Value]) -> ir.Value:
    """The tile of these LLVM vectors."""
    if isinstance(kind, HeadVector):
        return vectors[0]
    row = ir.Constant(context.get_data_type(kind), ir.Undefined)
    for i, vector in enumerate(vectors):
        row = builder.insert_value(row, vector, i)
    return row


def broadcast(context, builder, kind: types.Type, value: ir.Value, to: Tile) -> list[ir.Value]:
    """The LLVM vectors of a scalar, a head vector or a row, in the form of `to`."""
    if not isinstance(kind, Tile):
        scalar = context.cast(builder, value, kind, to.element)
        vector = splat(builder, scalar, to.lanes)
        return [vector] * (1 if isinstance(to, HeadVector) else len(to.blocks))
    if kind == to:
        return unpack(builder, kind, value)
    if isinstance(to, HeadVector):
        return [shuffle(builder, value, [lane % kind.heads for lane in range(to.lanes)])]
    return [shuffle(builder, value, block.heads) for block in to.blocks]


def common_tile(kinds: Sequence[types.Type]) -> Tile | None:
    """The form in which these operands meet, or None if they do not."""
    tiles = [kind for kind in kinds if isinstance(kind, Tile)]
    if not tiles or not all(isinstance(kind, (Tile, types.Number)) for kind in kinds):
        return None
    rows = [tile for tile in tiles if isinstance(tile, ChannelRow)]
    widest = rows[0] if rows else max(tiles, key=lambda tile: tile.edges)
    for tile in tiles:
        fits = tile == widest or (isinstance(tile, HeadVector) and tile.edges == 1)
        if not fits or tile.heads != widest.heads or tile.element != widest.element:
            return None
    return widest


# Elementwise words


def _square_root(builder, x):
    return call(builder, f'llvm.sqrt.{suffix(x.type)}', [x], x.type)


def _tanh(builder, x):
    """-t / (2 + t) with t = exp(-2 |x|) - 1, with the sign of x."""
    t = exponential_minus_one(builder, multiply(builder, magnitude(builder, x), constant(x.type, -2.0)))
    size = divide(builder, negate(builder, t), add(builder, constant(x.type, 2.0), t))
    return call(builder, f'llvm.copysign.{suffix(x.type)}', [size, x], x.type)


def _softplus(builder, x):
    """max(x, 0) + log(1 + e) with e = exp(-|x|).

    With s = e / (2 + e), log(1 + e) = 2 (s + s^3 / 3 + s^5 / 5 + ...): no digit of a small e is lost in a sum with 1.
    """
    e = exponential(builder, negate(builder, magnitude(builder, x)))
    two = constant(x.type, 2.0)
    twice_s = multiply(builder, e, divide(builder, two, add(builder, two, e)))
    square = multiply(builder, multiply(builder, twice_s, twice_s), constant(x.type, 0.25))
    terms = 8 if isinstance(x.type.element, ir.FloatType) else 17
    return add(builder, relu(builder, x), multiply(builder, twice_s, _odd_series(builder, square, terms)))


def _odd_series(builder, square: ir.Value, terms: int) -> ir.Value:
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
    series = _odd_series(builder, square, terms)
    low = add(
        builder,
        multiply(builder, multiply(builder, constant(vector, 2.0), s), series),
        multiply(builder, n, constant(vector, scheme.ln2_low)),
    )
    result = add(builder, multiply(builder, n, constant(vector, scheme.ln2_high)), low)
    return add(builder, result, builder.fsub(x, x))


def elementwise(word: Callable, emit: Callable) -> None:
    """Gives an operator or a word of the vocabulary its meaning on tiles: lane by lane."""

    @infer_global(word)
    class Template(AbstractTemplate):
        def generic(self, args, kws):
            kind = common_tile(args)
            return None if kws or kind is None else signature(kind, *args)

    def lower(context, builder, sig, args):
        to = sig.return_type
        operands = [broadcast(context, builder, kind, value, to) for kind, value in zip(sig.args, args, strict=True)]
        return pack(builder, context, to, [emit(builder, *vectors) for vectors in zip(*operands, strict=True)])

    for kinds in _operand_kinds(word):
        lower_builtin(word, *kinds)(lower)


_ARITY = {
    operator.neg: 1,
    vocabulary.exp: 1,
    vocabulary.expm1: 1,
    vocabulary.log: 1,
    vocabulary.sqrt: 1,
    vocabulary.sigmoid: 1,
    vocabulary.tanh: 1,
    vocabulary.sech_squared: 1,
    vocabulary.softplus: 1,
    vocabulary.relu: 1,
    vocabulary.positive: 3,
    vocabulary.equal: 4,
}


def _operand_kinds(word: Callable) -> list[tuple]:
    """All ways to mix tiles and numbers, at least one a tile."""
    kinds: list[tuple] = [()]
    for _ in range(_ARITY.get(word, 2)):
        kinds = [(*some, kind) for some in kinds for kind in (Tile, types.Number)]
    return [some for some in kinds if Tile in some]


ELEMENTWISE = {
    **llvm.ELEMENTWISE,
    vocabulary.exp: exponential,
    vocabulary.expm1: exponential_minus_one,
    vocabulary.log: logarithm,
    vocabulary.sqrt: _square_root,
    vocabulary.sigmoid: llvm.sigmoid(exponential),
    vocabulary.tanh: _tanh,
    vocabulary.sech_squared: llvm.sech_squared(exponential),
    vocabulary.softplus: _softplus,
}

for _word, _emit in ELEMENTWISE.items():
    elementwise(_word, _emit)


# The sum over a head's channels


def _padding(block: Block, row: ChannelRow, padded: int) -> list[int]:
    """The shuffle that gives each head of a block `padded` lanes; lane ``row.lanes`` is a zero."""
    if row.channels >= row.lanes:
        return [lane if lane < block.valid else row.lanes for lane in range(row.lanes)]
    sources = [(lane // padded) * row.channels + lane % padded for lane in range(row.lanes)]
    return [
        source if lane % padded < row.channels and source < block.valid else row.lanes
        for lane, source in enumerate(sources)
    ]


def _segments(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> tuple[list[ir.Value], int]:
    """Vectors of equal segments, one a head and in the order of heads, zero where there is no value; their length."""
    zero = constant(vectors[0].type, 0.0)
    padded = min(row.lanes, power_of_two_at_least(row.channels))
    segments = []
    for block, vector in zip(row.blocks, vectors, strict=True):
        if block.valid < row.lanes:
            vector = shuffle(builder, vector, _padding(block, row, padded), zero)
        if block.start % row.channels == 0:
            segments.append(vector)
        else:  # a further block of the same head
            segments[-1] = add(builder, segments[-1], vector)
    return segments, padded


def _halve(builder, a: ir.Value, b: ir.Value, length: int) -> ir.Value:
    """Adds the second half of every segment to the first: segments of `a`, then those of `b`, half as long."""
    lanes = range(2 * a.type.count)
    first = [lane for lane in lanes if lane % length < length // 2]
    second = [lane for lane in lanes if lane % length >= length // 2]
    return add(builder, shuffle(builder, a, first, b), shuffle(builder, a, second, b))


def sum_over_channels(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> ir.Value:
    """A head vector of the sums over each head's channels: a tree of shuffles that reduces many heads at once."""
    vectors, length = _segments(builder, row, vectors)
    while length > 1:
        if len(vectors) % 2:
            vectors.append(ir.Constant(vectors[0].type, ir.Undefined))
        vectors = [_halve(builder, a, b, length) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        length //= 2
    return shuffle(builder, concatenate(builder, vectors), range(row.heads))


@infer_global(vocabulary.sum_channels)
class _SumChannels(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 1 and isinstance(args[0], ChannelRow):
            return signature(HeadVector(args[0].element, 1, args[0].heads), *args)
        return None


@lower_builtin(vocabulary.sum_channels, ChannelRow)
def _lower_sum_channels(context, builder, sig, args):
    return sum_over_channels(builder, sig.args[0], unpack(builder, sig.args[0], args[0]))
