"""Whether code writes into what it hands to ``propagate``, as its instructions say."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Sequence

from pygfuse._lib.names_written import ENDS, instructions_of, names_of, names_written
from pygfuse.compiler.capture.names_in_code import codes_in

# classes whose code is known to write into nothing that it hands on
_KNOWN = ('torch', 'torch_geometric', 'pygfuse')
# methods whose writes a capture sees
_CAPTURED = ('message', 'aggregate', 'edge_update', 'message_and_aggregate')


def writes_into_given(kind: type) -> bool:
    """Whether a layer of a class writes into tensors that it hands to ``propagate``, by the names that they have.

    ``x += out`` behind ``propagate(edge_index, x=x)``, or in ``update``, leaves what a message reads other than it was:
    PyG has gathered rows by then. Tensors that have two names are not seen.

    Args:
        kind: A class of `torch_geometric.nn.MessagePassing`.

    Example:
        >>> from torch_geometric.nn import MessagePassing
        >>> class Residual(MessagePassing):
        ...     __module__ = 'somebody.models'
        ...
        ...     def forward(self, x, edge_index):
        ...         out = self.propagate(edge_index, x=x)
        ...         x += out
        ...         return x
        >>> writes_into_given(Residual), writes_into_given(MessagePassing)
        (True, False)
    """
    return _writes(kind, kind.forward, kind.update)


@functools.lru_cache(maxsize=512)
def _writes(kind: type, *methods: types.FunctionType) -> bool:
    own = [one for one in kind.__mro__ if one.__module__.partition('.')[0] not in _KNOWN]
    functions = {name: one for holder in own[::-1] for name, one in vars(holder).items()}
    for name, function in functions.items():
        if not isinstance(function, types.FunctionType) or name in _CAPTURED:
            continue
        code = function.__code__
        given = set(code.co_varnames[2 : code.co_argcount]) if name == 'update' else set()
        for inner in codes_in(code):
            instructions = instructions_of(inner)
            if names_written(instructions).keys() & (given | _handed_on(instructions)):
                return True
    return False


def _handed_on(instructions: Sequence[dis.Instruction]) -> set[str]:
    """The names that are read from where ``propagate`` is to where its result is stored."""
    found: set[str] = set()
    is_within = False
    for one in instructions:
        is_within = (is_within or one.argval == 'propagate') and not one.opname.startswith(ENDS)
        if is_within:
            found |= {*names_of(one)}
    return found
