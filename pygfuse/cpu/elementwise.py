"""The operators and the words of the vocabulary on tiles: lane by lane."""

from __future__ import annotations

import operator
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core.imputils import lower_builtin
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global

from pygfuse.codegen import llvm
from pygfuse.codegen.llvm import add, call, constant, divide, magnitude, multiply, negate, relu, suffix
from pygfuse.cpu.elementary import exponential, exponential_minus_one, logarithm, odd_series
from pygfuse.cpu.simd import Tile, broadcast, common_tile, pack
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
