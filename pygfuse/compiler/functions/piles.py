"""Values of edges or nodes one behind the other, before the dimension of rows: reduced, or taken apart again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Symbol, made

_REFUSED = 'values that are stacked before the dimension of edges'


class Pile:
    """``torch.stack(parts)``, of which the sum, the mean or the product over the parts may be taken.

    Of an extreme parts that tie would share its gradient in another way than torch's.

    Args:
        parts: The values.
        is_of_one: Whether they are rows of one value, and each may be taken alone: of others than are taken the
            gradient would be missing, and not zero.
    """

    def __init__(self, parts: tuple[Symbol, ...], is_of_one: bool = False) -> None:
        self._parts, self._is_of_one = parts, is_of_one

    def sum(self, dim: Any = None, keepdim: bool = False) -> Symbol:
        return self._reduced('add', dim, keepdim)

    def mean(self, dim: Any = None, keepdim: bool = False) -> Symbol:
        return made('div', self.sum(dim, keepdim), len(self._parts))

    def prod(self, dim: Any = None, keepdim: bool = False) -> Symbol:
        return self._reduced('mul', dim, keepdim)

    def _reduced(self, op: str, dim: Any, keepdim: bool) -> Symbol:
        (dim,) = dim if isinstance(dim, (tuple, list)) and len(dim) == 1 else (dim,)
        self._check_first(dim)
        if keepdim:
            raise Refused(_REFUSED)
        return functools.reduce(lambda x, y: made(op, x, y), self._parts)

    def unbind(self, dim: int = 0) -> tuple[Symbol, ...]:
        self._check_first(dim)
        return self._alone

    @property
    def _alone(self) -> tuple[Symbol, ...]:
        if not self._is_of_one:
            raise Refused(_REFUSED)
        return self._parts

    def _check_first(self, dim: Any) -> None:
        if type(dim) is not int or dim not in (0, -self._parts[0].dim() - 1):
            raise Refused(_REFUSED)

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self._alone)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, place: Any) -> Symbol:
        if type(place) is not int:
            raise Refused(_REFUSED)
        return self._alone[place]

    def __getattr__(self, name: str) -> Any:
        raise Refused(_REFUSED)

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        pile, *others = args
        if function.__name__ not in ('sum', 'mean', 'prod', 'unbind') or not isinstance(pile, Pile):
            raise Refused(_REFUSED)
        return getattr(pile, function.__name__)(*others, **(kwargs or {}))
