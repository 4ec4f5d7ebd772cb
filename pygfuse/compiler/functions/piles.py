"""Values of edges or nodes one behind the other, before the dimension of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.symbols.symbol import Rearranged, Symbol, made, recorded
from pygfuse.compiler.symbols.turned import Turned, as_turned, in_one_tensor

_REDUCED = {'sum': 'add', 'mean': 'add', 'prod': 'mul'}


class Pile(Rearranged):
    """``torch.stack(parts)``: its sum, mean or product over the parts needs no tensor of them all.

    Whatever else is done is done with such a tensor, and all that follows with the same one, into which code may write.

    Args:
        parts: The values.
        is_of_one: Whether they are rows of one value, and each may be taken alone: of others than are taken the
            gradient would be missing, and not zero.
    """

    def __init__(self, parts: tuple[Symbol, ...], is_of_one: bool = False) -> None:
        # what is stacked is a copy, whatever is written into the parts
        self._parts = parts if is_of_one else tuple(map(_copied, parts))
        self._is_of_one = is_of_one
        self._tensor: Turned | None = None

    @property
    def one(self) -> Symbol:
        return self.in_one_tensor().one

    @property
    def shape(self) -> tuple[Any, ...]:
        return (len(self._parts), *self._parts[0].shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.in_one_tensor().dtype

    @property
    def device(self) -> torch.device:
        return self._parts[0].device

    def record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        pile, *others = args
        if isinstance(pile, Pile) and function.__name__ in _OF_PARTS:
            return _OF_PARTS[function.__name__](pile, *others, **kwargs)
        return recorded(function, *rebuilt((args, kwargs), in_one_tensor))

    def record_leaf(self, function: Callable, signature: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        args, kwargs = rebuilt((args, kwargs), in_one_tensor)
        return function(*args, **kwargs)

    def write(self, result: Any) -> None:
        self.in_one_tensor().write(result)

    def reduced(self, name: str, dim: Any, keepdim: bool) -> Any:
        """The sum, the mean or the product."""
        (dim,) = dim if isinstance(dim, (tuple, list)) and len(dim) == 1 else (dim,)
        if keepdim or not self._is_first(dim) or self._tensor is not None:
            return recorded(getattr(torch, name), (self.in_one_tensor(), dim, keepdim))
        found = functools.reduce(lambda x, y: made(_REDUCED[name], x, y), self._parts)
        return made('div', found, len(self._parts)) if name == 'mean' else found

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        if self._is_of_one and self._is_first(dim) and self._tensor is None:
            return self._parts
        return recorded(torch.unbind, (self.in_one_tensor(), dim))

    def _is_first(self, dim: Any) -> bool:
        return type(dim) is int and dim in (0, -self._parts[0].dim() - 1)

    def in_one_tensor(self) -> Turned:
        """All parts in a tensor, which have them before the dimension of rows."""
        if self._tensor is None:
            self._tensor = as_turned(made('stack', self._parts, dim=1), 1)
        return self._tensor

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind())

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, place: Any) -> Any:
        return self.unbind()[place] if type(place) is int else self.in_one_tensor()[place]


def _copied(part: Symbol) -> Symbol:
    found = Symbol(part.node, part.rows, part.is_stacked, is_copy=True)
    found.constant = part.constant
    return found


def _reduction(name: str) -> Callable:
    return lambda pile, dim=None, keepdim=False: pile.reduced(name, dim, keepdim)


_OF_PARTS: dict[str, Callable] = {**{name: _reduction(name) for name in _REDUCED}, 'unbind': Pile.unbind}
