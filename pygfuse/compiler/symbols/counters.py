"""Whole numbers by which a module counts its calls: read, compared, moved by a number and stored again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused


class Counter:
    """Stands for such a number while code is captured; a plan is for what its comparisons gave.

    Args:
        owner: What holds it.
        name: Its name there.
        compared: Where comparisons are noted: the counter, the operator, the other number and what it gave.
        moved: What was added to it.
    """

    stands_for = int

    def __init__(self, owner: Any, name: str, compared: list[tuple], moved: int = 0) -> None:
        self.owner, self.name, self.moved = owner, name, moved
        self._compared = compared

    def value(self) -> int:
        """The number, of the module as it is."""
        return getattr(self.owner, self.name) + self.moved

    def __add__(self, other: Any) -> Counter:
        return self._by(other) if type(other) is int else self._refuse()

    __radd__ = __add__

    def __sub__(self, other: Any) -> Counter:
        return self._by(-other) if type(other) is int else self._refuse()

    def _by(self, number: int) -> Counter:
        return Counter(self.owner, self.name, self._compared, self.moved + number)

    def _refuse(self, *_: Any) -> Any:
        raise Refused(f'it computes with {self.name}, which it counts up')

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return next(found_in(cls, (args, kwargs or {})))._refuse()

    def _is(self, compare: Callable, other: Any) -> bool:
        if type(other) not in (int, float):
            self._refuse()
        found = compare(self.value(), other)
        self._compared.append((self, compare, other, found))
        return found

    __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __neg__ = _refuse
    __int__ = __index__ = __float__ = __bool__ = __str__ = __format__ = _refuse


def _comparison(compare: Callable) -> Callable:
    return lambda self, other: self._is(compare, other)


for _name in ('lt', 'le', 'gt', 'ge', 'eq', 'ne'):
    setattr(Counter, f'__{_name}__', _comparison(getattr(operator, _name)))


def holds(comparison: tuple) -> bool:
    """Whether a comparison that was noted would give the same again."""
    counter, compare, other, found = comparison
    return type(getattr(counter.owner, counter.name, None)) is int and compare(counter.value(), other) == found
