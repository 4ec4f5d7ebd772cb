"""Values that may come alone or as tuples, at build time, and functions of one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from pygfuse.cuda.numba_cuda import intrinsic, types


def of_one(kind: types.Type, result: types.Type, emit: Callable):
    """An intrinsic from a value of one type to another: ``emit(builder, value)`` makes its instructions."""

    @intrinsic
    def function(typingctx, value):
        return result(kind), lambda context, builder, signature, arguments: emit(builder, arguments[0])

    return function


def items_of(builder, kind: types.Type, value: ir.Value) -> list[tuple[types.Type, ir.Value]]:
    """The types and values of a tuple, or of the one value."""
    if not isinstance(kind, types.BaseTuple):
        return [(kind, value)]
    return [(item, builder.extract_value(value, i)) for i, item in enumerate(kind)]


def like(kind: types.Type, item: types.Type) -> types.Type:
    """`item`, or as many of it as there are in the tuple `kind`."""
    return types.Tuple((item,) * len(kind)) if isinstance(kind, types.BaseTuple) else item


def made(context, builder, kind: types.Type, values: Sequence[ir.Value]) -> ir.Value:
    return context.make_tuple(builder, kind, values) if isinstance(kind, types.BaseTuple) else values[0]
