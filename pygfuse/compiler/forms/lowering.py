"""A reduction of edges' values as one walk: an edge program, and the values that are its operands."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pygfuse.compiler.ir import positions
from pygfuse.compiler.ir.positions import Places, unviewed
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, computed_on_edges, nodes_in
from pygfuse.compiler.passes.subexpressions import shared
from pygfuse.compiler.programs.emission import Factors, Function, Operands, contains, is_leaf
from pygfuse.compiler.refusal import Refused
from pygfuse.program.program import PROGRAMS, EdgeProgram
from pygfuse.program.trace import CHANNELS, HEADS
from pygfuse.program.vocabulary import WORDS

_OF_TARGETS = ('softmax', 'dropout')


class WalkArguments(NamedTuple):
    """What a walk takes beside edges and operands; attributes are those of `Walk`."""

    program: EdgeProgram
    heads: int
    channels: int
    reduce: str
    dropout: float


@dataclasses.dataclass(frozen=True)
class Walk:
    """A walk over the edges.

    Attributes:
        program: What happens on an edge.
        text: The program's functions, for people.
        operands: The values of its operands by name.
        heads: Heads.
        channels: Channels a head.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        dropout: Probability of dropping a weight.
        message: What the program computes.
        directions: The walks that run in place of this one, one for each row of the message; none: this one runs.
        is_by_terms: Whether linear maps of longer rows are written out in it, number by number.
    """

    program: EdgeProgram
    text: str
    operands: dict[str, Node | Factors]
    heads: int
    channels: int
    reduce: str
    dropout: float
    message: Node
    directions: tuple[Walk, ...] = ()
    is_by_terms: bool = False

    @property
    def walks(self) -> tuple[Walk, ...]:
        """What runs."""
        return self.directions or (self,)

    @property
    def takes_any_width(self) -> bool:
        """Whether it gives each channel alone, of the same channel of what a call brings and of numbers of edges."""
        if self.heads > 1 or self.channels == 1 or self.dropout > 0.0 or self.directions:
            return False
        bound = self.program.bind(tuple(self.operands))
        return bound.separable and all(self._is_of_channels_alone(name) for name in self.operands)

    def _is_of_channels_alone(self, name: str) -> bool:
        declared, operand = self.program.operands[name], self.operands[name]
        if declared.side in (SOURCE, TARGET):
            return declared.level == CHANNELS and isinstance(operand, Node) and operand.op == 'input'
        return declared.side == EDGE and declared.level != CHANNELS and isinstance(operand, Node) and operand.width == 1

    @property
    def arguments(self) -> WalkArguments:
        """What it takes beside edges and operands: neither values nor the layer that they are read of."""
        return WalkArguments(self.program, self.heads, self.channels, self.reduce, self.dropout)

    @property
    def title(self) -> str:
        """What it is, for people."""
        if self.directions:
            return f'{self.directions[0].title}, for each of {len(self.directions)} rows'
        weights = ', weights by softmax' if self.program.softmax else ''
        return f'walk: {self.reduce}, heads={self.heads}, channels={self.channels}{weights}'


def lowered(reduction: Node) -> Walk:
    """The walk of a reduction.

    Raises:
        Refused: If no program computes it.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x = leaf('x_j', 'source', (4,), torch.float32)
        >>> weight = leaf('edge_weight', 'edge', (1,), torch.float32)
        >>> print(lowered(value('reduce', value('mul', weight, x), reduce='sum')).text)
        def score(e1):
            return e1
        def message(weight, s0):
            v0 = weight * s0
            return v0
    """
    message = reduction.args[0]
    if message.residency == SHARED:
        raise Refused('messages that do not depend on the edge')
    # what nodes have, or nobody, may be computed of others
    read = [message, *(value for node in computed_on_edges(message) for value in (node, *node.parents()))]
    if len({node.dtype for node in read if node.dtype.is_floating_point}) > 1:
        raise Refused('values of several types')
    found, reasons = None, []
    for heads in _numbers_of_heads(message):
        try:
            walk = _Lowering(message, heads, reduction.attributes['reduce']).walk()
        except Refused as refusal:
            reasons.append(str(refusal))
            continue
        if walk.program.score is not None:
            # what is computed once a head is not computed for each channel
            return walk
        found = found or walk
    if found is None:
        raise Refused(reasons[0] if reasons else 'no walk computes it')
    return found


def _numbers_of_heads(message: Node) -> Iterator[int]:
    """Numbers of heads for which a program may exist, the likeliest first."""
    width = message.width
    computed = computed_on_edges(message)
    on_edges = [node for node in (*computed, *nodes_in([one.args for one in computed])) if node.residency == EDGE]
    found = [node.width for node in on_edges if node.op == 'softmax']
    if not found:
        found = [width * node.width // node.args[0].width for node in on_edges if node.op == 'sum']
        found += sorted({node.width for node in on_edges if 1 < node.width < width}, reverse=True)
        found.append(1)
    yield from dict.fromkeys(heads for heads in found if heads and width % heads == 0)


class _Lowering:
    """The writing of one program for a number of heads."""

    def __init__(self, message: Node, heads: int, reduce: str) -> None:
        self.message = message
        self.heads, self.channels = heads, message.width // heads
        self.reduce = reduce
        self.operands = Operands()
        self.weight: Node | None = None
        self.dropout = 0.0
        self.is_softmax = contains(message, ('softmax',))
        if self.is_softmax and reduce in ('max', 'min'):
            raise Refused(f'{reduce} of what a softmax weighs')
        self.must_score = self.is_softmax or contains(message, ('sum', 'dropout'))

    def walk(self) -> Walk:
        function = Function('message', self.operands, CHANNELS)
        result = function.write(self.message, positions.everything(self.message.width), self._stop)
        if self.must_score and self.weight is None:
            raise Refused('values of heads that are no weight')
        scores = self._score() if self.weight is not None else None
        if self.weight is not None:
            function.parameters = {'weight': None, **function.parameters}
        if not self.operands.declared:
            raise Refused('messages without operands')
        text = function.text(result)
        program = _program(self.operands, text, scores, self.is_softmax)
        try:
            program.bind(tuple(self.operands.declared))
        except ValueError as error:
            raise Refused('a message that is no multiple of its softmax' if self.is_softmax else str(error)) from error
        except (TypeError, AttributeError) as error:
            # the last of a number that is no tensor, as 0 times a value is
            raise Refused(str(error)) from error
        whole = text if scores is None else f'{scores}\n{text}'
        values = self.operands.values
        return Walk(program, whole, values, self.heads, self.channels, self.reduce, self.dropout, self.message)

    def _stop(self, node: Node, places: Places) -> str | None:
        """The name ``weight`` for a value that can be the weight of edges."""
        if node is self.weight:
            if places != positions.repeated(self.heads, self.channels):
                raise Refused('a weight of edges that is read in another order')
            return 'weight'
        spreads = places == positions.repeated(self.heads, self.channels) and node.width == self.heads
        may_be = spreads and self.weight is None and node.residency == EDGE
        if not may_be or (self.channels == 1 and not self.must_score):
            return None
        if self.is_softmax:
            chosen = _without_dropout(node)[0].op == 'softmax'
        elif self.must_score:
            chosen = contains(node, ('sum', 'dropout')) and self._has_no_channels(node)
        else:
            chosen = True
        if not chosen:
            return None
        self.weight = node
        return 'weight'

    def _has_no_channels(self, node: Node) -> bool:
        return _without_dropout(node)[0].op == 'dropout' or not contains(node, ('dropout',)) or node.op == 'dropout'

    def _score(self) -> str:
        scored, self.dropout = _without_dropout(self.weight)
        if self.is_softmax:
            (scored,) = scored.args
        if contains(scored, _OF_TARGETS):
            raise Refused('a softmax or dropout within a score')
        level = CHANNELS if contains(scored, ('sum',)) else HEADS
        function = Function('score', self.operands, level)
        places = positions.everything(self.heads)
        if level == HEADS:
            result = function.write(scored, places, lambda node, places: None)
        else:
            result = function.write(scored, places, lambda node, places: self._summed(function, node, places))
        return function.text(result)

    def _summed(self, function: Function, node: Node, places: Places) -> str | None:
        """Within a score that sums channels: a sum, or a value of heads, which is the sum of itself and zeros."""
        if len(places) != self.heads:
            return None
        if node.op == 'sum' and node.residency == EDGE:
            summed = positions.of_sum(node)
            if summed.shape[1] != self.channels or -1 in places:
                raise Refused(f'a sum of {summed.shape[1]} channels where messages have {self.channels}')
            inner = tuple(int(i) for k in places for i in summed[k])
            if contains(node.args[0], ('sum', *_OF_TARGETS)):
                raise Refused('a sum of sums over channels')
            found = function.write(node.args[0], inner, lambda node, places: None)
            return function.line(f'sum_channels({found})')
        if is_leaf(node):
            padded = tuple(place for k in places for place in (k, *[-1] * (self.channels - 1)))
            return function.line(f'sum_channels({function.leaf(node, padded)})')
        return None


def with_shared_products(forms: Mapping[int, Any]) -> dict[int, Any]:
    """The same forms; operands that are the same features times the same weight are the same values in all walks."""
    found = [f for walk in forms.values() if isinstance(walk, Walk) for f in walk.operands.values()]
    found = [factors for factors in found if isinstance(factors, Factors)]
    parts = iter(shared([part for factors in found for part in (factors.features, factors.weight)]))
    known = {id(factors): Factors(next(parts), next(parts)) for factors in found}
    return {
        key: dataclasses.replace(walk, operands={name: known.get(id(o), o) for name, o in walk.operands.items()})
        if isinstance(walk, Walk)
        else walk
        for key, walk in forms.items()
    }


def softmaxes_in(message: Node) -> list[Node]:
    """The softmaxes on the edges that a message is computed by, not those in what it reads of nodes."""
    found, seen, stack = [], set(), [message]
    while stack:
        node = stack.pop()
        if id(node) in seen or node.residency != EDGE:
            continue
        seen.add(id(node))
        if node.op == 'softmax':
            found.append(node)
        stack += node.parents()
    return found


def _without_dropout(node: Node) -> tuple[Node, float]:
    """What dropout, if it is that, is taken of, and its probability; views are looked through."""
    node = unviewed(node)
    return (unviewed(node.args[0]), node.attributes['p']) if node.op == 'dropout' else (node, 0.0)


def _program(operands: Operands, message: str, score: str | None, softmax: bool) -> EdgeProgram:
    """The program of these functions: the same one for the same text."""
    declared = ';'.join(f'{name}:{o.side}:{o.level}' for name, o in operands.declared.items())
    name = f'compiled_{hashlib.sha256(repr((declared, message, score, softmax)).encode()).hexdigest()[:16]}'
    if name not in PROGRAMS:
        found = dict(WORDS)
        exec('\n'.join(filter(None, (score, message))), found)  # text of our own, of words and names alone
        EdgeProgram(name, dict(operands.declared), found['message'], found.get('score') if score else None, softmax)
    return PROGRAMS[name]
