"""What a lane of a warp can do: load and store its share of a row, pass values to other lanes, choose.

The attributes of `Instructions` are Numba intrinsics to be used in kernel bodies, for one layout. Walks take them as an
argument and use nothing else of the device, so that they also run where the same names are plain Python functions: in
the simulator, under test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from pygfuse.cuda.arithmetic import Values
from pygfuse.cuda.lanes import LaneHeads, LaneRow
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.loads import Loads
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
                block = builder.mul(special(builder, 'ctaid.x'), special(builder, 'ntid.x'))
                return builder.lshr(builder.add(block, thread(builder)), shift(team))

            return types.int64(), emit

        return team_number

    @functools.cached_property
    def team_count(self):
        """``team_count()``: teams of the grid."""
        team = self.layout.team

        @intrinsic
        def team_count(typingctx):
            def emit(context, builder, signature, arguments):
                threads = builder.mul(special(builder, 'nctaid.x'), special(builder, 'ntid.x'))
                return builder.lshr(threads, shift(team))

            return types.int64(), emit

        return team_count

    @functools.cached_property
    def tile_number(self):
        """``tile_number()``: which tile of the row this lane works on."""

        @intrinsic
        def tile_number(typingctx):
            return types.int64(), lambda context, builder, signature, arguments: special(builder, 'ctaid.y')

        return tile_number

    @functools.cached_property
    def group_number(self):
        """``group_number()``: which of the team's groups this lane belongs to."""
        layout = self.layout

        @intrinsic
        def group_number(typingctx):
            def emit(context, builder, signature, arguments):
                group = builder.lshr(thread(builder), shift(layout.lanes))
                return builder.and_(group, number_of(layout.groups - 1))

            return types.int64(), emit

        return group_number
