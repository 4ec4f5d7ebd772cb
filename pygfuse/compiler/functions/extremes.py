"""``max`` and ``min``: of all edges, of two values, or of what an edge has, with its place."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from pygfuse.compiler.functions.scattering import largest_of_all
from pygfuse.compiler.functions.views import inner_dim
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import OfEdges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES
from pygfuse.compiler.symbols.symbol import Symbol, handler, made

_OF_TWO = {'max': 'maximum', 'min': 'minimum'}


def _extreme(name: str) -> Callable:
    result = collections.namedtuple(name, ('values', 'indices'))

    def record(x: Symbol, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        other = dim if isinstance(dim, Symbol) else other
        if other is not None:
            return made(_OF_TWO[name], x, other)
        if x.rows != NUM_EDGES or (dim is None and name == 'min'):
            # torch takes those of nodes
            raise Refused('an extreme over something else than all edges or what an edge has')
        if dim is None:
            return largest_of_all(x)
        # the places may not be read
        return result(made(f'{name}_in_row', x, dim=inner_dim(x, dim), keepdim=keepdim), OfEdges())

    return record


for _name in _OF_TWO:
    handler(_name)(_extreme(_name))
