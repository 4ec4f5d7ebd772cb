"""The operators on edges in the words of programs, with the derivatives that torch gives them, ties included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pygfuse.compiler.refusal import Refused
from pygfuse.program import vocabulary as words


class Term:
    """A value in a function that is being written: its operators and words become lines.

    Args:
        name: What it is called in the text.
        line: A function that writes an expression and gives its name.
    """

    def __init__(self, name: str, line: Callable[[str], str]) -> None:
        self.name = name
        self.line = line

    def record_word(self, word: str, arguments: Sequence[Any]) -> Term:
        return self._said(f'{word}({", ".join(said(a) for a in arguments)})')

    def _said(self, expression: str) -> Term:
        return Term(self.line(expression), self.line)

    def __add__(self, other: Any) -> Term:
        return self._said(f'{self.name} + {said(other)}')

    def __radd__(self, other: Any) -> Term:
        return self._said(f'{said(other)} + {self.name}')

    def __sub__(self, other: Any) -> Term:
        return self._said(f'{self.name} - {said(other)}')

    def __rsub__(self, other: Any) -> Term:
        return self._said(f'{said(other)} - {self.name}')

    def __mul__(self, other: Any) -> Term:
        return self._said(f'{self.name} * {said(other)}')

    def __rmul__(self, other: Any) -> Term:
        return self._said(f'{said(other)} * {self.name}')

    def __truediv__(self, other: Any) -> Term:
        return self._said(f'{self.name} / {said(other)}')

    def __rtruediv__(self, other: Any) -> Term:
        return self._said(f'{said(other)} / {self.name}')

    def __neg__(self) -> Term:
        return self._said(f'-{self.name}')


def said(argument: Any) -> str:
    """A term or a number as text.

    Raises:
        Refused: If it is neither, or not finite.
    """
    if isinstance(argument, Term):
        return argument.name
    if isinstance(argument, bool) or not isinstance(argument, (int, float)):
        raise Refused(f'{argument!r} in place of a number')
    if not math.isfinite(argument):
        raise Refused('a number that is not finite')
    return repr(float(argument)) if argument >= 0 else f'({float(argument)!r})'


def _absolute(x: Term) -> Term:
    # the last branch is 0, with derivative 0, or NaN
    return words.positive(x, x, words.positive(-x, -x, x - x))


def _clamp(x: Term, low: Any = None, high: Any = None) -> Term:
    if isinstance(low, Term) or isinstance(high, Term):
        raise Refused('clamp by values')
    if low is not None:
        x = words.positive(low - x, low, x)
    return x if high is None else words.positive(x - high, high, x)


def _hardtanh(x: Term, low: float = -1.0, high: float = 1.0) -> Term:
    # at either end the derivative is 0, where that of a clamp is 1; what is no number stays none
    x = words.positive(high - x, x, words.positive(x - high, high, (x - x) + high))
    return words.positive(x - low, x, words.positive(low - x, low, (x - x) + low))


def _tied(x: Any, y: Any, difference: Any) -> Term:
    # of two equal values each has half of the gradient; what is no number stays none
    return words.equal(x, y, (x + y) * 0.5, words.positive(difference, x, words.positive(-difference, y, x + y)))


def _power(x: Term, exponent: Any) -> Term:
    if not isinstance(exponent, (int, float)):
        raise Refused('a power that is no number')
    if exponent == 0.5:
        return words.sqrt(x)
    if exponent != int(exponent) or not 1 <= abs(exponent) <= 8:
        raise Refused(f'a power of {exponent:g}')
    found = x
    for _ in range(int(abs(exponent)) - 1):
        found = found * x
    return found if exponent > 0 else 1.0 / found


def _elu(x: Term, alpha: float = 1.0, _: Any = None) -> Term:
    # what is not chosen is kept from overflowing
    return words.positive(x, x, alpha * words.expm1(words.positive(x, 0.0, x)))


def _softplus(x: Term, beta: float = 1.0, threshold: float = 20.0) -> Term:
    scaled = x * beta
    return words.positive(scaled - threshold, x, words.softplus(scaled) / beta)


def _gelu(x: Term, approximate: str = 'none') -> Term:
    if approximate != 'tanh':
        return x * words.normal_cdf(x)
    return x * words.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


def _leaky_relu(x: Term, negative_slope: float = 0.01) -> Term:
    return words.leaky_relu(x, negative_slope)


WORDS: dict[str, Callable[..., Any]] = {
    'add': lambda x, y: x + y,
    'sub': lambda x, y: x - y,
    'mul': lambda x, y: x * y,
    'div': lambda x, y: x / y,
    'neg': lambda x: -x,
    'square': lambda x: x * x,
    'reciprocal': lambda x: 1.0 / x,
    'rsqrt': lambda x: 1.0 / words.sqrt(x),
    'silu': lambda x: x * words.sigmoid(x),
    'logsigmoid': lambda x: -words.softplus(-x),
    'relu6': lambda x: _hardtanh(x, 0.0, 6.0),
    'hardtanh': _hardtanh,
    'maximum': lambda x, y: _tied(x, y, x - y),
    'minimum': lambda x, y: _tied(x, y, y - x),
    'prelu': lambda x, weight: words.positive(x, x, words.positive(x, 0.0, x) * weight),
    'selu': lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    'abs': _absolute,
    'clamp': _clamp,
    'pow': _power,
    'elu': _elu,
    'softplus': _softplus,
    'gelu': _gelu,
    'leaky_relu': _leaky_relu,
    **{name: words.WORDS[name] for name in ('exp', 'expm1', 'log', 'sqrt', 'sigmoid', 'tanh', 'relu')},
}


def condition(op: str, x: Any, y: Any, then: Any, otherwise: Any) -> Term:
    """`then` where a comparison holds, else `otherwise`; a comparison with NaN does not hold."""
    if op == 'eq':
        return words.equal(x, y, then, otherwise)
    if op == 'ne':
        return words.equal(x, y, otherwise, then)
    if op in ('ge', 'le'):
        otherwise = words.equal(x, y, then, otherwise)
    return words.positive(x - y if op in ('gt', 'ge') else y - x, then, otherwise)
