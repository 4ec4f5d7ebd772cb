"""Values that record which words are said of them: what a function of an edge program is called on to be traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

SCALAR, HEADS, CHANNELS = 'scalar', 'heads', 'channels'
_LEVELS = (SCALAR, HEADS, CHANNELS)


def _operator(word: str) -> tuple[Callable, Callable]:
    """The methods of an infix operator, as the left operand and as the right."""
    return lambda x, y: record(word, (x, y)), lambda y, x: record(word, (x, y))


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A recorded value: an operand (no word) or a word applied to values and numbers."""

    name: str
    level: str
    word: str | None = None
    arguments: tuple[Any, ...] = ()

    def record_word(self, word: str, arguments: Sequence[Any]) -> Any:
        return record(word, arguments)

    __add__, __radd__ = _operator('add')
    __sub__, __rsub__ = _operator('sub')
    __mul__, __rmul__ = _operator('mul')
    __truediv__, __rtruediv__ = _operator('div')

    def __neg__(self) -> Any:
        return record('neg', (self,))

    def __bool__(self) -> bool:
        raise TypeError('an edge program cannot branch on a value of an edge; use positive(x, then, otherwise)')


def level_of(argument: Any) -> str:
    """The level of a value; numbers are scalars."""
    return argument.level if isinstance(argument, Value) else SCALAR


def _is(argument: Any, number: float) -> bool:
    return isinstance(argument, (int, float)) and argument == number


def _simplified(word: str, arguments: Sequence[Any]) -> Any:
    """The value of a word that does nothing here (an absent operand is the number 0), else None."""
    if word == 'add' and (_is(arguments[0], 0) or _is(arguments[1], 0)):
        return arguments[1] if _is(arguments[0], 0) else arguments[0]
    if word == 'sub' and _is(arguments[1], 0):
        return arguments[0]
    if word == 'mul' and (_is(arguments[0], 1) or _is(arguments[1], 1)):
        return arguments[1] if _is(arguments[0], 1) else arguments[0]
    if word in ('mul', 'div') and _is(arguments[0], 0):
        return 0.0
    if word == 'mul' and _is(arguments[1], 0):
        return 0.0
    if word == 'neg' and _is(arguments[0], 0):
        return 0.0
    if word == 'sum_channels' and level_of(arguments[0]) != CHANNELS:
        raise TypeError('sum_channels takes a value of channels, not one of heads')
    return None


def record(word: str, arguments: Sequence[Any]) -> Any:
    """The value of a word: a number where it follows from absent operands, else a record."""
    known = _simplified(word, arguments)
    if known is not None:
        return known
    level = HEADS if word == 'sum_channels' else max((level_of(a) for a in arguments), key=_LEVELS.index)
    return Value('', level, word, tuple(arguments))
