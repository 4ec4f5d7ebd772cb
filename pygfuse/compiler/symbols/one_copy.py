"""The arguments of functions of several copies, as those of one: without the dimensions that count copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.functions_by_name import ALIKE, BETWEEN, ELEMENTWISE, OF_DIMENSIONS
from pygfuse.compiler.symbols.numbers_of_rows import Rows
from pygfuse.compiler.symbols.of_one import OfOne
from pygfuse.compiler.symbols.places import Place, is_all
from pygfuse.compiler.symbols.symbol import Symbol, recorded

BEFORE_ROWS = 'a function of the dimensions before that of nodes or edges'
# functions whose index has the shape of what they take
_OF_EXPANDED = 'scatter_add', 'scatter_reduce'
_VIEWS = 'view', 'reshape', 'expand', 'repeat', 'new_zeros', 'new_ones'
_AS_ANOTHER = 'expand_as', 'view_as', 'reshape_as'


class OfCopies(OfOne):
    """Values of several copies of the same nodes in one tensor (`pygfuse.compiler.symbols.copies.Copies`).

    Attributes:
        sizes: The dimensions before that of rows.
    """

    sizes: tuple[int, ...]


def one_of(item: Any) -> Any:
    """What stands for one copy; anything else as it is."""
    return item.one if isinstance(item, OfCopies) else item


def has_rows(item: Any) -> bool:
    """Whether something has a row for each edge or node."""
    return isinstance(item, OfCopies) or (isinstance(item, Symbol) and item.rows is not None)


def is_row_wise(name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a function of values that all copies share is known to compute each row of a row."""
    if name in ('sum', 'mean', 'max', 'min'):
        place, word, default = OF_DIMENSIONS[name]
        dims = kwargs.get(word, args[place] if len(args) > place else default)
        if dims is None or any(dim % args[0].dim() == 0 for dim in ((dims,) if isinstance(dims, int) else dims)):
            return False
    named = {*OF_DIMENSIONS, *BETWEEN, *_VIEWS, *_AS_ANOTHER, 'getitem', 'permute', 'flatten', 'matmul', 'new_full'}
    return name != 'dropout' and name in ALIKE | ELEMENTWISE | named


def sizes_of(name: str, *given: Any) -> tuple[int, ...]:
    """The dimensions before that of rows which the result of a function has."""
    may_broadcast = name in ELEMENTWISE or name == 'matmul'
    found = [copies.sizes for copies in found_in(OfCopies, given)]
    if may_broadcast:
        try:
            return tuple(torch.broadcast_shapes(*found))
        except RuntimeError as error:
            raise Refused(BEFORE_ROWS) from error
    if len({*found}) > 1:
        raise Refused('values of different numbers of copies')
    return found[0]


def in_one_copy(name: str, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a function with the dimensions of one copy in place of those of all.

    Raises:
        Refused: If it is of several copies together, or not known to be of each alone.
    """
    first = args[0] if args else None
    if name in ELEMENTWISE:
        if next(found_in((OfCopies, Symbol), kwargs), None) is not None:
            raise Refused('values of several copies as keywords')
        return tuple(_aligned(args)), kwargs
    if name == 'matmul':
        return _of_product(args), kwargs
    if name in ALIKE:
        if name in ('linear', 'layer_norm') and next(found_in(OfCopies, (args[1:], kwargs)), None) is not None:
            raise Refused(BEFORE_ROWS)
        return args, kwargs
    if name in OF_DIMENSIONS:
        return _with_dimensions(name, args, kwargs, *OF_DIMENSIONS[name], 0)
    if name in BETWEEN:
        return _with_dimensions(name, args, kwargs, *BETWEEN[name], 1)
    if name in ('transpose', 'swapaxes') and isinstance(first, OfCopies) and len(args) == 3:
        return (first, *[dimension_of_one(first, dim) for dim in args[1:]]), kwargs
    if name in _AS_ANOTHER and len(args) == 2:
        return _as_another(name, *args), kwargs
    if name == 'flatten' and isinstance(first, OfCopies):
        return _flattened(*args, **kwargs), {}
    if isinstance(first, OfCopies) and not kwargs.keys() - {'dtype', 'device'}:
        if name == 'getitem':
            return (first, _key(first, args[1])), kwargs
        if name == 'permute':
            return (first, *_order(first, sizes_in(args[1:]))), kwargs
        if name in _VIEWS:
            return _view(name, first, sizes_in(args[1:])), kwargs
    raise Refused(f'{name} of several copies of nodes')


def _aligned(values: tuple) -> Iterable[Any]:
    """Values that are broadcast, their rows against each other."""
    ranks = {one_of(item).dim() for item in values if has_rows(item)}
    if len(ranks) > 1:
        raise Refused('values of several copies, and of other dimensions')
    rank = ranks.pop()
    for item in values:
        if isinstance(item, Symbol) and item.rows is None and item.dim() >= rank:
            # what is shared has a row, or a number, for all
            before, inner = item.shape[: item.dim() - rank + 1], item.shape[item.dim() - rank + 1 :]
            if any(size != 1 for size in before):
                raise Refused('shared values beside those of several copies')
            yield recorded(torch.Tensor.reshape, (item, inner))
        else:
            yield item


def _of_product(args: tuple) -> tuple:
    x, weight = args
    is_shared = isinstance(weight, Symbol) and weight.rows is None and weight.dim() <= 2
    are_own = has_rows(x) and has_rows(weight) and one_of(x).dim() == one_of(weight).dim() >= 3
    if not (is_shared or are_own):
        raise Refused('a product of matrices of several copies')
    return args


def dimension_of_one(x: OfCopies, dim: Any, more: int = 0) -> int:
    """A dimension of one copy.

    Args:
        x: Values of several.
        dim: The dimension of all.
        more: How many dimensions a result has more.
    """
    rank = x.dim() + more
    if type(dim) is not int or not -rank <= dim < rank or dim % rank < len(x.sizes):
        raise Refused(BEFORE_ROWS)
    return dim % rank - len(x.sizes)


def _with_dimensions(
    name: str, args: tuple, kwargs: dict[str, Any], place: int, word: str, default: Any, more: int
) -> tuple[tuple, dict[str, Any]]:
    """Arguments of which one is a dimension, or several."""
    parts = list(found_in((OfCopies, Symbol), args[:1]))
    beside = list(found_in((OfCopies, Symbol, Place), args[1:]))
    counts = {len(part.sizes) if isinstance(part, OfCopies) else 0 for part in parts}
    if len(counts) != 1 or counts == {0}:
        raise Refused('values of several copies, and of other dimensions')
    first = parts[0]
    if any(has_rows(part) and part.dim() != first.dim() for part in beside if not isinstance(one_of(part), Place)):
        raise Refused('values of several copies, and of other dimensions')
    if any(isinstance(part, OfCopies) != (name in _OF_EXPANDED) for part in beside if isinstance(one_of(part), Place)):
        raise Refused('an index of other dimensions')
    is_positional = len(args) > place
    dims = args[place] if is_positional else kwargs.get(word, default)
    if isinstance(dims, (tuple, list)):
        found = tuple([dimension_of_one(first, dim, more) for dim in dims])
    else:
        found = dimension_of_one(first, dims, more)
    if is_positional:
        return (*args[:place], found, *args[place + 1 :]), kwargs
    return args, {**kwargs, word: found}


def sizes_in(given: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes that are given one after the other, or as one tuple."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else tuple(given)


def _key(x: OfCopies, key: Any) -> tuple:
    """A key of one copy: before the dimension of rows it may take nothing but all."""
    key = key if isinstance(key, tuple) else (key,)
    if any(place is Ellipsis for place in key):
        at = next(k for k, place in enumerate(key) if place is Ellipsis)
        filled = x.dim() - sum(place is not None for place in key) + 1
        key = (*key[:at], *[slice(None)] * filled, *key[at + 1 :])
    count = len(x.sizes)
    if next(found_in(OfCopies, key), None) is not None:
        raise Refused('an index of several copies')
    if len(key) < count or any(not is_all(place) for place in key[:count]):
        raise Refused(BEFORE_ROWS)
    own = key[count:]
    return own if len(own) != 1 else own[0]


def _order(x: OfCopies, dims: Sequence[Any]) -> list[int]:
    count = len(x.sizes)
    if len(dims) != x.dim() or [dim % x.dim() for dim in dims[:count]] != [*range(count)]:
        raise Refused(BEFORE_ROWS)
    return [dimension_of_one(x, dim) for dim in dims[count:]]


def _flattened(x: OfCopies, start_dim: int = 0, end_dim: int = -1) -> tuple:
    return x, dimension_of_one(x, start_dim), dimension_of_one(x, end_dim)


def _view(name: str, x: OfCopies, sizes: tuple[Any, ...]) -> tuple:
    """The arguments of a view of one copy."""
    count = len(x.sizes)
    before, own = sizes[:count], sizes[count:]
    if not own or any(isinstance(size, Rows) for size in before):
        raise Refused(BEFORE_ROWS)
    if name in ('expand', 'repeat'):
        return (type(x)(x.one, _broadcast(name, x, sizes)), *own)
    if before != x.sizes and not (before == (-1,) and -1 not in own):
        raise Refused(BEFORE_ROWS)
    return (x, *own)


def _broadcast(name: str, x: OfCopies, sizes: tuple[Any, ...]) -> list[int]:
    """The dimensions before that of rows once those of size 1 are repeated."""
    same = -1 if name == 'expand' else 1
    pairs = list(zip(x.sizes, sizes[: len(x.sizes)], strict=True))
    if len(sizes) != x.dim() or any(
        had != 1 and wanted not in ((same,) if name == 'repeat' else (same, had)) for had, wanted in pairs
    ):
        raise Refused(BEFORE_ROWS)
    return [had if wanted == same else wanted for had, wanted in pairs]


def _as_another(name: str, x: Any, other: Any) -> tuple[OfCopies, OfCopies]:
    """The arguments of a view of the shape of another value."""
    if not isinstance(other, OfCopies):
        raise Refused(BEFORE_ROWS)
    if not isinstance(x, OfCopies):
        x = type(other)(x, (1,) * (other.dim() - x.dim()))
    sizes = other.sizes
    is_broadcast = name == 'expand_as' and len(x.sizes) == len(sizes)
    if x.sizes != sizes and not (
        is_broadcast and all(had in (1, size) for had, size in zip(x.sizes, sizes, strict=True))
    ):
        raise Refused(BEFORE_ROWS)
    return type(other)(x.one, sizes), other


def view_of_place(name: str, place: Place, *args: Any, **kwargs: Any) -> Place:
    """A view of the ends of edges."""
    if kwargs or not isinstance(place, Place):
        raise Refused(BEFORE_ROWS)
    if name == 'getitem':
        (key,) = args
        return place[key] if isinstance(key, tuple) else place[(key,)]
    if name == 'expand_as':
        return place.seen(torch.Tensor.expand, args[0].shape)
    if name not in ('unsqueeze', 'view', 'reshape', 'expand', 'repeat'):
        raise Refused('it reads the edges themselves')
    return getattr(place, name)(*args)
