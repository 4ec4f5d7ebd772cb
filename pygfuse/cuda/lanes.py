"""The values of an edge program as one lane of a warp holds them: Numba types over LLVM vectors.

`LaneRow` has this lane's channels of a row, `LaneHeads` a value for each of this lane's heads (see
`pygfuse.cuda.layout`). Both take Python's operators and the words of `pygfuse.program.vocabulary`; heads meet a row by
being spread over their channels, which costs nothing. What reads and writes memory, and what passes between lanes, is
in `pygfuse.cuda.instructions`.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.numba_cuda import (
    AbstractTemplate,
    PrimitiveModel,
    lowering_registry,
    register_model,
    signature,
    types,
    typing_registry,
)
from pygfuse.program import vocabulary

ELEMENTS = {'float32': types.float32, 'float64': types.float64}
LLVM_ELEMENTS = {'float32': ir.FloatType(), 'float64': ir.DoubleType()}


class Lane(types.Type):
    """A value of an edge program in the registers of one lane."""

    count: int

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        super().__init__(name=name)

    @property
    def vector(self) -> ir.VectorType:
        return ir.VectorType(LLVM_ELEMENTS[self.layout.compute], self.count)


class LaneHeads(Lane):
    """A value for each head of this lane."""

    def __init__(self, layout: Layout) -> None:
        self.count = layout.head_values
        super().__init__(layout, f'LaneHeads({layout})')


class LaneRow(Lane):
    """This lane's channels of a row."""

    def __init__(self, layout: Layout) -> None:
        self.count = layout.registers * layout.vector
        super().__init__(layout, f'LaneRow({layout})')

    @functools.cached_property
    def heads(self) -> list[int]:
        """For each value, which of the lane's heads it belongs to."""
        return [i // (self.layout.vector * self.layout.per_head) for i in range(self.count)]


@register_model(LaneHeads)
@register_model(LaneRow)
class _LaneModel(PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, fe_type.vector)


def broadcast(context, builder, kind: types.Type, value: ir.Value, to: Lane) -> ir.Value:
    """A number, heads or a row in the form of `to`."""
    if kind == to:
        return value
    if isinstance(kind, Lane):
        return llvm.shuffle(builder, value, to.heads)
    scalar = context.cast(builder, value, kind, ELEMENTS[to.layout.compute])
    return llvm.splat(builder, scalar, to.count)


def common_kind(kinds: Sequence[types.Type]) -> Lane | None:
    """The form in which these operands meet, or None if they do not."""
    lanes = [kind for kind in kinds if isinstance(kind, Lane)]
    if not lanes or not all(isinstance(kind, (Lane, types.Number)) for kind in kinds):
        return None
    if any(kind.layout != lanes[0].layout for kind in lanes):
        return None
    rows = [kind for kind in lanes if isinstance(kind, LaneRow)]
    return rows[0] if rows else lanes[0]


def each_element(builder, function: Callable, *vectors: ir.Value) -> ir.Value:
    """The vector of what `function` makes of the elements at each place."""
    result = None
    for i in range(vectors[0].type.count):
        at = ir.Constant(llvm.INT32, i)
        element = function(*(builder.extract_element(vector, at) for vector in vectors))
        if result is None:
            result = ir.Constant(ir.VectorType(element.type, vectors[0].type.count), ir.Undefined)
        result = builder.insert_element(result, element, at)
    return result


def _from_library(name: str) -> Callable:
    """A word by the function of CUDA's library of that name, to one or two units in the last place."""

    def emit(builder, x: ir.Value) -> ir.Value:
        single = isinstance(x.type.element, ir.FloatType)
        symbol = f'__nv_{name}f' if single else f'__nv_{name}'
        return each_element(builder, lambda value: llvm.call(builder, symbol, [value], value.type), x)

    return emit


exponential, logarithm, square_root = _from_library('exp'), _from_library('log'), _from_library('sqrt')


def _tail(builder, x: ir.Value) -> ir.Value:
    """exp(-|x|)."""
    return exponential(builder, llvm.negate(builder, llvm.magnitude(builder, x)))


def _normal_tail(builder, x: ir.Value) -> ir.Value:
    """Half of the scaled complementary error function of ``|x|``, in units of its deviation."""
    scaled = llvm.multiply(builder, llvm.magnitude(builder, x), llvm.constant(x.type, math.sqrt(0.5)))
    return llvm.multiply(builder, _from_library('erfcx')(builder, scaled), llvm.constant(x.type, 0.5))


ELEMENTWISE = {
    **llvm.ELEMENTWISE,
    vocabulary.exp: exponential,
    vocabulary.expm1: _from_library('expm1'),
    vocabulary.log: logarithm,
    vocabulary.sqrt: square_root,
    vocabulary.tail: _tail,
    vocabulary.normal_tail: _normal_tail,
    vocabulary.log1p: _from_library('log1p'),
    vocabulary.tanh: _from_library('tanh'),
    vocabulary.sech_squared: llvm.sech_squared(exponential),
}


def _arity(word: Callable) -> int:
    return 1 if word is operator.neg else len(inspect.signature(word).parameters)


def _operand_kinds(arity: int) -> list[tuple]:
    """All ways to mix lanes' values and numbers, at least one of the former."""
    kinds: list[tuple] = [()]
    for _ in range(arity):
        kinds = [(*some, kind) for some in kinds for kind in (Lane, types.Number)]
    return [some for some in kinds if Lane in some]


def _elementwise(word: Callable, emit: Callable) -> None:
    """Gives an operator or a word of the vocabulary its meaning on a lane's values."""

    class Template(AbstractTemplate):
        key = word

        def generic(self, args, kws):
            kind = common_kind(args)
            return None if kws or kind is None else signature(kind, *args)

    def lower(context, builder, sig, args):
        to = sig.return_type
        operands = [broadcast(context, builder, kind, value, to) for kind, value in zip(sig.args, args, strict=True)]
        return emit(builder, *operands)

    typing_registry.register_global(word)(Template)
    for kinds in _operand_kinds(_arity(word)):
        lowering_registry.lower(word, *kinds)(lower)


for _word, _emit in ELEMENTWISE.items():
    _elementwise(_word, _emit)
