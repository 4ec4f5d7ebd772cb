"""Traces of a program's functions, and their adjoints.

A program's function is called once on traced values, which record every operation; the record is written out again as
the text of a plain function, forward or reverse. So a program is written once, without its derivative, and what the
backends compile is text that can be printed, hashed and compared.

Example:
    >>> from pygfuse.program.vocabulary import exp
    >>> trace = Trace.of(lambda a, b: a * exp(b), {'a': 'heads', 'b': 'heads'})
    >>> print(trace.adjoint_text('adjoint', [['a', 'b']]))
    def adjoint(grad, a, b):
        v0 = exp(b)
        g0 = grad * v0
        g1 = grad * a
        g2 = g1 * v0
        return ((g0,g2,),)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pygfuse.program.derivatives import REVERSE
from pygfuse.program.expansion import EXPANSIONS
from pygfuse.program.recording import CHANNELS, HEADS, SCALAR, Value, level_of, record
from pygfuse.program.vocabulary import LONG

_INFIX = {'add': '+', 'sub': '-', 'mul': '*', 'div': '/'}


@dataclasses.dataclass(frozen=True)
class Trace:
    """What a function of edge values computes.

    Attributes:
        operands: The function's parameters in order, as values.
        output: The recorded result.
        level: The level of the result as it is used: a result of heads may serve as one of channels.
    """

    operands: tuple[Value, ...]
    output: Value
    level: str

    @staticmethod
    def of(function: Callable, levels: Mapping[str, str], level: str | None = None) -> Trace:
        """Records `function`.

        Args:
            function: A function of edge values.
            levels: For each of its parameters that is there, its level: ``'scalar'``, ``'heads'``, ``'channels'``. A
                parameter that is not named is absent and enters as the number 0.
            level: The level of the result as it is used, by default its own.
        """
        names = list(inspect.signature(function).parameters)
        operands = {name: Value(name, levels[name]) for name in names if name in levels}
        output = function(**{name: operands.get(name, 0.0) for name in names})
        if not isinstance(output, Value):
            raise TypeError(f'{function.__name__} returned {output!r}, not a value of its operands')
        return Trace(tuple(operands.values()), output, level or output.level)

    def names(self) -> list[str]:
        """The parameters of the written functions (an adjoint has `grad` before them)."""
        return [operand.name for operand in self.operands]

    def text(self, name: str, expanded: bool = True) -> str:
        """The recorded function as the text of a function called `name`.

        Args:
            name: The name of the function written.
            expanded: Whether words are written out in others (`pygfuse.program.expansion`), as kernels take them.
        """
        writer = _Writer('v', expanded)
        result = writer.write(self.output)
        return writer.function(name, self.names(), result)

    @functools.cached_property
    def is_long(self) -> bool:
        """Whether so much is computed of a row that a processor does not look ahead to what the next ones read."""
        return any(value.word in LONG and value.level == CHANNELS for value in _in_order(self.output))

    def before_sum(self) -> Trace | None:
        """What the sum over channels is taken of in which this ends, if it ends in one."""
        return Trace(self.operands, self.output.arguments[0], CHANNELS) if _is_sum(self.output) else None

    def gradients(self, wrt: Sequence[str], grad: Value) -> list[Any]:
        """The gradients for the operands `wrt`, given that of the output: values, or 0.0 where none flows."""
        if self.output.level == HEADS and grad.level == CHANNELS:
            grad = record('sum_channels', (grad,))
        found: dict[int, Any] = {id(self.output): grad}
        for value in reversed(_in_order(self.output)):
            arriving = found.get(id(value))
            if arriving is None or value.word is None:
                continue
            parts = REVERSE[value.word](arriving, value, *value.arguments)
            for argument, part in zip(value.arguments, parts, strict=True):
                if isinstance(argument, Value) and argument.level != SCALAR and part is not None:
                    if argument.level == HEADS and level_of(part) == CHANNELS:
                        part = record('sum_channels', (part,))
                    found[id(argument)] = found[id(argument)] + part if id(argument) in found else part
        by_name = {operand.name: operand for operand in self.operands}
        return [found.get(id(by_name[name]), 0.0) for name in wrt]

    def tangent(self, tangents: Mapping[str, str]) -> Trace | None:
        """How the output changes along tangents of operands; None where it does not.

        The derivative of every word but `sum_channels` is of each value alone, so the rules of the adjoint serve.

        Args:
            tangents: By operand, the name of its tangent.
        """
        named = {operand.name: operand for operand in self.operands}
        found: dict[int, Any] = {id(named[name]): Value(of, named[name].level) for name, of in tangents.items()}
        for value in _in_order(self.output):
            terms = [
                _moved(value, place, found[id(argument)])
                for place, argument in enumerate(value.arguments)
                if id(argument) in found
            ]
            if terms:
                total = functools.reduce(lambda x, y: record('add', (x, y)), terms)
                if isinstance(total, Value):
                    found[id(value)] = total
        output = found.get(id(self.output))
        if output is None:
            return None
        read = [value for value in _in_order(output) if value.word is None]
        return Trace(tuple(read), output, self.level)

    def read_by_adjoint(self, wrt: Sequence[str]) -> set[str]:
        """The operands whose values decide the gradients for the operands `wrt`."""
        gradients = self.gradients(wrt, Value('grad', self.level))
        needed = [value for gradient in gradients if isinstance(gradient, Value) for value in _in_order(gradient)]
        return {value.name for value in needed if value.word is None} - {'grad'}

    def gradient_is_sum(self, name: str) -> bool:
        """Whether the gradient for an operand of heads ends in a sum over channels."""
        return _is_sum(self.gradients([name], Value('grad', self.level))[0])

    def is_spread(self, name: str, wrt: Sequence[str] = ()) -> bool:
        """Whether a value of heads (an operand, `grad`) meets only values of channels, in gradients for `wrt` too."""
        values = [self.output, *self.gradients(wrt, Value('grad', self.level))] if wrt else [self.output]
        for value in (some for found in values if isinstance(found, Value) for some in _in_order(found)):
            takes = any(isinstance(item, Value) and (item.word, item.name) == (None, name) for item in value.arguments)
            if takes and value.level != CHANNELS:
                return False
        return True

    def adjoint_text(self, name: str, wrt: Sequence[Sequence[str]], unsummed: Collection[str] = ()) -> str:
        """The text of ``name(grad, *operands)``: a tuple of the gradients' tuples, one for each group in `wrt`.

        Args:
            name: The name of the function written.
            wrt: Names of operands, in groups.
            unsummed: Those of them of whose gradients only that is written which the last sum over channels is of.
        """
        grad, names = Value('grad', self.level), [operand for group in wrt for operand in group]
        gradients = [
            found.arguments[0] if operand in unsummed and _is_sum(found) else found
            for operand, found in zip(names, self.gradients(names, grad), strict=True)
        ]
        writer = _Writer('v')
        for value in _in_order(self.output):
            if any(value in _in_order(g) for g in gradients if isinstance(g, Value)):
                writer.write(value)
        writer.prefix, writer.count = 'g', 0
        results = iter([writer.write(gradient) for gradient in gradients])
        groups = [_tuple_text(next(results) for _ in group) for group in wrt]
        return writer.function(name, ['grad', *self.names()], _tuple_text(groups))


def _is_sum(value: Any) -> bool:
    return isinstance(value, Value) and value.word == 'sum_channels'


def _moved(value: Value, place: int, tangent: Value) -> Any:
    """How a word's value changes with its argument at a place."""
    if value.word == 'sum_channels':
        return record('sum_channels', (tangent,))
    found = REVERSE[value.word](tangent, value, *value.arguments)[place]
    return 0.0 if found is None else found


def _tuple_text(items: Iterable[str]) -> str:
    return f'({"".join(item + "," for item in items)})'


def _in_order(output: Value) -> list[Value]:
    """All values that `output` needs, operands first."""
    seen: dict[int, Value] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Value) and id(value) not in seen:
            for argument in value.arguments:
                visit(argument)
            seen[id(value)] = value

    visit(output)
    return list(seen.values())


class _Writer:
    """Writes values as assignments, each once; equal expressions share a line."""

    def __init__(self, prefix: str, expands: bool = True) -> None:
        self.prefix, self.expands, self.count = prefix, expands, 0
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.expanded: list[Value] = []
        self.expressions: dict[str, str] = {}

    def write(self, value: Any) -> str:
        """The name of a value or the text of a number, after writing what it needs."""
        if not isinstance(value, Value):
            return repr(float(value))
        if value.word is None:
            return value.name
        if id(value) not in self.names and self.expands and value.word in EXPANSIONS:
            # kept, as names go by identity
            self.expanded.append(EXPANSIONS[value.word](*value.arguments))
            self.names[id(value)] = self.write(self.expanded[-1])
        if id(value) not in self.names:
            arguments = [self.write(argument) for argument in value.arguments]
            expression = _expression(value.word, arguments)
            if expression not in self.expressions:
                self.expressions[expression] = f'{self.prefix}{self.count}'
                self.lines.append(f'    {self.prefix}{self.count} = {expression}')
                self.count += 1
            self.names[id(value)] = self.expressions[expression]
        return self.names[id(value)]

    def function(self, name: str, parameters: Sequence[str], result: str) -> str:
        return '\n'.join([f'def {name}({", ".join(parameters)}):', *self.lines, f'    return {result}'])


def _expression(word: str, arguments: Sequence[str]) -> str:
    if word in _INFIX:
        return f'{arguments[0]} {_INFIX[word]} {arguments[1]}'
    return f'-{arguments[0]}' if word == 'neg' else f'{word}({", ".join(arguments)})'
