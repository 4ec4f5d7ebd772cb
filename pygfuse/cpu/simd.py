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


def _magnitude(builder, x):
    return call(builder, f'llvm.fabs.{suffix(x.type)}', [x], x.type)


def _sigmoid(builder, x):
    one = constant(x.type, 1.0)
    return divide(builder, one, add(builder, one, exponential(builder, negate(builder, x))))


def _tanh(builder, x):
    """(1 - e) / (1 + e) with e = exp(-2 |x|), with the sign of x."""
    one = constant(x.type, 1.0)
    e = exponential(builder, multiply(builder, _magnitude(builder, x), constant(x.type, -2.0)))
    size = divide(builder, subtract(builder, one, e), add(builder, one, e))
    return call(builder, f'llvm.copysign.{suffix(x.type)}', [size, x], x.type)


def _softplus(builder, x):
    """max(x, 0) + log(1 + exp(-|x|))."""
    tail = exponential(builder, negate(builder, _magnitude(builder, x)))
    return add(builder, relu(builder, x), logarithm(builder, add(builder, constant(x.type, 1.0), tail)))


@dataclasses.dataclass(frozen=True)
class _Exponential:
    """exp as 2^n times a polynomial in the rest: where 2^n comes from an addition to the exponent's bits."""

    shift: float  # adding it leaves the nearest integer in the low bits
    mantissa: int
    lowest: float  # below, the result is no longer a normal number
    highest: float  # above, it is infinite
    ln2_high: float
    ln2_low: float
    coefficients: tuple[float, ...]  # of exp on [-ln 2 / 2, ln 2 / 2], highest first


def _reciprocal_factorials(degree: int) -> tuple[float, ...]:
    values = [1.0]
    for k in range(1, degree + 1):
        values.append(values[-1] / k)
    return tuple(reversed(values))


_EXPONENTIALS = {
    'float': _Exponential(
        12582912.0, 23, -87.0, 88.0, 0.693145751953125, 1.42860682030941723e-6, _reciprocal_factorials(7)
    ),
    'double': _Exponential(
        6755399441055744.0,
        52,
        -708.0,
        709.0,
        0.693147180369123816490,
        1.90821492927058770002e-10,
        _reciprocal_factorials(13),
    ),
}


def exponential(builder, x: ir.Value) -> ir.Value:
    """exp, to a few units in the last place; NaN stays NaN, what would be less than a normal number becomes 0."""
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    whole_type = ir.VectorType(ir.IntType(64 if scheme.mantissa == 52 else 32), vector.count)
    # unordered comparisons, so that NaN passes
    above = builder.fcmp_unordered('>', x, constant(vector, scheme.lowest))
    highest = constant(vector, scheme.highest)
    overflow = builder.fcmp_ordered('>', x, highest)
    x = builder.select(overflow, highest, builder.select(above, x, constant(vector, scheme.lowest)))
    shifted = add(builder, multiply(builder, x, constant(vector, 1.4426950408889634)), constant(vector, scheme.shift))
    whole = subtract(builder, shifted, constant(vector, scheme.shift))
    rest = subtract(builder, x, multiply(builder, whole, constant(vector, scheme.ln2_high)))
    rest = subtract(builder, rest, multiply(builder, whole, constant(vector, scheme.ln2_low)))
    result = constant(vector, scheme.coefficients[0])
    for coefficient in scheme.coefficients[1:]:
        result = add(builder, multiply(builder, result, rest), constant(vector, coefficient))
    bits = builder.shl(builder.bitcast(shifted, whole_type), ir.Constant(whole_type, [scheme.mantissa] * vector.count))
    result = builder.bitcast(builder.add(builder.bitcast(result, whole_type), bits), vector)
    result = builder.select(above, result, constant(vector, 0.0))
    return builder.select(overflow, constant(vector, float('inf')), result)


def logarithm(builder, x: ir.Value) -> ir.Value:
    """log of a positive normal number, to a few units in the last place; NaN and infinity give NaN.

    With x = 2^n m and s = (m - 1) / (m + 1), log x = n log 2 + 2 (s + s^3 / 3 + s^5 / 5 + ...).
    """
    vector, scheme = x.type, _EXPONENTIALS[str(x.type.element)]
    width = 64 if scheme.mantissa == 52 else 32
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
    series = constant(vector, 1.0 / (2 * terms - 1))
    for k in range(terms - 1, 0, -1):
        series = add(builder, multiply(builder, series, square), constant(vector, 1.0 / (2 * k - 1)))
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
    vocabulary.log: 1,
    vocabulary.sqrt: 1,
    vocabulary.sigmoid: 1,
    vocabulary.tanh: 1,
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
    vocabulary.log: logarithm,
    vocabulary.sqrt: _square_root,
    vocabulary.sigmoid: _sigmoid,
    vocabulary.tanh: _tanh,
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
