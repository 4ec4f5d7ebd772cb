"""The functions of einops, whose patterns name axes, and ``opt_einsum.contract``: as views, sums and ``einsum``."""

from __future__ import annotations

import functools
import itertools
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pygfuse.compiler.functions.piles import Pile
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import OfEdges
from pygfuse.compiler.symbols.symbol import Recorded

_REDUCTIONS = {'sum': torch.sum, 'mean': torch.mean, 'max': torch.amax, 'min': torch.amin}
_BRACKETS = str.maketrans({'(': ' ( ', ')': ' ) '})


def _groups(axes: str) -> list[list[str]]:
    """The names of each dimension's axes: none where it has one number.

    Example:
        >>> _groups('e (h d) 1')
        [['e'], ['h', 'd'], []]
    """
    found: list[list[str]] = []
    is_within = False
    for part in axes.translate(_BRACKETS).split():
        if part in '()':
            is_within = part == '('
            if is_within:
                found.append([])
        elif part in ('...', '…'):
            raise Refused('a pattern of any number of axes')
        elif is_within:
            found[-1] += [part] * (part != '1')
        else:
            found.append([part] * (part != '1'))
    return found


def _sizes(groups: Sequence[list[str]], shape: Sequence[int], given: Mapping[str, int]) -> dict[str, int]:
    """How many numbers each axis has: one of a dimension's may follow from the others."""
    sizes = dict(given)
    for names, size in zip(groups, shape, strict=True):
        unknown = [name for name in names if name not in sizes]
        if unknown:
            (name,) = unknown
            # that of rows stays what stands for it
            sizes[name] = size if len(names) == 1 else size // math.prod(sizes[one] for one in names if one != name)
    return sizes


def _taken_apart(x: Any, pattern: str, given: Mapping[str, int]) -> tuple[Any, list[str], list[list[str]], dict]:
    """A value with a dimension for each axis on the left of a pattern, the names of these, the groups on the right, and
    the sizes of all axes."""
    left, _, right = pattern.partition('->')
    groups = _groups(left)
    if _is_list(x):
        # behind the dimension of rows, where it can be anywhere
        x, groups = torch.stack(tuple(x), 1), [groups[1], groups[0], *groups[2:]]
    sizes = _sizes(groups, x.shape, given)
    names = list(itertools.chain.from_iterable(groups))
    if any(len(group) != 1 for group in groups):
        x = x.reshape([sizes[name] for name in names])
    return x, names, _groups(right), sizes


def _put_together(x: Any, names: Sequence[str], groups: Sequence[list[str]], sizes: Mapping[str, int]) -> Any:
    """A value with a dimension for each axis in the order of groups, as these group them."""
    wanted = list(itertools.chain.from_iterable(groups))
    order = [names.index(name) for name in wanted if name in names]
    if sorted(order) != list(range(len(names))) or len({*wanted}) < len(wanted):
        raise Refused('a pattern whose sides have other axes')
    if order != sorted(order):
        x = x.permute(order)
    if len(order) < len(wanted):
        for place, name in enumerate(wanted):
            x = x if name in names else x.unsqueeze(place)
        x = x.expand([sizes[name] for name in wanted])
    if any(len(group) != 1 for group in groups):
        x = x.reshape([sizes[group[0]] if len(group) == 1 else math.prod(map(sizes.get, group)) for group in groups])
    return x


def _rearrange(tensor: Any, pattern: str, **sizes: int) -> Any:
    x, names, groups, sizes = _taken_apart(tensor, pattern, sizes)
    return _put_together(x, names, groups, sizes)


def _reduce(tensor: Any, pattern: str, reduction: Any, **sizes: int) -> Any:
    x, names, groups, sizes = _taken_apart(tensor, pattern, sizes)
    left = {*itertools.chain.from_iterable(groups)}
    summed = tuple([place for place, name in enumerate(names) if name not in left])
    if summed:
        if reduction not in _REDUCTIONS:
            raise Refused(f'einops.reduce by {reduction!r}')
        x = _REDUCTIONS[reduction](x, summed)
    return _put_together(x, [name for name in names if name in left], groups, sizes)


def _einsum(*given: Any) -> Any:
    *tensors, pattern = given
    left, _, right = pattern.partition('->')
    terms = [_groups(term) for term in (*left.split(','), right)]
    if any(len(group) != 1 for term in terms for group in term):
        raise Refused('einops.einsum of axes that are taken together')
    letters: dict[str, str] = {}
    for name in itertools.chain.from_iterable(itertools.chain.from_iterable(terms)):
        letters.setdefault(name, string.ascii_letters[len(letters)])
    *taken, result = (''.join(letters[name] for (name,) in term) for term in terms)
    return torch.einsum(f'{",".join(taken)}->{result}', *tensors)


def _contract(equation: Any, *tensors: Any, out: Any = None, **_: Any) -> Any:
    if not isinstance(equation, str) or out is not None:
        raise Refused('opt_einsum.contract in another form')
    return torch.einsum(equation, *tensors)


def _of_layer(self: Any, x: Any) -> Any:
    return _reduce(x, self.pattern, getattr(self, 'reduction', None), **self.axes_lengths)


def _or_real(form: Callable, real: Callable) -> Callable:
    @functools.wraps(real)
    def either(*args: Any, **kwargs: Any) -> Any:
        given = [part for item in (*args, *kwargs.values()) for part in (item if _is_list(item) else (item,))]
        is_recorded = any(isinstance(item, (Recorded, OfEdges, Pile)) for item in given)
        return form(*args, **kwargs) if is_recorded else real(*args, **kwargs)

    return either


def _is_list(item: Any) -> bool:
    return isinstance(item, (list, tuple))


_FORMS = {
    ('einops', 'einsum'): _einsum,
    ('einops', 'rearrange'): _rearrange,
    ('einops', 'reduce'): _reduce,
    ('einops', 'repeat'): _rearrange,
    ('opt_einsum', 'contract'): _contract,
}


_METHODS = {('einops', 'Rearrange.forward'): _of_layer, ('einops', 'Reduce.forward'): _of_layer}


def form_by_name(function: Callable) -> Callable | None:
    """The recording form of a function of a library that need not be installed; None if it has none."""
    form = _FORMS.get(_name_of(function))
    return None if form is None else _or_real(form, function)


def method_by_name(function: Callable) -> Callable | None:
    """The recording form of a method of such a library."""
    return _METHODS.get(_name_of(function))


def _name_of(function: Callable) -> tuple[str, str]:
    return (function.__module__ or '').partition('.')[0], function.__qualname__
