"""Functions of all nodes, or of all edges: torch computes them of whole values of nodes, as they are written.

A sum over all edges is one over all nodes, of what each adds up.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.functions.leaves import scatter
from pygfuse.compiler.ir.operations import piece_of
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, mapped, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, OfEdges
from pygfuse.compiler.symbols.handler_names import ANY_OF_NODES, TURNED_NODES, WITH_ROWS
from pygfuse.compiler.symbols.numbers_of_rows import (
    NUM_EDGES,
    NUM_SOURCES,
    NUM_TARGETS,
    OF_NODES,
    WITH_NUMBERS,
    Rows,
    has_numbers,
    kind_of,
)
from pygfuse.compiler.symbols.places import Place
from pygfuse.compiler.symbols.random_functions import is_drawn
from pygfuse.compiler.symbols.sharing import check_current, share, shares_memory
from pygfuse.compiler.symbols.symbol import Symbol, are_of_nodes, handler, made, recorded, replaced, symbols_in
from pygfuse.compiler.symbols.turned import ROWS_NOT_FIRST, Turned, as_turned, one_of

# numbers of nodes of examples, which tell what depends on them
_EXAMPLES = NUM_TARGETS, NUM_SOURCES
# of what gives several values, all are computed for each
_MOST_PIECES = 32
_ROWS_OF_EXAMPLES = [(count,) for count in (NUM_EDGES, *_EXAMPLES)]


@handler(ANY_OF_NODES)
def of_all_nodes(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Records a function of torch of values of nodes, which gives a row for each node, or a value of all.

    Args:
        function: The function.
        args, kwargs: What it is given: values of nodes of one set among it.

    Raises:
        Refused: If it gives anything else, or values decide its shape.

    Example:
        >>> from pygfuse.compiler.ir.values import TARGET, leaf
        >>> x = Symbol(leaf('x', TARGET, (4,), torch.float32), NUM_TARGETS)
        >>> of_all_nodes(torch.std, (x, 0), {}).shape, of_all_nodes(torch.cumsum, (x, 0), {}).node.op
        ((4,), 'of_nodes')
    """
    if any(True for _ in symbols_in(kwargs)):
        raise Refused(f'{function.__name__} takes a value as a keyword')
    remaking = REMAKING.get()
    if remaking is not None and remaking.copies:
        raise Refused(f'{function.__name__} of the nodes of several copies')
    try:
        return _of_any_number(function, args, kwargs)
    except Refused:
        if remaking is None or remaking.num_nodes is None or isinstance(function, OfSoMany):
            raise
    found = _of_any_number(OfSoMany(function, remaking.num_nodes), args, kwargs)
    remaking.fix_nodes()
    return found


@dataclasses.dataclass(frozen=True)
class OfSoMany:
    """A function of so many nodes as a call has, whatever number examples have.

    Attributes:
        function: The function.
        count: The number.
    """

    function: Callable
    count: int

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*self.of_count(args), **kwargs)

    def of_count(self, args: Any) -> Any:
        """Arguments with an example of so many rows in place of each of others."""
        return rebuilt(args, self._of_count)

    def _of_count(self, item: Any) -> Any:
        is_example = isinstance(item, Tensor) and item.device.type == 'meta' and item.shape[:1] in _ROWS_OF_EXAMPLES
        # a view of one that has as many is to share its memory
        is_other = is_example and item.shape[0] != self.count
        return item.new_empty(self.count, *item.shape[1:]) if is_other else item


@dataclasses.dataclass(frozen=True)
class OfTurned:
    """A function of values whose rows are not their first dimension, of these with rows first.

    Attributes:
        function: The function.
        places: Which dimension the rows are of each thing that it is given.
        at: The same of its result.
    """

    function: Callable
    places: tuple[int, ...]
    at: int = 0

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        places = iter(self.places)
        given = rebuilt(args, lambda item: _moved(item, 0, next(places)))
        return _moved(self.function(*given, **kwargs), self.at, 0)


def _moved(item: Any, place: int, wanted: int) -> Any:
    return item if place == wanted else item.movedim(place, wanted)


@handler(TURNED_NODES)
def of_turned_nodes(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Records a function of values of nodes of which some have their rows at another dimension than the first.

    Args:
        function, args, kwargs: As of `of_all_nodes`.

    Raises:
        Refused: As of `of_all_nodes`.

    Example:
        >>> from pygfuse.compiler.ir.values import TARGET, leaf
        >>> x = Symbol(leaf('x', TARGET, (4,), torch.float32), NUM_TARGETS)
        >>> of_turned_nodes(torch.matmul, (Turned(x, 1), x), {}).shape
        (4, 4)
        >>> of_turned_nodes(torch.softmax, (Turned(x, 1), 1), {}).at
        1
    """
    name, places = function.__name__, []
    symbols = [*symbols_in(rebuilt((args, kwargs), one_of))]
    writes = (name.endswith('_') and not name.endswith('__')) or kwargs.get('inplace')
    if not are_of_nodes(symbols) or writes or is_drawn(name) or (REMAKING.get() is not None and REMAKING.get().copies):
        raise Refused(ROWS_NOT_FIRST)
    check_current(symbols)

    def with_rows_first(item: Any) -> Any:
        places.append(item.at if isinstance(item, Turned) else 0)
        return one_of(item)

    own = rebuilt(args, with_rows_first)
    found, at = _with_rows_at_some_place(function, tuple(places), own, kwargs)
    share(symbols_in(found), symbols, name)
    found = found if torch.is_grad_enabled() else replaced(found, lambda symbol: made('detach', symbol))
    return as_turned(found, at)


def _with_rows_at_some_place(
    function: Callable, places: tuple[int, ...], args: tuple, kwargs: dict[str, Any]
) -> tuple[Any, int]:
    """What a function gives of arguments with rows first, and where rows are in its result, if it has any."""
    for at in (0, *{*places} - {0}):
        with contextlib.suppress(Refused):
            return _of_any_number(OfTurned(function, places, at), args, kwargs), at
    return of_all_nodes(OfTurned(function, places), args, kwargs), 0


def _of_any_number(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a function gives of any number of nodes."""
    name = function.__name__
    if has_numbers((args, kwargs)):
        # examples have others
        raise Refused(WITH_NUMBERS)
    # a size that edges tell is read as a number
    args, kwargs = rebuilt((args, kwargs), lambda item: item.item() if isinstance(item, OfEdges) else item)
    (rows,) = {symbol.rows for symbol in symbols_in(args)} - {None}
    nodes = replaced(args, lambda symbol: symbol.node)
    (few, given), (many, _) = (_results(function, nodes, kwargs, count) for count in _EXAMPLES)
    keywords = tuple(replaced(kwargs, lambda symbol: symbol).items())
    if isinstance(few, Tensor):
        return _symbol(nodes, (few, many), given, rows, function=function, keywords=keywords)
    if not isinstance(few, (tuple, list)) or not all(isinstance(part, Tensor) for part in few):
        raise Refused(f'{name} of nodes gives a {type(few).__name__}')
    if len(few) != len(many) or len(few) > _MOST_PIECES:
        raise Refused(f'{name} of nodes gives too many tensors')
    keywords = ('function', function), *keywords
    pairs = enumerate(zip(few, many, strict=True))
    # of some the parts have names
    return type(few)(
        [_symbol(nodes, pair, given, rows, function=piece_of, keywords=(('piece', k), *keywords)) for k, pair in pairs]
    )


def _results(function: Callable, nodes: tuple, kwargs: dict[str, Any], count: int) -> tuple[Any, tuple]:
    """What a function gives of so many nodes, without memory, and what it was given."""

    def example(node: Node) -> Tensor:
        rows = () if node.residency == SHARED else (count,)
        return torch.empty((*rows, *node.shape), dtype=node.dtype, device='meta')

    given = mapped(nodes, example)
    given = function.of_count(given) if isinstance(function, OfSoMany) else given
    try:
        # examples are tensors, which nobody records
        with torch._C.DisableTorchFunction():
            return function(*given, **kwargs), given
    except Exception as error:
        raise Refused(f'{function.__name__} of all nodes: {error}') from error


def _value(op: str, *args: Any, **attributes: Any) -> Node:
    # its example is a tensor, too
    with torch._C.DisableTorchFunction():
        return value(op, *args, **attributes)


def _symbol(nodes: tuple, examples: Sequence[Tensor], given: tuple, rows: int, **attributes: Any) -> Symbol:
    """The symbol of such a result, by what it is of two numbers of nodes, and of what the first of them was given."""
    few, many = (tuple(example.shape) for example in examples)
    if few == many:
        found = Symbol(_value('over_nodes', *nodes, **attributes), None)
    elif few[:1] + many[:1] == _EXAMPLES and few[1:] == many[1:]:
        found = Symbol(_value('of_nodes', *nodes, **attributes), rows)
    else:
        raise Refused('a shape that depends on the number of nodes')
    found.is_view = shares_memory(examples[0], given)
    return found


def sum_over_edges(x: Symbol, dim: Any, keepdim: bool) -> Symbol:
    """A sum over all edges, and over dimensions of their rows perhaps.

    Args:
        x: Values of edges.
        dim: The dimensions, that of edges among them; None are all.
        keepdim: Whether they are kept, each of size 1.

    Raises:
        Refused: If they have no sum for each target.
    """
    dims = range(x.dim()) if dim is None else [d % x.dim() for d in ((dim,) if isinstance(dim, int) else dim)]
    of_targets = scatter(x, Place(True), 0, Rows(NUM_TARGETS))
    return recorded(torch.sum, (of_targets, tuple(dims)), {'keepdim': keepdim and dim is not None})


def is_over_edges(dim: Any, rank: int) -> bool:
    """Whether a reduction of values of edges is over all edges.

    Example:
        >>> [is_over_edges(dim, 2) for dim in (None, 0, -1, (0, 1))]
        [True, True, False, True]
    """
    return dim is None or any(isinstance(d, int) and d % rank == 0 for d in ((dim,) if isinstance(dim, int) else dim))


_COUNTED = {NUM_EDGES: EDGE, NUM_TARGETS: TARGET, NUM_SOURCES: SOURCE}


def number_of_rows(rows: int, dtype: torch.dtype) -> Symbol:
    """The number of edges, targets or sources of a call, as a tensor.

    Args:
        rows: What stands for it in a capture.
        dtype: Its type.
    """
    return Symbol(Node('number_of_rows', (), {'counted': _COUNTED[kind_of(rows)]}, SHARED, (), dtype), None)


@handler(WITH_ROWS)
def _with_numbers(args: tuple) -> tuple:
    """Arguments with a tensor in place of each number of nodes that floating values are computed with."""
    dtypes = {symbol.dtype for symbol in symbols_in(args)}
    is_one = len(dtypes) == 1 and all(dtype.is_floating_point for dtype in dtypes)
    is_counted = [isinstance(one, Rows) and one.kind in OF_NODES for one in args]
    if not is_one:
        return args
    return tuple(
        [number_of_rows(one, *dtypes) if counted else one for one, counted in zip(args, is_counted, strict=True)]
    )
