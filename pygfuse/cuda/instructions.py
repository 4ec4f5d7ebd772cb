"""What a lane of a warp can do: load and store its share of a row, pass values to other lanes, choose.

The attributes of `Instructions` are Numba intrinsics to be used in kernel bodies, for one layout. Walks take them as an
argument and use nothing else of the device, so that they also run where the same names are plain Python functions: in
the simulator, under test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pygfuse.cuda.arithmetic import Values
from pygfuse.cuda.lanes import LaneHeads, LaneRow
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.loads import Loads
from pygfuse.cuda.numba_cuda import intrinsic, jit, types
from pygfuse.cuda.random import Random
from pygfuse.cuda.shuffles import Shuffles
from pygfuse.cuda.thread import number_of, shift, special, thread
from pygfuse.program import vocabulary


class Instructions(Loads, Values, Shuffles, Random):
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
        return jit(device=True)(function)

    def compiled(self, text: str, **scope: object) -> Callable:
        """The function of a text that speaks the vocabulary."""
        names = {**vocabulary.WORDS, 'sum_channels': self.sum_channels, **scope}
        exec(text, names)
        return self.inlined(names[text.split('(')[0].removeprefix('def ')])

    # Threads

    @functools.cached_property
    def team_number(self):
        """``team_number()``: which team of the grid this lane belongs to."""

        def emit(builder):
            block = builder.mul(special(builder, 'ctaid.x'), special(builder, 'ntid.x'))
            return builder.lshr(builder.add(block, thread(builder)), shift(self.layout.team))

        return _number(emit)

    @functools.cached_property
    def team_count(self):
        """``team_count()``: teams of the grid."""

        def emit(builder):
            threads = builder.mul(special(builder, 'nctaid.x'), special(builder, 'ntid.x'))
            return builder.lshr(threads, shift(self.layout.team))

        return _number(emit)

    @functools.cached_property
    def tile_number(self):
        """``tile_number()``: which tile of the row this lane works on."""
        return _number(lambda builder: special(builder, 'ctaid.y'))

    @functools.cached_property
    def subteam_number(self):
        """``subteam_number()``: which of the team's subteams this lane belongs to."""

        def emit(builder):
            subteam = builder.lshr(thread(builder), shift(self.layout.lanes))
            return builder.and_(subteam, number_of(self.layout.subteams - 1))

        return _number(emit)

    # Sums in memory

    @functools.cached_property
    def add_row(self):
        """``add_row(memory, offset, row)``: adds to what this subteam, and no other, has there; of tuples, each."""
        return self._adder(self.reload_row, self.store_row)

    @functools.cached_property
    def add_heads(self):
        """``add_heads(memory, offset, heads)``: the same of heads."""
        return self._adder(self.reload_heads, self.store_heads)

    def _adder(self, reload: Callable, store: Callable) -> Callable:
        add_tuples = self.add_tuples

        @self.inlined
        def add(memory, offset, value):
            store(memory, offset, add_tuples(reload(memory, offset), value), True)

        return add

    # What all subteams of a team know

    @functools.cached_property
    def put_row(self):
        """``put_row(memory, offset, row)``: `store_row` by the team's first subteam."""
        return self._by_first_subteam(self.store_row)

    @functools.cached_property
    def put_heads(self):
        """``put_heads(memory, offset, heads)``: `store_heads` by the team's first subteam."""
        return self._by_first_subteam(self.store_heads)

    def _by_first_subteam(self, store: Callable) -> Callable:
        subteam_number = self.subteam_number

        @self.inlined
        def put(memory, offset, value):
            store(memory, offset, value, subteam_number() == 0)

        return put


def _number(emit: Callable):
    @intrinsic
    def number(typingctx):
        return types.int64(), lambda context, builder, signature, arguments: emit(builder)

    return number
