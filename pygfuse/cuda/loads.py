"""Loads and stores of a lane's share of a row."""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda import memory
from pygfuse.cuda.lanes import ELEMENTS, LLVM_ELEMENTS, LaneHeads, LaneRow, broadcast
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.memory import INT32
from pygfuse.cuda.numba_cuda import intrinsic, types
from pygfuse.cuda.packs import items_of, like, made
from pygfuse.cuda.thread import Place, number_of


class Loads:
    """What a lane can do with memory."""

    layout: Layout
    row: LaneRow
    heads: LaneHeads

    place_at = staticmethod(memory.place_at)
    reload_place = staticmethod(memory.reload_place)
    store_place = staticmethod(memory.store_place)

    @functools.cached_property
    def load_row(self):
        """``load_row(memory, offset)``: the row whose first value is item `offset`; of a tuple, the tuple."""
        return self._over_memories(self.row, functools.partial(self._load_row, constant=True))

    @functools.cached_property
    def reload_row(self):
        """`load_row` of memory that the kernel writes to: each vector is loaded by the lane that stores it."""
        return self._over_memories(self.row, functools.partial(self._load_row, constant=False))

    def _load_row(self, context, builder, kind, base, offset, constant):
        place, vectors = Place(builder, self.layout), []
        for register in range(self.layout.registers):
            at, there = place.vector(register)
            at = at if there is None else builder.select(there, at, number_of(0))
            load = functools.partial(
                memory.load_vector,
                *(builder, kind, base, builder.add(offset, at), self.layout.vector),
                *(LLVM_ELEMENTS[self.layout.compute], constant),
            )
            if there is None:
                vectors.append(load())
            elif constant:
                # no branch parts the lanes
                vector = load()
                vectors.append(builder.select(there, vector, ir.Constant(vector.type, None)))
            else:
                vectors.append(_where(builder, there, load))
        return llvm.shuffle(builder, llvm.concatenate(builder, vectors), range(self.row.count))

    @functools.cached_property
    def load_heads(self):
        """``load_heads(memory, offset)``: values of this lane's heads, of which item `offset` is the first head's."""
        return self._over_memories(self.heads, functools.partial(self._load_heads, constant=True))

    @functools.cached_property
    def reload_heads(self):
        """`load_heads` of memory that the kernel writes to: a head by the lane that stores it, to others it is 0."""
        return self._over_memories(self.heads, functools.partial(self._load_heads, constant=False))

    def _load_heads(self, context, builder, kind, base, offset, constant):
        place, element = Place(builder, self.layout), LLVM_ELEMENTS[self.layout.compute]

        def load(value: int) -> ir.Value:
            at = builder.add(offset, place.clamped_head(value))
            return memory.load_vector(builder, kind, base, at, 1, element, constant)

        numbers = [
            load(value) if constant else _where(builder, place.owns_head(value), functools.partial(load, value))
            for value in range(self.heads.count)
        ]
        return llvm.shuffle(builder, llvm.concatenate(builder, numbers), range(self.heads.count))

    @functools.cached_property
    def load_number(self):
        """``load_number(memory, offset)``: one item, the same for all lanes."""
        return self._number_loader(constant=True)

    @functools.cached_property
    def reload_number(self):
        """`load_number` of memory that the kernel writes to."""
        return self._number_loader(constant=False)

    def _number_loader(self, constant: bool):
        element = self.layout.compute

        @intrinsic
        def load_number(typingctx, source, offset):
            def emit(context, builder, signature, arguments):
                kind = signature.args[0]
                vector = memory.load_vector(builder, kind, *arguments, 1, LLVM_ELEMENTS[element], constant)
                return builder.extract_element(vector, ir.Constant(INT32, 0))

            return ELEMENTS[element](source, types.int64), emit

        return load_number

    @functools.cached_property
    def load_scalars(self):
        """``load_scalars(memories, offset)``: of a tuple of memories one item each, for all heads."""

        def load(context, builder, kind, base, offset):
            vector = memory.load_vector(builder, kind, base, offset, 1, LLVM_ELEMENTS[self.layout.compute])
            return llvm.shuffle(builder, vector, [0] * self.heads.count)

        return self._over_memories(self.heads, load)

    def _over_memories(self, kind, load):
        @intrinsic
        def load_all(typingctx, source, offset):
            result = like(source, kind)

            def emit(context, builder, signature, arguments):
                items = items_of(builder, signature.args[0], arguments[0])
                loaded = [load(context, builder, item, base, arguments[1]) for item, base in items]
                return made(context, builder, result, loaded)

            return result(source, types.int64), emit

        return load_all

    @functools.cached_property
    def store_row(self):
        """``store_row(memory, offset, row, when)``: if `when`; of tuples of memories and rows, each."""

        def store(builder, kind, base, offset, vector, when):
            place, size = Place(builder, self.layout), self.layout.vector
            for register in range(self.layout.registers):
                at, there = place.vector(register)
                part = llvm.shuffle(builder, vector, range(register * size, (register + 1) * size))
                with builder.if_then(when if there is None else builder.and_(when, there)):
                    memory.store_vector(builder, kind, base, builder.add(offset, at), part)

        return self._stores(self.row, store)

    @functools.cached_property
    def store_heads(self):
        """``store_heads(memory, offset, heads, when)``: the reverse of `load_heads`, each head by one lane."""

        def store(builder, kind, base, offset, vector, when):
            place = Place(builder, self.layout)
            for value in range(self.heads.count):
                with builder.if_then(builder.and_(when, place.owns_head(value))):
                    part = llvm.shuffle(builder, vector, [value])
                    memory.store_vector(builder, kind, base, builder.add(offset, place.head(value)), part)

        return self._stores(self.heads, store)

    def _stores(self, kind, store):
        @intrinsic
        def store_all(typingctx, into, offset, value, when):
            def emit(context, builder, signature, arguments):
                memories = items_of(builder, signature.args[0], arguments[0])
                values = items_of(builder, signature.args[2], arguments[2])
                for (memory_kind, base), (value_kind, item) in zip(memories, values, strict=True):
                    vector = broadcast(context, builder, value_kind, item, kind)
                    store(builder, memory_kind, base, arguments[1], vector, arguments[3])
                return context.get_dummy_value()

            return types.void(into, types.int64, value, types.boolean), emit

        return store_all

    @functools.cached_property
    def store_number(self):
        """``store_number(memory, offset, number, when)``: by the first lane."""
        layout = self.layout

        @intrinsic
        def store_number(typingctx, into, offset, value, when):
            def emit(context, builder, signature, arguments):
                first = builder.icmp_signed('==', Place(builder, layout).lane, number_of(0))
                with builder.if_then(builder.and_(arguments[3], first)):
                    vector = llvm.splat(builder, arguments[2], 1)
                    memory.store_vector(builder, signature.args[0], arguments[0], arguments[1], vector)
                return context.get_dummy_value()

            return types.void(into, types.int64, value, types.boolean), emit

        return store_number


def _where(builder, condition: ir.Value, load: Callable[[], ir.Value]) -> ir.Value:
    """What is loaded if a condition holds, else zeros."""
    before = builder.block
    with builder.if_then(condition):
        vector, after = load(), builder.block
    result = builder.phi(vector.type)
    result.add_incoming(vector, after)
    result.add_incoming(ir.Constant(vector.type, None), before)
    return result
