"""Values of edges as the text of a program's functions, and the operands that these read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from pygfuse.compiler.ir import positions
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.positions import Places
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, computed_on_edges, is_brought, is_seen, value
from pygfuse.compiler.programs.words import WORDS, Term, condition
from pygfuse.compiler.refusal import Refused
from pygfuse.program.program import PARAMETER, Operand
from pygfuse.program.trace import HEADS, SCALAR

_COMPARISONS = ('gt', 'lt', 'ge', 'le', 'eq', 'ne')
_LETTERS = {SOURCE: 's', TARGET: 't', EDGE: 'e', SHARED: 'p'}
_SIDES = {SOURCE: SOURCE, TARGET: TARGET, EDGE: EDGE, SHARED: PARAMETER}

# features that are multiplied by a matrix of zeros and ones to stand where they are wanted; more are copied there
_MOST_PLACED = 8


@dataclasses.dataclass(frozen=True)
class Factors:
    """An operand that is given as features of edges times a weight."""

    features: Node
    weight: Node


@dataclasses.dataclass
class Operands:
    """The operands of a program, and the values that give them."""

    declared: dict[str, Operand] = dataclasses.field(default_factory=dict)
    values: dict[str, Node | Factors] = dataclasses.field(default_factory=dict)
    names: dict[Any, str] = dataclasses.field(default_factory=dict)

    def name(self, key: Any, residency: str, level: str, make: Callable[[], Node | Factors]) -> str:
        """The name of an operand, declared once."""
        key = (*key, residency, level)
        if key not in self.names:
            name = f'{_LETTERS[residency]}{len(self.names)}'
            self.names[key] = name
            self.declared[name] = Operand(_SIDES[residency], level)
            self.values[name] = make()
        return self.names[key]


def is_leaf(node: Node) -> bool:
    """Whether a value is an operand: of nodes, shared, brought by the call for each edge, or a map of the latter."""
    if is_brought(node):
        return True
    if node.op == 'linear' or (node.op in OPERATIONS and OPERATIONS[node.op].selects):
        return node.args[0].residency == EDGE and is_features(node.args[0])
    return False


def is_features(node: Node) -> bool:
    """Whether a value is in memory for each edge, seen another way perhaps."""
    return node.residency == EDGE and is_seen(node)


class Function:
    """A function that is being written: of a score or of a message.

    Args:
        name: Its name.
        operands: The operands of the program.
        level: The level of those it reads.
    """

    def __init__(self, name: str, operands: Operands, level: str) -> None:
        self.name = name
        self.operands = operands
        self.level = level
        self.parameters: dict[str, None] = {}
        self.lines: list[str] = []
        self._known: dict[str, str] = {}
        self._done: dict[Any, str] = {}

    def line(self, expression: str) -> str:
        """The name of an expression, written once."""
        if expression not in self._known:
            self._known[expression] = f'v{len(self._known)}'
            self.lines.append(f'    {self._known[expression]} = {expression}')
        return self._known[expression]

    def text(self, result: str) -> str:
        """The whole function."""
        return '\n'.join([f'def {self.name}({", ".join(self.parameters)}):', *self.lines, f'    return {result}'])

    def write(self, node: Node, places: Places, stop: Callable[[Node, Places], str | None]) -> str:
        """Writes the numbers of a value at `places`.

        Args:
            node: The value.
            places: Which numbers.
            stop: A function that gives the name of a value that is there already, or None.
        """
        key = id(node), places
        if key not in self._done:
            known = stop(node, places)
            if known is None:
                known = self.leaf(node, places) if is_leaf(node) else self._operator(node, places, stop)
            self._done[key] = known
        return self._done[key]

    def _operator(self, node: Node, places: Places, stop: Callable) -> str:
        if node.op not in OPERATIONS:
            raise Refused(f'{node.op} within a message')
        if OPERATIONS[node.op].selects:
            return self.write(node.args[0], positions.through(positions.of_view(node), places), stop)
        if node.op == 'cat':
            return self.write(*_part_of(node, places), stop)
        if node.op == 'dropout_factor':
            return self._drawn(node, places, stop)
        if not OPERATIONS[node.op].elementwise:
            raise Refused(f'{node.op} of values that each edge has of its own')

        def written(argument: Any) -> Any:
            if not isinstance(argument, Node):
                return argument
            inner = positions.through(positions.of_argument(node, argument), places)
            return Term(self.write(argument, inner, stop), self.line)

        if node.op in ('where', 'masked_fill', 'indicator'):
            return self._choice(node, written, places, stop)
        word = WORDS.get(node.op)
        if word is None:
            raise Refused(f'{node.op} has no fused form')
        try:
            found = word(*(written(argument) for argument in node.args), **node.attributes)
        except TypeError as error:
            raise Refused(f'{node.op} with these arguments') from error
        return found.name

    def _choice(self, node: Node, written: Callable, places: Places, stop: Callable) -> str:
        chosen, then, otherwise = (*node.args, 1.0, 0.0) if node.op == 'indicator' else node.args
        if node.op == 'masked_fill':
            chosen, then, otherwise = then, otherwise, chosen
        if not isinstance(chosen, Node) or chosen.op not in _COMPARISONS:
            raise Refused('a choice by something else than a comparison')
        inner = positions.through(positions.of_argument(node, chosen), places)

        def compared(argument: Any) -> Any:
            if not isinstance(argument, Node):
                return argument
            places_of = positions.through(positions.of_argument(chosen, argument), inner)
            return Term(self.write(argument, places_of, stop), self.line)

        x, y = (compared(argument) for argument in chosen.args)
        return condition(chosen.op, x, y, written(then), written(otherwise)).name

    def _drawn(self, factor: Node, places: Places, stop: Callable) -> str:
        """Writes a dropout's factors at `places`, from an edge's mark and the keys and probabilities there."""
        marks, draws = factor.args
        mark = self.write(marks, positions.through(positions.of_broadcast(marks.shape, factor.shape), places), stop)
        key, probability = (
            self.write(draws, tuple(place if place < 0 else place + first for place in places), stop)
            for first in (0, factor.width)
        )
        return self.line(f'dropout_factor({mark}, {key}, {probability})')

    # Operands

    def leaf(self, node: Node, places: Places) -> str:
        """The name of an operand that holds the numbers of a value at `places`."""
        if not node.dtype.is_floating_point:
            raise Refused('a message of integers')
        name = self._operand(node, places)
        self.parameters.setdefault(name)
        return name

    def _operand(self, node: Node, places: Places) -> str:
        key = id(node), places
        if node.residency == SHARED:
            return self.operands.name(key, SHARED, self.level, lambda: value('parameter_columns', node, take=places))
        if node.residency != EDGE:
            return self.operands.name(key, node.residency, self.level, lambda: _in_a_row(node, places))
        viewed, places_of_view = node, places
        while OPERATIONS[node.op].selects if node.op in OPERATIONS else False:
            node, places = node.args[0], positions.through(positions.of_view(node), places)
        if self.level == HEADS and -1 not in places and len(set(places)) == 1:
            # one number of an edge for all heads
            places, level = places[:1], SCALAR
        else:
            level = self.level
        key = id(node), places
        if node.op == 'linear':
            return self.operands.name(key, EDGE, level, lambda: _mapped_features(node, places))
        width = node.width
        if positions.are_in_a_row(places):
            return self.operands.name(key, EDGE, level, lambda: _in_a_row(node, places))
        if width > _MOST_PLACED and level == self.level:
            return self.operands.name(key, EDGE, level, lambda: _in_a_row(viewed, places_of_view))

        def spread() -> Factors:
            features = value('columns', node, take=positions.everything(width))
            return Factors(features, value('placement', node, take=places, width=width))

        return self.operands.name(key, EDGE, level, spread)


def _in_a_row(node: Node, places: Places) -> Node:
    """The numbers of a value at `places`; all of them as they are, which walks take in rows of any shape."""
    if node.shape and places == positions.everything(node.width):
        return node
    return value('columns', node, take=places)


def _mapped_features(node: Node, places: Places) -> Factors:
    features, weight = node.args
    if weight.residency != SHARED or len(weight.shape) != 2:
        raise Refused('a linear map by something else than a matrix')
    flat, taken = features, positions.everything(features.width)
    if features.width != weight.shape[1]:
        raise Refused('a linear map of several rows an edge')
    whole = value('columns', flat, take=taken)
    turned = value('call', weight, function=_columns_of_transpose, keywords=(('places', places),))
    return Factors(whole, turned)


def _columns_of_transpose(weight: Any, places: Places) -> Any:
    turned = weight.t()
    if places == positions.everything(turned.shape[1]):
        return turned
    return OPERATIONS['columns'].run(turned, places)


def _part_of(node: Node, places: Places) -> tuple[Node, Places]:
    """The one part of a concatenation that holds the numbers at `places`."""
    dim = node.attributes['dim'] - 1
    parts = node.args[0]
    owner = np.concatenate([np.full(part.shape, k) for k, part in enumerate(parts)], dim).reshape(-1)
    place = np.concatenate([np.arange(part.width).reshape(part.shape) for part in parts], dim).reshape(-1)
    owners = {int(owner[i]) for i in places if i >= 0}
    if len(owners) != 1:
        raise Refused('a concatenation of values that each edge has of its own')
    return parts[owners.pop()], tuple(int(place[i]) if i >= 0 else -1 for i in places)


def contains(node: Node, ops: tuple[str, ...]) -> bool:
    """Whether a value of edges is computed by one of these operators on edges."""
    return any(n.op in ops for n in computed_on_edges(node))
