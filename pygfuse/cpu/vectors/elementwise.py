"""The operators and the words of the vocabulary on vectors: lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.codegen.llvm import add, call, constant, divide, magnitude, multiply, negate, suffix
from pygfuse.cpu.vectors.channel_sums import sum_of_row
from pygfuse.cpu.vectors.elementary import (
    exponential,
    exponential_minus_one,
    logarithm,
    logarithm_above_one,
    normal_tail,
    tail,
)
from pygfuse.cpu.vectors.simd import SimdType, broadcast, common_type, pack
from pygfuse.program import vocabulary


def _square_root(builder, x):
    return call(builder, f'llvm.sqrt.{suffix(x.type)}', [x], x.type)


def _tanh(builder, x):
    """-t / (2 + t) with t = exp(-2 |x|) - 1, with the sign of x."""
    t = exponential_minus_one(builder, multiply(builder, magnitude(builder, x), constant(x.type, -2.0)))
    size = divide(builder, negate(builder, t), add(builder, constant(x.type, 2.0), t))
    return call(builder, f'llvm.copysign.{suffix(x.type)}', [size, x], x.type)


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
    vocabulary.tail: tail,
    vocabulary.normal_tail: normal_tail,
    vocabulary.log1p: logarithm_above_one,
    vocabulary.tanh: _tanh,
    vocabulary.sech_squared: llvm.sech_squared(exponential),
}

# an operator or a word of the vocabulary, and what it means on vectors
WORDS: dict[Callable, Callable] = {word: elementwise(emit) for word, emit in ELEMENTWISE.items()}
WORDS[vocabulary.sum_channels] = sum_of_row
