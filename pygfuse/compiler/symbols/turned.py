"""Values whose rows are not their first dimension, as ``x.t()`` or heads before nodes, ``[heads, nodes, channels]``.

What is recorded is what happens to the same values with their rows first: functions are told other dimensions.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.functions_by_name import ALIKE, BETWEEN, ELEMENTWISE, OF_DIMENSIONS
from pygfuse.compiler.symbols.handler_names import TURNED_NODES
from pygfuse.compiler.symbols.of_one import OfOne
from pygfuse.compiler.symbols.places import Place
from pygfuse.compiler.symbols.symbol import HANDLERS, Rearranged, Recorded, Symbol, recorded, written

ROWS_NOT_FIRST = 'a function of values whose first dimension is not that of nodes or edges'
# functions whose result lacks a dimension that they are given; those of which it may keep it, and where they say so
_REDUCING = {
    'sum': 2, 'mean': 2, 'amax': 2, 'amin': 2, 'max': 2, 'min': 2, 'norm': 3, 'vector_norm': 3, 'linalg_vector_norm': 3,
    'select': None, 'unbind': None, 'cosine_similarity': None,
}  # fmt: skip
_OF_PLACES = 'index_select', 'index_add'
_OF_ALL = 'sum', 'mean'
# functions that are recorded as others (`pygfuse.compiler.functions.turned_values`)
REWRITTEN: dict[str, Callable] = {}

# what a function is given with rows first, and where they are in its result
Own = tuple[tuple, dict[str, Any], int]


class Turned(OfOne):
    """Values of edges or nodes.

    Args:
        one: The same with rows first, their other dimensions in the same order.
        at: Which dimension the rows are, at least the second.

    Example:
        >>> from pygfuse.compiler.ir.values import EDGE, Node
        >>> from pygfuse.compiler.symbols.places import NUM_EDGES
        >>> x = Symbol(Node('input', (), {}, EDGE, (4, 8), torch.float32), NUM_EDGES)
        >>> x.dim(), Turned(x, 1).shape[0], Turned(x, 2).shape[:2]
        (3, 4, (4, 8))
    """

    def __init__(self, one: Symbol, at: int) -> None:
        self.one = one
        self.at = at

    @property
    def shape(self) -> tuple[Any, ...]:
        rows, *inner = self.one.shape
        return (*inner[: self.at], rows, *inner[self.at :])

    def numel(self) -> int:
        return self.one.numel()

    def __iter__(self) -> Iterator[Any]:
        return iter(recorded(torch.unbind, (self, 0)))

    def write(self, result: Any) -> None:
        if not is_like(result, self):
            raise Refused(ROWS_NOT_FIRST)
        written(self.one, result.one)

    def record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        args, kwargs = rebuilt((args, kwargs), in_one_tensor)
        if any(type(part) is not Turned for part in found_in(Rearranged, (args, kwargs))):
            raise Refused(ROWS_NOT_FIRST)
        try:
            return self._record(function, args, kwargs)
        except Refused:
            with contextlib.suppress(Refused):
                return HANDLERS[TURNED_NODES](function, args, kwargs)
            raise

    def _record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        name = function.__name__.strip('_')
        writes = function.__name__ == f'{name}_' or kwargs.get('inplace')
        if writes and not isinstance(args[0], Turned):
            raise Refused('it writes into a tensor of other dimensions')
        if name in REWRITTEN:
            return REWRITTEN[name](*args, **kwargs)
        own, own_kwargs, at = with_rows_first(name, args, kwargs)
        result = recorded(function, own, own_kwargs)
        return args[0] if writes and result is own[0] else as_turned(result, at)

    def record_leaf(self, function: Callable, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {name: in_one_tensor(item) for name, item in bound.arguments.items()}
        first = next(iter(given.values()))
        if any(type(part) is not Turned or not is_like(part, first) for part in found_in(Rearranged, given)):
            raise Refused(ROWS_NOT_FIRST)
        if 'dim' not in given:
            raise Refused(ROWS_NOT_FIRST)
        given['dim'] = dimension(first, given['dim'])
        out = given.get('out')
        result = function(**{name: one_of(item) for name, item in given.items()})
        return out if isinstance(out, Turned) and result is out.one else as_turned(result, first.at)


def turned(x: Symbol, order: Sequence[int]) -> Symbol | Turned:
    """A value with its dimensions in another order."""
    others = [dim for dim in order if dim != 0]
    one = x if others == sorted(others) else recorded(torch.permute, (x, (0, *others)))
    return as_turned(one, list(order).index(0))


def swapped(rank: int, first: int, second: int) -> list[int]:
    """The order of dimensions once two of them are exchanged.

    Example:
        >>> swapped(3, 0, -1)
        [2, 1, 0]
    """
    order = list(range(rank))
    order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return order


def as_turned(found: Any, at: int) -> Any:
    """What was recorded with rows first, with its rows at a dimension."""

    def one(part: Any) -> Any:
        return Turned(part, at) if isinstance(part, Symbol) and part.rows is not None else part

    return found if at == 0 else rebuilt(found, one)


def in_one_tensor(item: Any) -> Any:
    """A value in one tensor, also one that stands for several; anything else as it is."""
    return item.in_one_tensor() if isinstance(item, Rearranged) else item


def one_of(item: Any) -> Any:
    """A value with its rows first; anything else as it is."""
    return item.one if isinstance(item, Turned) else item


def is_like(x: Any, other: Any) -> bool:
    """Whether both have as many dimensions, and their rows at the same."""
    return isinstance(x, Turned) and isinstance(other, Turned) and (x.at, x.dim()) == (other.at, other.dim())


def dimension(x: Turned, dim: Any) -> int:
    """A dimension as it is with rows first."""
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        raise Refused(ROWS_NOT_FIRST)
    dim %= x.dim()
    return 0 if dim == x.at else dim + (dim < x.at)


def with_rows_first(name: str, args: tuple, kwargs: dict[str, Any]) -> Own:
    """The arguments of a function with rows first, and where they are in its result.

    Raises:
        Refused: If it is not known what it does to dimensions.
    """
    is_of_two = name in ('max', 'min') and len(args) > 1 and isinstance(args[1], Recorded)
    if name in ELEMENTWISE or is_of_two:
        return _aligned(args, kwargs)
    first = args[0] if args else None
    if name in OF_DIMENSIONS:
        return _along_dimensions(name, args, kwargs)
    if name in BETWEEN:
        return _between(name, args, kwargs)
    if not isinstance(first, Turned):
        raise Refused(ROWS_NOT_FIRST)
    if name in ('new_zeros', 'new_ones', 'new_full'):
        # of which it has the type
        return (first.one, *args[1:]), kwargs, 0
    reads_last = name in ('linear', 'layer_norm')
    beside = next(found_in((Turned, Place), (args[1:], kwargs)), None)
    if name not in ALIKE or (reads_last and first.at == first.dim() - 1) or (reads_last and beside is not None):
        raise Refused(ROWS_NOT_FIRST)
    if name in ('is_contiguous', 'embedding'):
        raise Refused(ROWS_NOT_FIRST)
    return (first.one, *map(one_of, args[1:])), {word: one_of(item) for word, item in kwargs.items()}, first.at


def _aligned(args: tuple, kwargs: dict[str, Any]) -> Own:
    """Values that are broadcast, of which those with rows have them at the same dimension."""
    if next(found_in((Rearranged, Symbol), kwargs), None) is not None:
        raise Refused('values as keywords')
    values = [item for item in args if isinstance(item, (Turned, Symbol))]
    rank = max(item.dim() for item in values)
    # those of another value may be the first, as of weights of edges beside rows of channels that are turned
    behind = {item.dim() - getattr(item, 'at', 0) for item in values if one_of(item).rows is not None}
    if len(behind) > 1:
        raise Refused(ROWS_NOT_FIRST)
    at = rank - behind.pop()
    return tuple([_broadcast(item, rank, at) for item in args]), kwargs, at


def _broadcast(item: Any, rank: int, at: int) -> Any:
    """An argument as one that is broadcast to `rank` dimensions with rows first."""
    if isinstance(item, (Turned, Symbol)) and one_of(item).rows is not None:
        one = one_of(item)
        for _ in range(rank - item.dim()):
            one = recorded(torch.unsqueeze, (one, 1))
        return one
    if isinstance(item, Symbol) and rank - item.dim() <= at:
        place = at - rank + item.dim()
        if item.shape[place] != 1:
            raise Refused('a shared value for each edge or node')
        return recorded(torch.squeeze, (item, place))
    return item


def _along_dimensions(name: str, args: tuple, kwargs: dict[str, Any]) -> Own:
    """Arguments of which one is a dimension, or several."""
    place, word, default = OF_DIMENSIONS[name]
    x = next(found_in(Turned, args[:1]), None)
    others = list(found_in((Rearranged, Symbol, Place), (args[:1], args[1:], kwargs)))
    if x is None or any(not (is_like(other, x) or isinstance(other, Place)) for other in others):
        raise Refused(ROWS_NOT_FIRST)
    is_positional = len(args) > place
    dims = args[place] if is_positional else kwargs.get(word, default)
    if dims is None and name == 'squeeze':
        dims = tuple([dim for dim, size in enumerate(x.shape) if dim != x.at and size == 1])
    if dims is None and name in _OF_ALL:
        return rebuilt(args, one_of), kwargs, 0
    each = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    mapped = tuple([dimension(x, dim) for dim in each])
    at = x.at - _lost(name, x, each, args, kwargs)
    if 0 in mapped and not (name in _OF_PLACES or (name in _OF_ALL and _reduces(name, args, kwargs))):
        raise Refused('an operator over the dimension of edges')
    if name in _OF_PLACES and mapped != (0,):
        raise Refused(ROWS_NOT_FIRST)
    if name == 'unflatten' and 0 < mapped[0] <= x.at:
        at += len(kwargs['sizes'] if 'sizes' in kwargs else args[2]) - 1
    own = mapped if isinstance(dims, (tuple, list)) else mapped[0]
    if is_positional:
        return rebuilt((*args[:place], own, *args[place + 1 :]), one_of), kwargs, at
    return rebuilt(args, one_of), {**kwargs, word: own}, at


def _reduces(name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a function's result lacks the dimensions that it is given."""
    if name not in _REDUCING:
        return False
    place = _REDUCING[name]
    return place is None or not (args[place] if len(args) > place else kwargs.get('keepdim', False))


def _lost(name: str, x: Turned, dims: Sequence[int], args: tuple, kwargs: dict[str, Any]) -> int:
    """How many dimensions before that of rows are none of the result."""
    before = [dim % x.dim() for dim in dims if dim % x.dim() < x.at]
    if name == 'squeeze':
        return sum(x.shape[dim] == 1 for dim in before)
    return len(before) if _reduces(name, args, kwargs) else 0


def _between(name: str, args: tuple, kwargs: dict[str, Any]) -> Own:
    """Arguments of a function whose result has one dimension more."""
    place, word, default = BETWEEN[name]
    parts = list(found_in((Rearranged, Symbol), args[:1]))
    x = parts[0]
    if any(not is_like(part, x) for part in parts):
        raise Refused(ROWS_NOT_FIRST)
    is_positional = len(args) > place
    dim, rank = args[place] if is_positional else kwargs.get(word, default), x.dim() + 1
    if type(dim) is not int or not -rank <= dim < rank:
        raise Refused(ROWS_NOT_FIRST)
    dim %= rank
    is_before = dim <= x.at
    own = dim + is_before
    given = (*args[:place], own, *args[place + 1 :]) if is_positional else args
    kwargs = kwargs if is_positional else {**kwargs, word: own}
    return rebuilt(given, one_of), kwargs, x.at + is_before
