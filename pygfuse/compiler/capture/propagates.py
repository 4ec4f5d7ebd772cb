"""Whether a layer sends messages by ``propagate``, or is a `MessagePassing` in name and gathers and reduces itself."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

from torch_geometric.nn import MessagePassing

from pygfuse._lib.written_by_pyg import is_written_by_pyg

# what sends messages, and what another class may do it in
_SENDS = {'propagate', 'edge_updater', 'super'}


@functools.cache
def propagates(kind: type[MessagePassing]) -> bool:
    """Whether the ``forward`` of a class, or a method that it calls, may send messages by PyG's ``propagate``.

    Example:
        >>> class Sum(MessagePassing):
        ...     def forward(self, x, edge_index):
        ...         return x.new_zeros(x.shape).index_add(0, edge_index[1], x[edge_index[0]])
        >>> from torch_geometric.nn import GCNConv
        >>> propagates(Sum), propagates(GCNConv)
        (False, True)
    """
    if kind.__module__.startswith('torch_geometric.'):
        return True
    # one that somebody wrote is a method like others
    sends = _SENDS if is_written_by_pyg(kind, 'propagate') else _SENDS - {'propagate'}
    met, names = {'forward'}, ['forward']
    while names:
        function = getattr(kind, names.pop(), None)
        read = {name for one in _functions_in(function) for name in _names_in(one.__code__)}
        if not read.isdisjoint(sends):
            return True
        names += read - met
        met |= read
    # one without a forward of its own has PyG's, which is none
    return kind.forward is MessagePassing.forward


def _functions_in(function: Any) -> list[types.FunctionType]:
    """A function, and those that it is wrapped around."""
    found, left = [], [function]
    while left:
        one = left.pop()
        # one that counts its calls is in its own closure
        if not isinstance(one, types.FunctionType) or one in found:
            continue
        found.append(one)
        for cell in one.__closure__ or ():
            with contextlib.suppress(ValueError):
                left.append(cell.cell_contents)
    return found


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that code, and the functions within it, read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
