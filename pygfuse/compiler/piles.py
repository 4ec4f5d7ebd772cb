"""Values of edges or nodes that somebody stacks before the dimension of rows, to reduce them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import Symbol, made


class Pile:
    """``torch.stack(parts)``, of which the sum or the mean over the parts may be taken.

    Of an extreme parts that tie would share its gradient in another way than torch's.
    """

    def __init__(self, parts: tuple[Symbol, ...]) -> None:
        self._parts = parts

    def sum(self, dim: Any = None, keepdim: bool = False) -> Symbol:
        (dim,) = dim if isinstance(dim, (tuple, list)) and len(dim) == 1 else (dim,)
        if dim not in (0, -self._parts[0].dim() - 1) or keepdim:
            raise Refused('values that are stacked before the dimension of edges')
        return functools.reduce(lambda x, y: made('add', x, y), self._parts)

    def mean(self, dim: Any = None, keepdim: bool = False) -> Symbol:
        return made('div', self.sum(dim, keepdim), len(self._parts))

    def __getitem__(self, place: Any) -> Any:
        raise Refused('values that are stacked before the dimension of edges')

    __getattr__ = __getitem__

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        pile, *others = args
        if function.__name__ not in ('sum', 'mean') or not isinstance(pile, Pile):
            raise Refused('values that are stacked before the dimension of edges')
        return getattr(pile, function.__name__)(*others, **(kwargs or {}))
