"""Values whose rows are not their first dimension, as ``x.t()`` or heads before nodes, ``[heads, nodes, channels]``.

What is recorded is what happens to the same values with their rows first: functions are told other dimensions.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.functions_by_name import ALIKE, BETWEEN, ELEMENTWISE, OF_DIMENSIONS
from pygfuse.compiler.symbols.places import Place, Rows
from pygfuse.compiler.symbols.symbol import HANDLERS, TURNED_NODES, Rearranged, Symbol, recorded, written

ROWS_NOT_FIRST = 'a function of values whose first dimension is not that of nodes or edges'
# functions whose result lacks a dimension that they are given; those of which it may keep it, and where they say so
_REDUCING = {
    'sum': 2, 'mean': 2, 'amax': 2, 'amin': 2, 'norm': 3, 'vector_norm': 3, 'linalg_vector_norm': 3,
    'select': None, 'unbind': None, 'cosine_similarity': None,
}  # fmt: skip
_OF_PLACES = 'index_select', 'index_add'
_OF_ALL = 'sum', 'mean'
_EVERY = slice(None)

# what a function is given with rows first, and where they are in its result
Own = tuple[tuple, dict[str, Any], int]


class Turned(Rearranged):
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

    @property
    def dtype(self) -> torch.dtype:
        return self.one.dtype

    @property
    def device(self) -> torch.device:
        return self.one.device

    def is_floating_point(self) -> bool:
        return self.one.is_floating_point()

    def numel(self) -> int:
        return self.one.numel()

    def item(self) -> int | bool:
        raise Refused(self.unread)

    def __setitem__(self, key: Any, item: Any) -> None:
        raise Refused('it writes into a tensor')

    def write(self, result: Any) -> None:
        if not is_like(result, self):
            raise Refused(ROWS_NOT_FIRST)
        written(self.one, result.one)

    def record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
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
        if name in _REWRITTEN:
            return _REWRITTEN[name](*args, **kwargs)
        own, own_kwargs, at = with_rows_first(name, args, kwargs)
        result = recorded(function, own, own_kwargs)
        return args[0] if writes and result is own[0] else as_turned(result, at)

    def record_leaf(self, function: Callable, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
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


def as_turned(found: Any, at: int) -> Any:
    """What was recorded with rows first, with its rows at a dimension."""

    def one(part: Any) -> Any:
        return Turned(part, at) if isinstance(part, Symbol) and part.rows is not None else part

    return found if at == 0 else rebuilt(found, one)


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
    if name in ELEMENTWISE:
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
    behind = {item.dim() - item.at for item in values if isinstance(item, Turned)}
    if len(behind) > 1 or any(isinstance(item, Symbol) and item.rows is not None for item in values):
        raise Refused(ROWS_NOT_FIRST)
    at = rank - behind.pop()
    return tuple([_broadcast(item, rank, at) for item in args]), kwargs, at


def _broadcast(item: Any, rank: int, at: int) -> Any:
    """An argument as one that is broadcast to `rank` dimensions with rows first."""
    if isinstance(item, Turned):
        one = item.one
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


# Functions that are recorded as others


def _permute(x: Turned, *dims: Any) -> Symbol | Turned:
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if len(dims) != x.dim():
        raise Refused(ROWS_NOT_FIRST)
    return turned(x.one, [dimension(x, dim) for dim in dims])


def _transpose(x: Turned, first: int, second: int) -> Symbol | Turned:
    order, rank = list(range(x.dim())), x.dim()
    order[first % rank], order[second % rank] = order[second % rank], order[first % rank]
    return _permute(x, order)


def _t(x: Turned) -> Symbol | Turned:
    return _transpose(x, 0, 1)


def _matmul(x: Any, y: Any) -> Symbol | Turned:
    if isinstance(x, Symbol) and x.rows is None and x.dim() <= 2 and y.dim() == 2:
        # a map from the left, of one vector for each row
        found = recorded(torch.matmul, (y.one, x if x.dim() == 1 else recorded(torch.t, (x,))))
        return as_turned(found, x.dim() - 1)
    if isinstance(y, Symbol) and y.rows is None and x.at < x.dim() - 1:
        if y.dim() <= 2:
            return as_turned(recorded(torch.matmul, (x.one, y)), x.at)
        if y.dim() == x.dim() == 3 and x.at == 1:
            # heads, each of which has its own map
            return as_turned(recorded(torch.einsum, ('nhd,hdk->nhk', x.one, y)), 1)
    if is_like(x, y) and x.at < x.dim() - 2:
        return as_turned(recorded(torch.matmul, (x.one, y.one)), x.at)
    raise Refused(ROWS_NOT_FIRST)


def _einsum(equation: str, *values: Any) -> Any:
    values = tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
    terms, _, result = equation.replace(' ', '').partition('->')
    terms = terms.split(',')
    if '.' in equation or not result or len(terms) != len(values):
        raise Refused(ROWS_NOT_FIRST)
    places = [x.at if isinstance(x, Turned) else 0 for x in values]
    letters = {
        term[place] for term, place, x in zip(terms, places, values, strict=True) if getattr(x, 'rows', 0) is not None
    }
    if len(letters) != 1 or next(iter(letters)) not in result:
        raise Refused('einsum over the dimension of edges')
    letter = letters.pop()
    own = [term[place] + term[:place] + term[place + 1 :] for term, place in zip(terms, places, strict=True)]
    equation = f'{",".join(own)}->{letter}{result.replace(letter, "")}'
    return as_turned(recorded(torch.einsum, (equation, *map(one_of, values))), result.index(letter))


def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, Turned) or next(found_in(Rearranged, key if isinstance(key, tuple) else (key,)), None):
        raise Refused('an index by values')
    key = _filled_key(x, key if isinstance(key, tuple) else (key,))
    at = next(k for k, dim in enumerate(_dimensions(key)) if dim == x.at)
    of_rows, others = key[at], [*key[:at], *key[at + 1 :]]
    one = x.one
    if not (isinstance(of_rows, slice) and of_rows == _EVERY):
        if any(isinstance(part, int) for part in others):
            # torch would bring the rows to the front
            raise Refused('an index over edges')
        one = recorded(Tensor.__getitem__, (one, of_rows))
    if any(not (isinstance(part, slice) and part == _EVERY) for part in others):
        one = recorded(Tensor.__getitem__, (one, (_EVERY, *others)))
    return as_turned(one, sum(part is None or isinstance(part, slice) for part in key[:at]))


def _filled_key(x: Turned, key: tuple) -> tuple:
    """A key that says something of each dimension."""
    missing = x.dim() - sum(part is not None and part is not Ellipsis for part in key)
    places = [k for k, part in enumerate(key) if part is Ellipsis]
    if missing < 0 or len(places) > 1:
        raise Refused('an index by values')
    at = places[0] if places else len(key)
    return (*key[:at], *[_EVERY] * missing, *key[at + 1 :])


def _dimensions(key: tuple) -> Iterator[int | None]:
    """Which dimension each part of a key is of; None of those that it adds."""
    dim = 0
    for part in key:
        yield None if part is None else dim
        dim += part is not None


def _reshape(x: Any, *sizes: Any) -> Any:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if not isinstance(x, Turned):
        raise Refused(ROWS_NOT_FIRST)
    at = next((k for k, size in enumerate(sizes) if isinstance(size, Rows)), None)
    # without a number of rows, what is unsaid is theirs
    at = sizes.index(-1) if at is None and -1 in sizes else at
    if at is None:
        raise Refused(ROWS_NOT_FIRST)
    inner = x.one.node.shape
    before, behind = _filled_sizes(sizes[:at], inner[: x.at]), _filled_sizes(sizes[at + 1 :], inner[x.at :])
    return as_turned(recorded(Tensor.reshape, (x.one, (sizes[at], *before, *behind))), at)


def _filled_sizes(sizes: Sequence[Any], shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a view of so many numbers, of which one may be -1."""
    if any(type(size) is not int for size in sizes):
        raise Refused(ROWS_NOT_FIRST)
    try:
        return tuple(torch.empty(shape, device='meta').reshape(tuple(sizes)).shape)
    except RuntimeError as error:
        raise Refused(ROWS_NOT_FIRST) from error


def _expand(x: Turned, *sizes: Any) -> Any:
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if not isinstance(x, Turned) or len(sizes) != x.dim():
        raise Refused(ROWS_NOT_FIRST)
    own = sizes[x.at], *sizes[: x.at], *sizes[x.at + 1 :]
    return as_turned(recorded(Tensor.expand, (x.one, own)), x.at)


def _flatten(x: Turned, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = (dim % x.dim() for dim in (start_dim, end_dim))
    if start <= x.at <= end:
        raise Refused(ROWS_NOT_FIRST)
    is_before = end < x.at
    found = recorded(torch.flatten, (x.one, start + is_before, end + is_before))
    return as_turned(found, x.at - (end - start if is_before else 0))


_REWRITTEN: dict[str, Callable] = {
    'permute': _permute, 'transpose': _transpose, 'swapaxes': _transpose, 't': _t, 'einsum': _einsum,
    'matmul': _matmul, 'mm': _matmul, 'bmm': _matmul, 'getitem': _getitem, 'flatten': _flatten,
    'view': _reshape, 'reshape': _reshape, 'expand': _expand,
    'expand_as': lambda x, other: _expand(x, *other.shape),
    'view_as': lambda x, other: _reshape(x, *other.shape),
    'reshape_as': lambda x, other: _reshape(x, *other.shape),
}  # fmt: skip
