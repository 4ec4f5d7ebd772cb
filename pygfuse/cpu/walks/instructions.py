"""What walks can do with rows of one layout, under the names of `pygfuse.cuda.instructions`."""

from __future__ import annotations

import functools

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.inlining import add_tuples


class Instructions(Layout):
    """A layout with what walks need that both devices share (`pygfuse.codegen.combination`)."""

    inlined = staticmethod(inlined)
    place_at = staticmethod(place_at)

    @functools.cached_property
    def put_row(self):
        """`store_row`: on a GPU, by one of the subteams that know the row."""
        return self.store_row

    @functools.cached_property
    def put_heads(self):
        """`store_heads`: on a GPU, by one of the subteams that know the heads."""
        return self.store_heads

    @functools.cached_property
    def add_row(self):
        """``add_row(memory, offset, row)``: adds to what this part, and no other, has there; of tuples, each."""
        load_row, store_row = self.load_row, self.store_row

        @inlined
        def add(memory, offset, row):
            store_row(memory, offset, add_tuples(load_row(memory, offset), row))

        return add

    @functools.cached_property
    def add_heads(self):
        """``add_heads(memory, offset, edges)``: the same of the sum over a vector of edges."""
        load_heads, store_heads, sum_edges = self.load_heads, self.store_heads, self.sum_edges

        @inlined
        def add(memory, offset, edges):
            store_heads(memory, offset, add_tuples(load_heads(memory, offset), sum_edges(edges)))

        return add
