"""Values of several copies of the same graph in one tensor, ``[*copies, rows, *]``, as batches over fixed edges are.

What is recorded is what happens to one copy: functions are told the dimensions of a row, and none may read those before
the dimension of rows. A call takes its copies for one graph of as many parts (`pygfuse.conv._modules.copies_of_nodes`),
so that nothing may be computed of all rows either: of a copy these are some, in a call those of all copies.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import Node, found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.handler_names import LIFTED
from pygfuse.compiler.symbols.numbers_of_rows import Rows
from pygfuse.compiler.symbols.one_copy import (
    BEFORE_ROWS,
    OfCopies,
    dimension_of_one,
    has_rows,
    in_one_copy,
    is_row_wise,
    one_of,
    sizes_in,
    sizes_of,
    view_of_place,
)
from pygfuse.compiler.symbols.places import Place
from pygfuse.compiler.symbols.sharing import write
from pygfuse.compiler.symbols.symbol import Rearranged, Symbol, handler, recorded

_OF_ALL_ROWS = 'a function of all rows of a copy'


class Copies(OfCopies):
    """Values of several copies of the same nodes or edges.

    Args:
        one: What stands for those of one copy: a value of edges or nodes, or an end of each edge.
        sizes: The dimensions before that of rows; 1 is a dimension that is broadcast.
    """

    def __init__(self, one: Symbol | Place, sizes: Sequence[int]) -> None:
        self.one = one
        self.sizes = tuple(sizes)

    @property
    def shape(self) -> tuple[Any, ...]:
        return (*self.sizes, *self.one.shape)

    def numel(self) -> int:
        raise Refused(BEFORE_ROWS)

    def write(self, result: Any) -> None:
        if not isinstance(result, Copies) or result.sizes != self.sizes:
            raise Refused('it writes into a tensor of other copies')
        write(self.one, result.one)

    def record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        name = function.__name__.strip('_')
        if any(not isinstance(one, Copies) for one in found_in(Rearranged, (args, kwargs))):
            raise Refused(BEFORE_ROWS)
        args, kwargs = in_one_copy(name, args, kwargs)
        sizes = sizes_of(name, args, kwargs)
        writes = function.__name__ == f'{name}_' or kwargs.get('inplace')
        if writes and not (isinstance(args[0], Copies) and args[0].sizes == sizes):
            raise Refused('it writes into a tensor of other copies')
        first, own = args[0] if args else None, rebuilt((args, kwargs), one_of)
        with REMAKING.get().of_copies():
            if isinstance(first, Copies) and isinstance(first.one, Place):
                found = view_of_place(name, *own[0], **own[1])
            else:
                found = recorded(function, *own)
        if isinstance(first, Copies) and found is first.one and sizes == first.sizes:
            # after a write in place, too
            return first
        return as_copies(found, sizes)

    def record_leaf(self, function: Callable, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        first = next(iter(given.values()))
        found = list(found_in(Copies, given))
        is_first = isinstance(first, Copies)
        if not is_first or any(one.sizes != first.sizes or isinstance(one.one, Place) for one in found):
            raise Refused('a reduction of values of different numbers of copies')
        if 'dim' not in given:
            raise Refused(f'{function.__name__} of several copies of nodes')
        given['dim'] = dimension_of_one(first, given['dim'])
        with REMAKING.get().of_copies():
            own = {name: one_of(item) for name, item in given.items()}
            result = function(**own)
        out = given.get('out')
        return out if isinstance(out, Copies) and result is out.one else as_copies(result, first.sizes)


class OfSeveral(NamedTuple):
    """What has several copies in a call.

    Attributes:
        sizes: The dimensions before that of rows; none if there is one copy.
        names: The arguments that have these.
    """

    sizes: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()


NO_COPIES = OfSeveral()


def copies_of(found: Any) -> tuple[tuple[int, ...], int]:
    """How a result is found among the rows of all copies: the dimensions before, and how many copies are the same."""
    remaking = REMAKING.get()
    sizes = remaking.copies if remaking is not None else ()
    if not sizes or not has_rows(found):
        return (), 1
    if not isinstance(found, Copies):
        return (), math.prod(sizes)
    if found.sizes == sizes:
        return sizes, 1
    if any(size != 1 for size in found.sizes):
        raise Refused('it returns values of some of the copies')
    return found.sizes, math.prod(sizes)


def as_copies(found: Any, sizes: Sequence[int]) -> Any:
    """What was recorded of one copy as something of several."""

    def of_several(part: Any) -> Any:
        if isinstance(part, Place) or (isinstance(part, Symbol) and part.rows is not None):
            return Copies(part, sizes)
        if isinstance(part, (Symbol, bool)):
            return part
        raise Refused(BEFORE_ROWS)

    return rebuilt(found, of_several)


@handler(LIFTED)
def lifted(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Copies:
    """What a view gives that has dimensions before that of rows, of values of one copy, or of the ends of edges.

    Raises:
        Refused: If it is no such view.
    """
    name, (x, *rest) = function.__name__.strip('_'), args
    if kwargs or not isinstance(x, (Symbol, Place)) or (isinstance(x, Symbol) and x.rows is None):
        raise Refused(BEFORE_ROWS)
    if name == 'unsqueeze':
        if rest != [0] and rest != [-x.dim() - 1]:
            raise Refused(BEFORE_ROWS)
        return Copies(x, (1,))
    if name == 'getitem':
        key = rest[0] if isinstance(rest[0], tuple) else (rest[0],)
        count = next((k for k, place in enumerate(key) if place is not None), len(key))
        return Copies(x, (1,) * count)[(slice(None),) * count + tuple(key[count:])]
    sizes = sizes_in(rest)
    if name in ('view', 'reshape'):
        count = next((k for k, size in enumerate(sizes) if isinstance(size, Rows) or size != 1), 0)
    elif name in ('expand', 'repeat'):
        count = len(sizes) - x.dim()
    else:
        raise Refused(BEFORE_ROWS)
    if count < 1:
        raise Refused(BEFORE_ROWS)
    return getattr(Copies(x, (1,) * count), name)(*sizes)


def check_alone(name: str, args: tuple, kwargs: dict[str, Any]) -> None:
    """Checks that a function of values that all copies share gives in a call what it does of one copy.

    Raises:
        Refused: If it may not.
    """
    if not is_row_wise(name.strip('_'), args, kwargs):
        raise Refused(_OF_ALL_ROWS)


# operators that are of one graph in a call, where a copy is one
_OF_ONE_GRAPH = {
    'as_nodes', 'batch_norm', 'largest', 'layer', 'norm_of_nodes', 'number_of_rows', 'of_nodes',
    'of_other_edges', 'over_nodes', 'resized', 'typed_map', 'typed_product',
}  # fmt: skip


def check_copies(nodes: Iterable[Node]) -> None:
    """Checks that what was captured of one copy is the same of several as parts of a graph.

    Raises:
        Refused: If it is not.
    """
    for node in nodes:
        if node.op in _OF_ONE_GRAPH or {'ends_early', 'rows'} & {*node.attributes}:
            raise Refused(_OF_ALL_ROWS)
