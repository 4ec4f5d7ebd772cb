"""Python's operators of values that are captured: each records the function of torch that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BOTH_WAYS = {
    'add': torch.add, 'sub': torch.sub, 'mul': torch.mul, 'truediv': torch.div, 'pow': torch.pow,
    'matmul': torch.matmul, 'mod': torch.remainder,
}  # fmt: skip
_OF_BITS = {'and': torch.bitwise_and, 'or': torch.bitwise_or}
_ORDERS = {name: getattr(torch, name) for name in ('gt', 'lt', 'ge', 'le')}
_OF_ONE = {'invert': torch.bitwise_not, 'neg': torch.neg, 'abs': torch.abs}
# a tensor equals nothing of these
_NO_NUMBERS = type(None), str, tuple, list, dict


def add_operators(kind: type, record: Callable[..., Any], write: Callable[[Any, Any], Any]) -> None:
    """Gives a class the operators that a tensor has.

    Args:
        kind: The class.
        record: ``record(function, arguments)`` records a function of torch and gives its result.
        write: ``write(value, result)`` writes a result into a value, and gives the value.
    """

    def operator(function: Callable, is_reversed: bool = False) -> Callable:
        def apply(self: Any, *others: Any) -> Any:
            return record(function, (*others, self) if is_reversed else (self, *others))

        return apply

    def comparison(function: Callable) -> Callable:
        def apply(self: Any, other: Any) -> Any:
            return NotImplemented if isinstance(other, _NO_NUMBERS) else record(function, (self, other))

        return apply

    def in_place(function: Callable) -> Callable:
        def apply(self: Any, other: Any) -> Any:
            return write(self, record(function, (self, other)))

        return apply

    found = {name: operator(function) for name, function in {**_BOTH_WAYS, **_OF_BITS, **_ORDERS, **_OF_ONE}.items()}
    found |= {f'r{name}': operator(function, True) for name, function in _BOTH_WAYS.items()}
    found |= {name: comparison(getattr(torch, name)) for name in ('eq', 'ne')}
    # torch has no product of matrices in place
    of_writes = {name: function for name, function in {**_BOTH_WAYS, **_OF_BITS}.items() if name != 'matmul'}
    found |= {f'i{name}': in_place(function) for name, function in of_writes.items()}
    for name, apply in found.items():
        apply.__name__ = name
        setattr(kind, f'__{name}__', apply)
