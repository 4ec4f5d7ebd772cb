"""LLVM vectors at build time, and the words of the vocabulary that are the same instructions on every device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from llvmlite import ir

from pygfuse.codegen.splitmix import dropout_factor
from pygfuse.program import vocabulary

INT32 = ir.IntType(32)
# without reassociation and without assuming away NaN or infinity; a product and a sum may become one instruction
FLAGS = ('contract', 'nsz')


def power_of_two_at_least(n: int) -> int:
    """The smallest power of two that is not below `n`."""
    return 1 << (n - 1).bit_length()


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    """`value` in every lane."""
    return ir.Constant(vector, [value] * vector.count)


def shuffle(builder, vector: ir.Value, lanes: Sequence[int], second: ir.Value | None = None) -> ir.Value:
    """The vector whose lane i is lane ``lanes[i]`` of `vector` (continued by `second`)."""
    second = ir.Constant(vector.type, ir.Undefined) if second is None else second
    mask = ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, second, mask)


def splat(builder, scalar: ir.Value, lanes: int) -> ir.Value:
    vector = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    return shuffle(builder, builder.insert_element(vector, scalar, ir.Constant(INT32, 0)), [0] * lanes)


def concatenate(builder, vectors: Sequence[ir.Value]) -> ir.Value:
    """The lanes of all vectors (of one type), one after another."""
    vectors = list(vectors)
    while len(vectors) > 1:
        if len(vectors) % 2:
            vectors.append(ir.Constant(vectors[0].type, ir.Undefined))
        lanes = range(2 * vectors[0].type.count)
        vectors = [shuffle(builder, a, lanes, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def call(builder, name: str, operands: Sequence[ir.Value], returns: ir.Type) -> ir.Value:
    """Calls an LLVM intrinsic."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(returns, [operand.type for operand in operands])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, operands)


def suffix(vector: ir.VectorType) -> str:
    """How LLVM's overloaded intrinsics name a vector type."""
    return f'v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}'


def add(builder, x, y):
    return builder.fadd(x, y, flags=FLAGS)


def subtract(builder, x, y):
    return builder.fsub(x, y, flags=FLAGS)


def multiply(builder, x, y):
    return builder.fmul(x, y, flags=FLAGS)


def divide(builder, x, y):
    return builder.fdiv(x, y, flags=FLAGS)


def negate(builder, x):
    return builder.fsub(constant(x.type, -0.0), x, flags=FLAGS)


def _positive(builder, x, then, otherwise):
    return builder.select(builder.fcmp_ordered('>', x, constant(x.type, 0.0)), then, otherwise)


def greater(builder, x, y):
    greater = builder.select(builder.fcmp_ordered('>', x, y), x, y)
    return builder.select(builder.fcmp_unordered('uno', x, x), x, greater)


def _equal(builder, x, y, then, otherwise):
    return builder.select(builder.fcmp_ordered('==', x, y), then, otherwise)


def relu(builder, x):
    # NaN passes, as in torch
    return builder.select(builder.fcmp_ordered('<=', x, constant(x.type, 0.0)), constant(x.type, 0.0), x)


def _leaky_relu(builder, x, negative_slope):
    return _positive(builder, x, x, multiply(builder, x, negative_slope))


def magnitude(builder, x):
    # by a choice: NVVM has no llvm.fabs of vectors
    return builder.select(builder.fcmp_ordered('<', x, constant(x.type, 0.0)), negate(builder, x), x)


def sech_squared(exponential: Callable) -> Callable:
    """``4 e / (1 + e)^2`` with ``e = exp(-2 |x|)``, by a device's exponential."""

    def emit(builder, x):
        e = exponential(builder, multiply(builder, magnitude(builder, x), constant(x.type, -2.0)))
        sum_ = add(builder, constant(x.type, 1.0), e)
        return divide(builder, multiply(builder, constant(x.type, 4.0), e), multiply(builder, sum_, sum_))

    return emit


ELEMENTWISE: dict[Callable, Callable] = {
    operator.add: add,
    operator.sub: subtract,
    operator.mul: multiply,
    operator.truediv: divide,
    operator.neg: negate,
    vocabulary.relu: relu,
    vocabulary.positive: _positive,
    vocabulary.equal: _equal,
    vocabulary.maximum: greater,
    vocabulary.leaky_relu: _leaky_relu,
    vocabulary.dropout_factor: dropout_factor,
}
