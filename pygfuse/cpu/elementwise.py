"""The operators and the words of the vocabulary on vectors: lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.codegen.llvm import add, call, constant, divide, magnitude, multiply, negate, relu, suffix
from pygfuse.cpu.channel_sums import sum_of_row
from pygfuse.cpu.elementary import exponential, exponential_minus_one, logarithm, odd_series
from pygfuse.cpu.simd import SimdType, broadcast, common_type, pack
from pygfuse.program import vocabulary


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
    return add(builder, relu(builder, x), multiply(builder, twice_s, odd_series(builder, square, terms)))


def elementwise(emit: Callable) -> Callable:
    """What a word or an operator means on vectors, lane by lane; a number meets every lane.

    Args:
        emit: ``emit(builder, *vectors)`` gives a vector.

    Returns:
        ``lower(context, builder, kinds, values)``: the type of the result, and the result.
    """

    def lower(context, builder, kinds: Sequence[types.Type], values: Sequence[ir.Value]) -> tuple[SimdType, ir.Value]:
        to = common_type(kinds)
        if to is None:
            raise ValueError(f'Expected vectors of one shape, and numbers (got {", ".join(map(str, kinds))})')
        operands = [broadcast(context, builder, kind, value, to) for kind, value in zip(kinds, values, strict=True)]
        return to, pack(builder, context, to, [emit(builder, *vectors) for vectors in zip(*operands, strict=True)])

    return lower


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

# an operator or a word of the vocabulary, and what it means on vectors
WORDS: dict[Callable, Callable] = {word: elementwise(emit) for word, emit in ELEMENTWISE.items()}
WORDS[vocabulary.sum_channels] = sum_of_row
