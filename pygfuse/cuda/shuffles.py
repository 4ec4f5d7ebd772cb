"""What passes between the lanes of a team: sums over channels, lanes and subteams."""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda.exchange import sum_of_warps
from pygfuse.cuda.lanes import ELEMENTS, LaneHeads, LaneRow
from pygfuse.cuda.layout import WARP, Layout
from pygfuse.cuda.memory import INT32, INT64
from pygfuse.cuda.numba_cuda import intrinsic, types
from pygfuse.cuda.packs import of_one
from pygfuse.cuda.thread import Place, number_of, thread
from pygfuse.program import vocabulary

# lanes of a shuffle that may read each other: all 32
_WHOLE_WARP, _BUTTERFLY = 0x1F, 3


class Shuffles:
    """What the lanes of a team can do together."""

    layout: Layout
    row: LaneRow
    heads: LaneHeads

    @functools.cached_property
    def shuffle(self):
        """``shuffle(value, distance)``: what the lane whose number differs in the bit `distance` holds.

        All lanes of the team call it together.
        """
        team = self.layout.team

        @intrinsic
        def shuffle(typingctx, value, distance):
            def emit(context, builder, signature, arguments):
                distance = builder.trunc(arguments[1], INT32)
                vector = arguments[0]
                if signature.args[0] in ELEMENTS.values():
                    return _shuffle_number(builder, team, vector, distance)
                numbers = [builder.extract_element(vector, ir.Constant(INT32, i)) for i in range(vector.type.count)]
                result = ir.Constant(vector.type, ir.Undefined)
                for i, number in enumerate(numbers):
                    moved = _shuffle_number(builder, team, number, distance)
                    result = builder.insert_element(result, moved, ir.Constant(INT32, i))
                return result

            return value(value, types.int64), emit

        return shuffle

    @functools.cached_property
    def own_channels(self):
        """``own_channels(row)``: for each head the sum over this lane's channels of it."""
        row, heads, per_head = self.row, self.heads, self.layout.per_head

        def emit(builder, value):
            sums, add = _vector_sums(builder, row, value), functools.partial(llvm.add, builder)
            result = ir.Constant(heads.vector, ir.Undefined)
            for i in range(heads.count):
                total = functools.reduce(add, sums[i * per_head : (i + 1) * per_head])
                result = builder.insert_element(result, total, ir.Constant(INT32, i))
            return result

        return of_one(row, heads, emit)

    @functools.cached_property
    def own_values(self):
        """``own_values(row)``: the sum over this lane's channels of all heads, a number."""
        row = self.row

        def emit(builder, value):
            return functools.reduce(functools.partial(llvm.add, builder), _vector_sums(builder, row, value))

        return of_one(row, ELEMENTS[self.layout.compute], emit)

    @functools.cached_property
    def own_heads(self):
        """``own_heads(heads)``: the sum of the heads of which this lane is the first, a number."""
        heads, layout = self.heads, self.layout

        def emit(builder, value):
            place, zero = Place(builder, layout), ir.Constant(heads.vector.element, 0.0)
            total = zero
            for i in range(heads.count):
                number = builder.extract_element(value, ir.Constant(INT32, i))
                total = llvm.add(builder, total, builder.select(place.owns_head(i), number, zero))
            return total

        return of_one(heads, ELEMENTS[layout.compute], emit)

    def _distances(self, first: int, last: int) -> list[int]:
        return [1 << bit for bit in range(first.bit_length() - 1, last.bit_length() - 1)]

    @functools.cached_property
    def sum_channels(self):
        """``sum_channels(row)``: the sum over each head's channels, for all lanes that share the head.

        All lanes of the team call it together, as they do whatever sums over lanes.
        """
        return self.inlined(self._butterfly('own_channels(value)', 1, self.layout.lanes_per_head))

    @functools.cached_property
    def sum_lanes(self):
        """``sum_lanes(number)``: the sum over the lanes of a row."""
        return self.inlined(self._butterfly('value', 1, self.layout.lanes))

    @functools.cached_property
    def sum_subteams(self):
        """``sum_subteams(value)``: the sum of a row or of heads over the subteams of the team."""
        return self.inlined(self._butterfly('value', self.layout.lanes, self.layout.team))

    @functools.cached_property
    def max_subteams(self):
        """``max_subteams(value)``: the maximum over the subteams of the team."""
        return self.inlined(self._butterfly('value', self.layout.lanes, self.layout.team, 'maximum(x, y)'))

    def sum_subteams_of(self, length: int) -> Callable:
        """`sum_subteams` of each item of a tuple of so many."""
        items = ''.join(f'sum_subteams(values[{i}]), ' for i in range(length))
        return self.compiled(f'def sums(values):\n    return ({items})', sum_subteams=self.sum_subteams)

    def _butterfly(self, first: str, begin: int, end: int, combined: str = 'x + y') -> Callable:
        """A function that combines over the lanes whose numbers differ in the bits from `begin` to below `end`."""
        lines = ['def over_lanes(value):', f'    x = {first}']
        for distance in self._distances(begin, min(end, WARP)):
            lines += [f'    y = shuffle(x, {distance})', f'    x = {combined}']
        if begin < WARP < end:
            lines.append('    x = sum_of_warps(x)')
        names = {
            'own_channels': self.own_channels, 'shuffle': self.shuffle, 'maximum': vocabulary.maximum,
            'sum_of_warps': sum_of_warps,
        }  # fmt: skip
        exec('\n'.join([*lines, '    return x']), names)
        return names['over_lanes']


def _shuffle_number(builder, team: int, number: ir.Value, distance: ir.Value) -> ir.Value:
    """One butterfly of a float32 or float64 among the lanes of a team."""
    if isinstance(number.type, ir.DoubleType):
        bits = builder.bitcast(number, INT64)
        halves = [builder.trunc(bits, INT32), builder.trunc(builder.lshr(bits, number_of(32)), INT32)]
        low, high = (builder.zext(_shuffle_word(builder, team, half, distance), INT64) for half in halves)
        return builder.bitcast(builder.or_(low, builder.shl(high, number_of(32))), ir.DoubleType())
    word = _shuffle_word(builder, team, builder.bitcast(number, INT32), distance)
    return builder.bitcast(word, ir.FloatType())


def _shuffle_word(builder, team: int, word: ir.Value, distance: ir.Value) -> ir.Value:
    if team >= WARP:
        mask = ir.Constant(INT32, -1)
    else:
        # other teams of the warp may be elsewhere: only this team's lanes take part
        lane = builder.and_(builder.trunc(thread(builder), INT32), ir.Constant(INT32, 32 - team))
        mask = builder.shl(ir.Constant(INT32, (1 << team) - 1), lane)
    arguments = [mask, ir.Constant(INT32, _BUTTERFLY), word, distance, ir.Constant(INT32, _WHOLE_WARP)]
    result = ir.LiteralStructType((INT32, ir.IntType(1)))
    return builder.extract_value(llvm.call(builder, 'llvm.nvvm.shfl.sync.i32', arguments, result), 0)


def _vector_sums(builder, row: LaneRow, vector: ir.Value) -> list[ir.Value]:
    """The sum of each of the lane's vectors of a row, zero for those beyond the head's channels."""
    place, size = Place(builder, row.layout), row.layout.vector
    sums = []
    for register in range(row.layout.registers):
        numbers = [
            builder.extract_element(vector, ir.Constant(INT32, i))
            for i in range(register * size, (register + 1) * size)
        ]
        while len(numbers) > 1:
            numbers = [llvm.add(builder, x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        _, there = place.vector(register)
        total = numbers[0]
        sums.append(total if there is None else builder.select(there, total, ir.Constant(total.type, 0.0)))
    return sums
