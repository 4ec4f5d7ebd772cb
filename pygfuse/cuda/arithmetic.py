"""What a lane does with values that it holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda import memory
from pygfuse.cuda.lanes import ELEMENTS, LaneHeads, LaneRow, broadcast, each_element
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.memory import INT32
from pygfuse.cuda.numba_cuda import intrinsic, types
from pygfuse.cuda.packs import items_of, made, of_one

# of CUDA's library, what no compiler makes one instruction of with a product
_ROUNDED_SUMS = {'float32': '__nv_fadd_rn', 'float64': '__nv_dadd_rn'}


class Values:
    """What a lane can do by itself."""

    layout: Layout
    row: LaneRow
    heads: LaneHeads

    @functools.cached_property
    def row_full(self):
        """``row_full(value)``: the same number for every channel."""
        return self._full(self.row)

    @functools.cached_property
    def heads_full(self):
        """``heads_full(value)``: the same number for every head."""
        return self._full(self.heads)

    @staticmethod
    def _full(kind):
        @intrinsic
        def full(typingctx, value):
            def emit(context, builder, signature, arguments):
                return broadcast(context, builder, signature.args[0], arguments[0], kind)

            return kind(value), emit

        return full

    @functools.cached_property
    def choose(self):
        """``choose(condition, a, b)``: `a` (a row or heads) if a boolean is true, else `b` (or a number)."""

        @intrinsic
        def choose(typingctx, condition, a, b):
            def emit(context, builder, signature, arguments):
                other = broadcast(context, builder, signature.args[2], arguments[2], a)
                return builder.select(arguments[0], arguments[1], other)

            return a(types.boolean, a, b), emit

        return choose

    def value(self, place: int):
        """``value(row)``: the number at a place among this lane's values of a row."""

        def emit(builder, row):
            return builder.extract_element(row, ir.Constant(INT32, place))

        return of_one(self.row, ELEMENTS[self.layout.compute], emit)

    @functools.cached_property
    def rounded(self):
        """``rounded(row)``: the row in the precision of the features' type, so that it equals what was stored."""
        row = self.row

        return of_one(row, row, lambda builder, value: memory.rounded(builder, value, row.layout.element))

    @functools.cached_property
    def above(self):
        """``above(score, top)``: heads less a maximum of scores, where a product that ends the score is rounded as it
        was for the maximum.

        One instruction for both would keep digits that the maximum has lost, which are much of a great score's
        difference.
        """
        heads, add = self.heads, _ROUNDED_SUMS[self.layout.compute]

        @intrinsic
        def above(typingctx, score, top):
            def emit(context, builder, signature, arguments):
                def less(x, y):
                    return llvm.call(builder, add, [x, y], x.type)

                return each_element(builder, less, arguments[0], llvm.negate(builder, arguments[1]))

            return heads(heads, heads), emit

        return above

    @functools.cached_property
    def kept(self):
        """``kept(condition, tuple)``: the tuple of rows or heads, zeros if the condition is false."""

        @intrinsic
        def kept(typingctx, condition, value):
            def emit(context, builder, signature, arguments):
                items = items_of(builder, value, arguments[1])
                chosen = [builder.select(arguments[0], item, ir.Constant(item.type, None)) for _, item in items]
                return made(context, builder, value, chosen)

            return value(types.boolean, value), emit

        return kept

    @functools.cached_property
    def any_above(self):
        """``any_above(heads, limits)``: whether the value of any head of this lane is above its limit."""
        heads = self.heads

        @intrinsic
        def any_above(typingctx, value, limit):
            def emit(context, builder, signature, arguments):
                above = builder.fcmp_ordered('>', *arguments)
                found = [builder.extract_element(above, ir.Constant(INT32, i)) for i in range(heads.count)]
                return functools.reduce(builder.or_, found)

            return types.boolean(heads, heads), emit

        return any_above

    @functools.cached_property
    def add_tuples(self):
        """``add_tuples(a, b)``: two tuples of rows or heads, item by item; items of `b` may be numbers."""

        @intrinsic
        def add_tuples(typingctx, a, b):
            def emit(context, builder, signature, arguments):
                mine, theirs = (
                    items_of(builder, *pair) for pair in zip(signature.args, arguments, strict=True)
                )  # fmt: skip
                sums = [
                    llvm.add(builder, x, broadcast(context, builder, kind, y, to))
                    for (to, x), (kind, y) in zip(mine, theirs, strict=True)
                ]
                return made(context, builder, a, sums)

            return a(a, b), emit

        return add_tuples

    @staticmethod
    def copies(length: int) -> Callable:
        """A function that repeats a value `length` times, as a tuple."""

        @intrinsic
        def copy(typingctx, value):
            def emit(context, builder, signature, arguments):
                return context.make_tuple(builder, signature.return_type, [arguments[0]] * length)

            return types.Tuple((value,) * length)(value), emit

        return copy

    def spread(self, names: Sequence[str], used: Sequence[str]) -> Callable:
        """A function that makes rows of the gradients of the operands `used`, with zeros for the others of `names`."""
        return self._filled(self.row, names, used)

    def spread_heads(self, names: Sequence[str], used: Sequence[str]) -> Callable:
        """The same of heads."""
        return self._filled(self.heads, names, used)

    @staticmethod
    def _filled(kind, names, used):
        @intrinsic
        def fill(typingctx, found):
            def emit(context, builder, signature, arguments):
                items = dict(zip(used, items_of(builder, found, arguments[0]), strict=True))
                zero = ir.Constant(kind.vector, None)
                rows = [broadcast(context, builder, *items[name], kind) if name in items else zero for name in names]
                return context.make_tuple(builder, signature.return_type, rows)

            return types.Tuple((kind,) * len(names))(found), emit

        return fill
