"""What a lane of a warp can do: load and store its share of a row, pass values to other lanes, choose.

The attributes of `Instructions` are Numba intrinsics to be used in kernel bodies, for one layout. Walks take them as an
argument and use nothing else of the device, so that they also run where the same names are plain Python functions: in
the simulator, under test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from pygfuse import philox, vocabulary
from pygfuse.cpu import simd
from pygfuse.cuda import memory
from pygfuse.cuda.lanes import ELEMENTS, LLVM_ELEMENTS, LaneHeads, LaneRow, broadcast
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.memory import INT32, INT64

# lanes of a shuffle that may read each other: all 32
_WHOLE_WARP, _BUTTERFLY = 0x1F, 3


def _special(builder, name: str) -> ir.Value:
    """A special register as a 64-bit number."""
    return builder.zext(simd.call(builder, f'llvm.nvvm.read.ptx.sreg.{name}', [], INT32), INT64)


def _thread(builder) -> ir.Value:
    return _special(builder, 'tid.x')


def _shift(size: int) -> ir.Constant:
    return ir.Constant(INT64, size.bit_length() - 1)


def _number(value: int) -> ir.Constant:
    return ir.Constant(INT64, value)


class _Place:
    """Where this lane's vectors of a row lie, as LLVM values."""

    def __init__(self, builder, layout: Layout) -> None:
        self.builder, self.layout = builder, layout
        self.lane = builder.and_(_thread(builder), _number(layout.lanes - 1))
        self.first_head = builder.lshr(self.lane, _shift(layout.lanes_per_head))
        self.within = builder.and_(self.lane, _number(layout.lanes_per_head - 1))

    def head(self, value: int) -> ir.Value:
        """The head of one of this lane's head values; may be beyond the last."""
        return self.builder.add(self.first_head, _number(value * self.layout.heads_side_by_side))

    def has_head(self, value: int) -> ir.Value:
        return self.builder.icmp_signed('<', self.head(value), _number(self.layout.heads))

    def clamped_head(self, value: int) -> ir.Value:
        if not self.layout.has_spare_heads:
            return self.head(value)
        return self.builder.select(self.has_head(value), self.head(value), _number(0))

    def owns_head(self, value: int) -> ir.Value:
        """Whether this lane is the first of those that share the head."""
        first = self.builder.icmp_signed('==', self.within, _number(0))
        return self.builder.and_(first, self.has_head(value)) if self.layout.has_spare_heads else first

    def vector(self, register: int) -> tuple[ir.Value, ir.Value | None]:
        """The offset in its row of the first value of a vector, and whether it is there (None: it always is)."""
        layout, builder = self.layout, self.builder
        value, part = divmod(register, layout.per_head)
        within = builder.add(self.within, _number(part * layout.lanes))
        conditions = []
        if layout.has_spare_heads:
            conditions.append(self.has_head(value))
        if layout.has_spare_channels:
            conditions.append(builder.icmp_signed('<', within, _number(layout.vectors_per_head)))
        offset = builder.add(
            builder.mul(self.head(value), _number(layout.channels)), builder.mul(within, _number(layout.vector))
        )
        if not conditions:
            return offset, None
        return offset, functools.reduce(builder.and_, conditions)


def _items(builder, kind: types.Type, value: ir.Value) -> list[tuple[types.Type, ir.Value]]:
    """The types and values of a tuple, or of the one value."""
    if not isinstance(kind, types.BaseTuple):
        return [(kind, value)]
    return [(item, builder.extract_value(value, i)) for i, item in enumerate(kind)]


def _like(kind: types.Type, item: types.Type) -> types.Type:
    """`item`, or as many of it as there are in the tuple `kind`."""
    return types.Tuple((item,) * len(kind)) if isinstance(kind, types.BaseTuple) else item


def _made(context, builder, kind: types.Type, values: Sequence[ir.Value]) -> ir.Value:
    return context.make_tuple(builder, kind, values) if isinstance(kind, types.BaseTuple) else values[0]


class Instructions:
    """What a lane can do with rows of one layout.

    Args:
        layout: Which lane holds what.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.row, self.heads = LaneRow(layout), LaneHeads(layout)

    # Functions

    @staticmethod
    def inlined(function: Callable) -> Callable:
        """A function of Python that bodies call."""
        return cuda.jit(device=True)(function)

    def compiled(self, text: str, **scope: object) -> Callable:
        """The function of a text that speaks the vocabulary."""
        names = {**vocabulary.WORDS, 'sum_channels': self.sum_channels, **scope}
        exec(text, names)
        return self.inlined(names[text.split('(')[0].removeprefix('def ')])

    # Threads

    @functools.cached_property
    def team_number(self):
        """``team_number()``: which team of the grid this lane belongs to."""
        team = self.layout.team

        @intrinsic
        def team_number(typingctx):
            def emit(context, builder, signature, arguments):
                block = builder.mul(_special(builder, 'ctaid.x'), _special(builder, 'ntid.x'))
                return builder.lshr(builder.add(block, _thread(builder)), _shift(team))

            return types.int64(), emit

        return team_number

    @functools.cached_property
    def team_count(self):
        """``team_count()``: teams of the grid."""
        team = self.layout.team

        @intrinsic
        def team_count(typingctx):
            def emit(context, builder, signature, arguments):
                threads = builder.mul(_special(builder, 'nctaid.x'), _special(builder, 'ntid.x'))
                return builder.lshr(threads, _shift(team))

            return types.int64(), emit

        return team_count

    @functools.cached_property
    def tile_number(self):
        """``tile_number()``: which tile of the row this lane works on."""

        @intrinsic
        def tile_number(typingctx):
            return types.int64(), lambda context, builder, signature, arguments: _special(builder, 'ctaid.y')

        return tile_number

    @functools.cached_property
    def group_number(self):
        """``group_number()``: which of the team's groups this lane belongs to."""
        layout = self.layout

        @intrinsic
        def group_number(typingctx):
            def emit(context, builder, signature, arguments):
                group = builder.lshr(_thread(builder), _shift(layout.lanes))
                return builder.and_(group, _number(layout.groups - 1))

            return types.int64(), emit

        return group_number

    # Memory

    place_at = staticmethod(memory.place_at)

    @functools.cached_property
    def load_row(self):
        """``load_row(memory, offset)``: the row whose first value is item `offset`; of a tuple, the tuple."""
        return self._over_memories(self.row, functools.partial(self._load_row, constant=True))

    @functools.cached_property
    def reload_row(self):
        """`load_row` of memory that the kernel writes to."""
        return self._over_memories(self.row, functools.partial(self._load_row, constant=False))

    def _load_row(self, context, builder, kind, base, offset, constant):
        place, vectors = _Place(builder, self.layout), []
        for register in range(self.layout.registers):
            at, there = place.vector(register)
            at = at if there is None else builder.select(there, at, _number(0))
            vector = memory.load_vector(
                builder,
                kind,
                base,
                builder.add(offset, at),
                self.layout.vector,
                LLVM_ELEMENTS[self.layout.compute],
                constant,
            )
            vectors.append(vector if there is None else builder.select(there, vector, ir.Constant(vector.type, None)))
        return simd.shuffle(builder, simd.concatenate(builder, vectors), range(self.row.count))

    @functools.cached_property
    def load_heads(self):
        """``load_heads(memory, offset)``: values of this lane's heads, of which item `offset` is the first head's."""
        return self._over_memories(self.heads, functools.partial(self._load_heads, constant=True))

    @functools.cached_property
    def reload_heads(self):
        """`load_heads` of memory that the kernel writes to."""
        return self._over_memories(self.heads, functools.partial(self._load_heads, constant=False))

    def _load_heads(self, context, builder, kind, base, offset, constant):
        place, element = _Place(builder, self.layout), LLVM_ELEMENTS[self.layout.compute]
        numbers = [
            memory.load_vector(
                builder, kind, base, builder.add(offset, place.clamped_head(value)), 1, element, constant
            )
            for value in range(self.heads.count)
        ]
        return simd.shuffle(builder, simd.concatenate(builder, numbers), range(self.heads.count))

    @functools.cached_property
    def load_number(self):
        """``load_number(memory, offset)``: one item, the same for all lanes."""
        element = self.layout.compute

        @intrinsic
        def load_number(typingctx, source, offset):
            def emit(context, builder, signature, arguments):
                kind = signature.args[0]
                vector = memory.load_vector(builder, kind, *arguments, 1, LLVM_ELEMENTS[element])
                return builder.extract_element(vector, ir.Constant(INT32, 0))

            return ELEMENTS[element](source, types.int64), emit

        return load_number

    @functools.cached_property
    def load_scalars(self):
        """``load_scalars(memories, offset)``: of a tuple of memories one item each, for all heads."""

        def load(context, builder, kind, base, offset):
            vector = memory.load_vector(builder, kind, base, offset, 1, LLVM_ELEMENTS[self.layout.compute])
            return simd.shuffle(builder, vector, [0] * self.heads.count)

        return self._over_memories(self.heads, load)

    def _over_memories(self, kind, load):
        @intrinsic
        def load_all(typingctx, source, offset):
            result = _like(source, kind)

            def emit(context, builder, signature, arguments):
                items = _items(builder, signature.args[0], arguments[0])
                loaded = [load(context, builder, item, base, arguments[1]) for item, base in items]
                return _made(context, builder, result, loaded)

            return result(source, types.int64), emit

        return load_all

    @functools.cached_property
    def store_row(self):
        """``store_row(memory, offset, row, when)``: if `when`; of tuples of memories and rows, each."""

        def store(builder, kind, base, offset, vector, when):
            place, size = _Place(builder, self.layout), self.layout.vector
            for register in range(self.layout.registers):
                at, there = place.vector(register)
                part = simd.shuffle(builder, vector, range(register * size, (register + 1) * size))
                with builder.if_then(when if there is None else builder.and_(when, there)):
                    memory.store_vector(builder, kind, base, builder.add(offset, at), part)

        return self._stores(self.row, store)

    @functools.cached_property
    def store_heads(self):
        """``store_heads(memory, offset, heads, when)``: the reverse of `load_heads`, each head by one lane."""

        def store(builder, kind, base, offset, vector, when):
            place = _Place(builder, self.layout)
            for value in range(self.heads.count):
                with builder.if_then(builder.and_(when, place.owns_head(value))):
                    part = simd.shuffle(builder, vector, [value])
                    memory.store_vector(builder, kind, base, builder.add(offset, place.head(value)), part)

        return self._stores(self.heads, store)

    def _stores(self, kind, store):
        @intrinsic
        def store_all(typingctx, target, offset, value, when):
            def emit(context, builder, signature, arguments):
                targets = _items(builder, signature.args[0], arguments[0])
                values = _items(builder, signature.args[2], arguments[2])
                for (target_kind, base), (value_kind, item) in zip(targets, values, strict=True):
                    vector = broadcast(context, builder, value_kind, item, kind)
                    store(builder, target_kind, base, arguments[1], vector, arguments[3])
                return context.get_dummy_value()

            return types.void(target, types.int64, value, types.boolean), emit

        return store_all

    @functools.cached_property
    def store_number(self):
        """``store_number(memory, offset, number, when)``: by the first lane."""
        layout = self.layout

        @intrinsic
        def store_number(typingctx, target, offset, value, when):
            def emit(context, builder, signature, arguments):
                first = builder.icmp_signed('==', _Place(builder, layout).lane, _number(0))
                with builder.if_then(builder.and_(arguments[3], first)):
                    vector = simd.splat(builder, arguments[2], 1)
                    memory.store_vector(builder, signature.args[0], arguments[0], arguments[1], vector)
                return context.get_dummy_value()

            return types.void(target, types.int64, value, types.boolean), emit

        return store_number

    # Values

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

    @functools.cached_property
    def rounded(self):
        """``rounded(row)``: the row in the precision of the features' type, so that it equals what was stored."""
        row = self.row

        @intrinsic
        def rounded(typingctx, value):
            def emit(context, builder, signature, arguments):
                return memory.rounded(builder, arguments[0], row.layout.element)

            return row(row), emit

        return rounded

    @functools.cached_property
    def kept(self):
        """``kept(condition, tuple)``: the tuple of rows or heads, zeros if the condition is false."""

        @intrinsic
        def kept(typingctx, condition, value):
            def emit(context, builder, signature, arguments):
                items = _items(builder, value, arguments[1])
                chosen = [builder.select(arguments[0], item, ir.Constant(item.type, None)) for _, item in items]
                return _made(context, builder, value, chosen)

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
                    _items(builder, *pair) for pair in zip(signature.args, arguments, strict=True)
                )  # fmt: skip
                sums = [
                    simd.add(builder, x, broadcast(context, builder, kind, y, to))
                    for (to, x), (kind, y) in zip(mine, theirs, strict=True)
                ]
                return _made(context, builder, a, sums)

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
                items = dict(zip(used, _items(builder, found, arguments[0]), strict=True))
                zero = ir.Constant(kind.vector, None)
                rows = [broadcast(context, builder, *items[name], kind) if name in items else zero for name in names]
                return context.make_tuple(builder, signature.return_type, rows)

            return types.Tuple((kind,) * len(names))(found), emit

        return fill

    # Between lanes

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
        row, heads = self.row, self.heads

        @intrinsic
        def own_channels(typingctx, value):
            def emit(context, builder, signature, arguments):
                sums = _vector_sums(builder, row, arguments[0])
                per_head = self.layout.per_head
                result = ir.Constant(heads.vector, ir.Undefined)
                for i in range(heads.count):
                    total = functools.reduce(
                        functools.partial(simd.add, builder), sums[i * per_head : (i + 1) * per_head]
                    )
                    result = builder.insert_element(result, total, ir.Constant(INT32, i))
                return result

            return heads(row), emit

        return own_channels

    @functools.cached_property
    def own_values(self):
        """``own_values(row)``: the sum over this lane's channels of all heads, a number."""
        row, element = self.row, ELEMENTS[self.layout.compute]

        @intrinsic
        def own_values(typingctx, value):
            def emit(context, builder, signature, arguments):
                sums = _vector_sums(builder, row, arguments[0])
                return functools.reduce(functools.partial(simd.add, builder), sums)

            return element(row), emit

        return own_values

    @functools.cached_property
    def own_heads(self):
        """``own_heads(heads)``: the sum of the heads of which this lane is the first, a number."""
        heads, layout = self.heads, self.layout

        @intrinsic
        def own_heads(typingctx, value):
            def emit(context, builder, signature, arguments):
                place, zero = _Place(builder, layout), ir.Constant(heads.vector.element, 0.0)
                total = zero
                for i in range(heads.count):
                    number = builder.extract_element(arguments[0], ir.Constant(INT32, i))
                    total = simd.add(builder, total, builder.select(place.owns_head(i), number, zero))
                return total

            return ELEMENTS[layout.compute](heads), emit

        return own_heads

    def _distances(self, first: int, last: int) -> list[int]:
        return [1 << bit for bit in range(first.bit_length() - 1, last.bit_length() - 1)]

    @functools.cached_property
    def sum_channels(self):
        """``sum_channels(row)``: the sum over each head's channels, for all lanes that share the head."""
        return self.inlined(self._butterfly('own_channels(value)', 1, self.layout.lanes_per_head))

    @functools.cached_property
    def sum_lanes(self):
        """``sum_lanes(number)``: the sum over the lanes of a row."""
        return self.inlined(self._butterfly('value', 1, self.layout.lanes))

    @functools.cached_property
    def sum_groups(self):
        """``sum_groups(value)``: the sum of a row or of heads over the groups of the team."""
        return self.inlined(self._butterfly('value', self.layout.lanes, self.layout.team))

    @functools.cached_property
    def max_groups(self):
        """``max_groups(value)``: the maximum over the groups of the team."""
        return self.inlined(self._butterfly('value', self.layout.lanes, self.layout.team, 'maximum(x, y)'))

    def sum_groups_of(self, length: int) -> Callable:
        """`sum_groups` of each item of a tuple of so many."""
        items = ''.join(f'sum_groups(values[{i}]), ' for i in range(length))
        return self.compiled(f'def sums(values):\n    return ({items})', sum_groups=self.sum_groups)

    def _butterfly(self, first: str, begin: int, end: int, combined: str = 'x + y') -> Callable:
        """A function that combines over the lanes whose numbers differ in the bits from `begin` to below `end`."""
        lines = ['def over_lanes(value):', f'    x = {first}']
        for distance in self._distances(begin, end):
            lines += [f'    y = shuffle(x, {distance})', f'    x = {combined}']
        names = {'own_channels': self.own_channels, 'shuffle': self.shuffle, 'maximum': vocabulary.maximum}
        exec('\n'.join([*lines, '    return x']), names)
        return names['over_lanes']

    # Random numbers

    @functools.cached_property
    def dropout(self):
        """``dropout(seed, threshold, scale, edge, head)``: the factors of an edge's heads, 0 or `scale`."""
        heads, layout = self.heads, self.layout

        @intrinsic
        def dropout(typingctx, seed, threshold, scale, edge, head):
            def emit(context, builder, signature, arguments):
                seed, threshold, scale, edge, head = arguments
                place, count = _Place(builder, layout), heads.count

                def spread(number):
                    return simd.splat(builder, builder.trunc(number, INT32), count)

                numbers = ir.Constant(ir.VectorType(INT32, count), ir.Undefined)
                for i in range(count):
                    number = builder.trunc(builder.add(head, place.head(i)), INT32)
                    numbers = builder.insert_element(numbers, number, ir.Constant(INT32, i))
                upper = ir.Constant(INT64, 32)
                key = [spread(seed), spread(builder.lshr(seed, upper))]
                counter = [
                    spread(edge),
                    spread(builder.lshr(edge, upper)),
                    numbers,
                    philox.integers(count, [0] * count),
                ]
                drawn = philox.first_words(builder, counter, key)
                factor = broadcast(context, builder, types.float64, scale, heads)
                kept = builder.icmp_unsigned('>=', drawn, spread(threshold))
                return builder.select(kept, factor, ir.Constant(factor.type, None))

            index = types.int64
            return heads(index, index, types.float64, index, index), emit

        return dropout


def _shuffle_number(builder, team: int, number: ir.Value, distance: ir.Value) -> ir.Value:
    """One butterfly of a float32 or float64 among the lanes of a team."""
    if isinstance(number.type, ir.DoubleType):
        bits = builder.bitcast(number, INT64)
        halves = [builder.trunc(bits, INT32), builder.trunc(builder.lshr(bits, _number(32)), INT32)]
        low, high = (builder.zext(_shuffle_word(builder, team, half, distance), INT64) for half in halves)
        return builder.bitcast(builder.or_(low, builder.shl(high, _number(32))), ir.DoubleType())
    word = _shuffle_word(builder, team, builder.bitcast(number, INT32), distance)
    return builder.bitcast(word, ir.FloatType())


def _shuffle_word(builder, team: int, word: ir.Value, distance: ir.Value) -> ir.Value:
    if team == 32:
        mask = ir.Constant(INT32, -1)
    else:
        # other teams of the warp may be elsewhere: only this team's lanes take part
        lane = builder.and_(builder.trunc(_thread(builder), INT32), ir.Constant(INT32, 32 - team))
        mask = builder.shl(ir.Constant(INT32, (1 << team) - 1), lane)
    arguments = [mask, ir.Constant(INT32, _BUTTERFLY), word, distance, ir.Constant(INT32, _WHOLE_WARP)]
    result = ir.LiteralStructType((INT32, ir.IntType(1)))
    return builder.extract_value(simd.call(builder, 'llvm.nvvm.shfl.sync.i32', arguments, result), 0)


def _vector_sums(builder, row: LaneRow, vector: ir.Value) -> list[ir.Value]:
    """The sum of each of the lane's vectors of a row, zero for those beyond the head's channels."""
    place, size = _Place(builder, row.layout), row.layout.vector
    sums = []
    for register in range(row.layout.registers):
        numbers = [
            builder.extract_element(vector, ir.Constant(INT32, i))
            for i in range(register * size, (register + 1) * size)
        ]
        while len(numbers) > 1:
            numbers = [simd.add(builder, x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        _, there = place.vector(register)
        total = numbers[0]
        sums.append(total if there is None else builder.select(there, total, ir.Constant(total.type, 0.0)))
    return sums
