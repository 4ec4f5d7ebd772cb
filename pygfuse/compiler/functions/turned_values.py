"""Functions of values whose rows are not their first dimension that are recorded as others of these with rows first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import Rows
from pygfuse.compiler.symbols.one_copy import sizes_in
from pygfuse.compiler.symbols.places import is_all
from pygfuse.compiler.symbols.symbol import Rearranged, Symbol, recorded
from pygfuse.compiler.symbols.turned import (
    REWRITTEN,
    ROWS_NOT_FIRST,
    Turned,
    as_turned,
    dimension,
    is_like,
    one_of,
    swapped,
    turned,
)

_EVERY = slice(None)


def _rewritten(*names: str) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        REWRITTEN.update(dict.fromkeys(names, function))
        return function

    return register


@_rewritten('permute')
def _permute(x: Turned, *dims: Any) -> Symbol | Turned:
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if len(dims) != x.dim():
        raise Refused(ROWS_NOT_FIRST)
    return turned(x.one, [dimension(x, dim) for dim in dims])


@_rewritten('transpose', 'swapaxes')
def _transpose(x: Turned, first: int, second: int) -> Symbol | Turned:
    return _permute(x, swapped(x.dim(), first, second))


@_rewritten('t')
def _t(x: Turned) -> Symbol | Turned:
    return _transpose(x, 0, 1)


@_rewritten('matmul', 'mm', 'bmm')
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


@_rewritten('einsum')
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


@_rewritten('getitem')
def _getitem(x: Any, key: Any) -> Any:
    if not isinstance(x, Turned) or next(found_in(Rearranged, key if isinstance(key, tuple) else (key,)), None):
        raise Refused('an index by values')
    key = _filled_key(x, key if isinstance(key, tuple) else (key,))
    indices = [part for part in key if part is not None and not isinstance(part, (int, slice))]
    if len(indices) > 1 or not all(map(_is_of_one_dimension, indices)):
        raise Refused('an index by values')
    at = next(k for k, dim in enumerate(_dimensions(key)) if dim == x.at)
    of_rows, others = key[at], [*key[:at], *key[at + 1 :]]
    one, place = x.one, sum(not isinstance(part, int) for part in key[:at])
    if not all(map(is_all, others)):
        one = recorded(Tensor.__getitem__, (one, (_EVERY, *others)))
    if is_all(of_rows):
        return as_turned(one, place)
    one = recorded(Tensor.__getitem__, (one, of_rows))
    if isinstance(of_rows, int):
        return one
    return recorded(torch.movedim, (one, 0, place)) if one.rows is None else as_turned(one, place)


def _is_of_one_dimension(index: Any) -> bool:
    is_list = isinstance(index, (tuple, list))
    return all(isinstance(place, int) for place in index) if is_list else index.dim() == 1


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


@_rewritten('view', 'reshape')
def _reshape(x: Any, *sizes: Any) -> Any:
    sizes = sizes_in(sizes)
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


@_rewritten('expand')
def _expand(x: Turned, *sizes: Any) -> Any:
    sizes = sizes_in(sizes)
    if not isinstance(x, Turned) or len(sizes) != x.dim():
        raise Refused(ROWS_NOT_FIRST)
    own = sizes[x.at], *sizes[: x.at], *sizes[x.at + 1 :]
    return as_turned(recorded(Tensor.expand, (x.one, own)), x.at)


@_rewritten('flatten')
def _flatten(x: Turned, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = (dim % x.dim() for dim in (start_dim, end_dim))
    if start <= x.at <= end:
        raise Refused(ROWS_NOT_FIRST)
    is_before = end < x.at
    found = recorded(torch.flatten, (x.one, start + is_before, end + is_before))
    return as_turned(found, x.at - (end - start if is_before else 0))


@_rewritten('expand_as')
def _expand_as(x: Turned, other: Any) -> Any:
    return _expand(x, *other.shape)


@_rewritten('view_as', 'reshape_as')
def _reshape_as(x: Turned, other: Any) -> Any:
    return _reshape(x, *other.shape)
