"""Vectors that may come alone or as tuples, and memories with them."""

from __future__ import annotations

from numba import types

from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.intrinsics import intrinsic


def like(kind: types.Type, item: types.Type) -> types.Type:
    """`item`, or as many of it as there are in the tuple `kind`."""
    return types.Tuple((item,) * len(kind)) if isinstance(kind, types.BaseTuple) else item


def map_items(context, builder, kind, value, result, function):
    """`function` of every item of a tuple value, or of the value itself."""
    if not isinstance(kind, types.BaseTuple):
        return function(kind, value)
    items = [function(item, builder.extract_value(value, i)) for i, item in enumerate(kind)]
    return context.make_tuple(builder, result, items)


def loads_of(kind: simd.SimdType, load):
    @intrinsic
    def load_all(memory, offset):
        result = like(memory, kind)

        def emit(context, builder, signature, arguments):
            def one(memory_kind, value):
                return load(context, builder, memory_kind, value, arguments[1])

            return map_items(context, builder, signature.args[0], arguments[0], result, one)

        return result(memory, types.int64), emit

    return load_all


def each_item(context, builder, kind: simd.SimdType, signature, arguments, memory: int, value: int, store) -> None:
    """Calls ``store(memory type, memory, value)`` for a memory and a value, or for each of two tuples of them.

    A gradient that is the number 0 arrives as such, and is made a vector here.
    """
    memories, values = signature.args[memory], signature.args[value]
    single = not isinstance(memories, types.BaseTuple)
    for i, (memory_kind, value_kind) in enumerate(
        [(memories, values)] if single else zip(memories, values, strict=True)
    ):
        to, what = (
            (arguments[memory], arguments[value])
            if single
            else (
                builder.extract_value(arguments[memory], i),
                builder.extract_value(arguments[value], i),
            )
        )
        if value_kind != kind:
            vectors = simd.broadcast(context, builder, value_kind, what, kind)
            what = simd.pack(builder, context, kind, vectors)
        store(memory_kind, to, what)


def stores_of(kind: simd.SimdType, store):
    @intrinsic
    def store_all(memory, offset, value):
        def emit(context, builder, signature, arguments):
            def one(memory_kind, to, what):
                store(kind, context, builder, memory_kind, to, arguments[1], what)

            each_item(context, builder, kind, signature, arguments, 0, 2, one)
            return context.get_dummy_value()

        return types.void(memory, types.int64, value), emit

    return store_all
