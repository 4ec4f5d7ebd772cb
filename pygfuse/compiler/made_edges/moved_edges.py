"""Functions of torch and PyG that give edges, or their ends, if they are given such: which row the result holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.made_edges.remade import Made

_MOVING = {
    'add_remaining_self_loops', 'add_self_loops', 'coalesce', 'remove_self_loops', 'sort_edge_index', 'to_undirected',
    '__getitem__', 'cat', 'chunk', 'clamp', 'clone', 'concat', 'concatenate', 'contiguous', 'detach', 'expand',
    'flatten', 'flip', 'gather', 'hstack', 'index_select', 'int', 'long', 'masked_select', 'maximum', 'minimum',
    'narrow', 'permute', 'ravel', 'repeat', 'repeat_interleave', 'reshape', 'roll', 'select', 'sort', 'split',
    'squeeze', 'stack', 't', 'take_along_dim', 'tile', 'to', 'transpose', 'unbind', 'unique', 'unsqueeze', 'view',
    'vstack', 'where',
}  # fmt: skip


class Ends(NamedTuple):
    """What something holds of edges.

    Attributes:
        row: The row of the edges whose ends it holds, if it holds ends.
        is_whole: Whether both rows are in it.
    """

    row: int | None
    is_whole: bool


NO_ENDS = Ends(None, False)


def ends_of(function: Callable, args: tuple) -> Ends:
    """What a function gives of edges, or of their ends.

    Args:
        function, args: The function, and what it is given, as of `Made`.
    """
    given = list(found_in(Made, args))
    if function.__name__ not in _MOVING or not given:
        return NO_ENDS
    ends = [one.end for one in given if one.end is not None]
    is_whole = any(one.is_whole for one in given)
    if ends:
        return Ends(ends[0], is_whole)
    rows = [one for one in found_in(int, args[1:]) if type(one) is int and -2 <= one < 2]
    return Ends(rows[-1] % 2 if rows and given[0].is_whole else None, is_whole)
