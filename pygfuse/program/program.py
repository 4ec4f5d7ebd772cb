"""Edge programs: what happens on one edge, and nothing about who computes it.

A program names its operands and gives plain functions of them. On the edge from source u to target v it computes

.. math::
    s_{vu} = \\mathrm{score}(\\ldots), \\quad
    w_{vu} = s_{vu} \\text{ or } \\exp(s_{vu}) / \\textstyle\\sum_{u'} \\exp(s_{vu'}), \\quad
    y_v = \\mathrm{reduce}_u\\ \\mathrm{message}(w_{vu}, \\ldots)

which is the Scatter, ApplyEdge, ReduceScatter and Aggregate of "Understanding GNN Computational Graph" (MLSys 2022,
appendix A) in one. The adjoint is derived by `pygfuse.program.trace`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence

from pygfuse.program.trace import CHANNELS, HEADS, SCALAR, Trace, Value

SOURCE, TARGET, EDGE, PARAMETER = 'source', 'target', 'edge', 'parameter'
_SIDES = (SOURCE, TARGET, EDGE, PARAMETER)


@dataclasses.dataclass(frozen=True)
class Operand:
    """Where an operand lives and how many values it has there.

    Attributes:
        side: ``'source'``, ``'target'`` (a row per node), ``'edge'`` (a row per edge) or ``'parameter'`` (one row).
        level: ``'heads'`` (H values a row), ``'channels'`` (H x C values a row) or ``'scalar'``: for edges one value
            a row, the same for all heads; for parameters a plain number, which has no gradient.
    """

    side: str
    level: str

    def __post_init__(self) -> None:
        if self.side not in _SIDES:
            raise ValueError(f"Expected 'side' to be one of {_SIDES} (got {self.side!r})")
        if self.level not in (HEADS, CHANNELS) and not (self.level == SCALAR and self.side in (EDGE, PARAMETER)):
            raise ValueError(f"Expected 'level' to be 'heads' or 'channels' on side {self.side!r} (got {self.level!r})")


def operands(**names: str) -> dict[str, Operand]:
    """Operands by where they live.

    Args:
        names: Names, separated by spaces, for a side (those of channels), or for a side and a level:
            ``source``, ``target_heads``, ``edge_scalar``, ``parameter``, ...

    Example:
        >>> operands(source='x', target_heads='alpha_dst')
        {'x': Operand(side='source', level='channels'), 'alpha_dst': Operand(side='target', level='heads')}
    """
    found = {}
    for place, said in names.items():
        side, _, level = place.partition('_')
        found |= {name: Operand(side, level or CHANNELS) for name in said.split()}
    return found


def _traced_level(operand: Operand) -> str:
    """The level at which an operand enters a trace: a scalar of an edge is spread over heads."""
    return HEADS if operand == Operand(EDGE, SCALAR) else operand.level


PROGRAMS: dict[str, EdgeProgram] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeProgram:
    """What a convolution computes on its edges.

    Args:
        name: A unique name; the program is found by it.
        operands: The operands by name. Any may be absent in a call, and then enters as the number 0.
        message: A function of channels operands, scalars and, if there is a score, a first parameter `weight`.
        score: A function of any operands that returns a heads value, or None.
        softmax: Whether the scores of a target's edges are normalised by softmax.

    Example:
        >>> EdgeProgram(
        ...     'weighted_sum',
        ...     operands={'x': Operand('source', 'channels'), 'edge_weight': Operand('edge', 'heads')},
        ...     score=lambda edge_weight: edge_weight,
        ...     message=lambda weight, x: weight * x,
        ... ).name
        'weighted_sum'
    """

    name: str
    operands: Mapping[str, Operand]
    message: Callable
    score: Callable | None = None
    softmax: bool = False

    def __post_init__(self) -> None:
        if self.softmax and self.score is None:
            raise ValueError(f"Program {self.name!r}: 'softmax' needs a 'score'")
        names = [*inspect.signature(self.message).parameters]
        if (self.score is not None) != (names[:1] == ['weight']):
            raise ValueError(f"Program {self.name!r}: 'message' takes 'weight' first if and only if there is a 'score'")
        for name in [*names[self.score is not None :], *self._parameters_of_score()]:
            if name not in self.operands:
                raise ValueError(f'Program {self.name!r}: {name!r} is not among its operands {list(self.operands)}')
        for name in names[self.score is not None :]:
            if _traced_level(self.operands[name]) == HEADS:
                raise ValueError(f"Program {self.name!r}: {name!r} has no channels; let it enter by the 'score'")
        levels = {_traced_level(self.operands[name]) for name in self._parameters_of_score()}
        if {HEADS, CHANNELS} <= levels:
            raise ValueError(f"Program {self.name!r}: a 'score' takes operands of heads or of channels, not of both")
        PROGRAMS[self.name] = self

    def _parameters_of_score(self) -> list[str]:
        return [] if self.score is None else list(inspect.signature(self.score).parameters)

    @functools.cached_property
    def scores_channels(self) -> bool:
        """Whether the score reads channels."""
        return any(_traced_level(self.operands[name]) == CHANNELS for name in self._parameters_of_score())

    def is_linear_in_weight(self, message: Trace) -> bool:
        """Whether a message is the weight times something: what the adjoint of a softmax builds on."""
        present = {operand.name: operand for operand in message.operands}
        names = inspect.signature(self.message).parameters
        without = self.message(**{name: present.get(name, 0.0) for name in names} | {'weight': 0.0})
        return not (isinstance(without, Value) or without) and 'weight' not in message.read_by_adjoint(['weight'])

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (programs live as long as the process)
    def bind(self, present: tuple[str, ...], products: tuple[str, ...] = ()) -> BoundProgram:
        """The program as it is when only the operands `present` are given.

        Args:
            present: Names of operands.
            products: Those of them, channels of edges, that are given as features times a weight.
        """
        levels = {name: _traced_level(self.operands[name]) for name in self.operands if name in present}
        score = None if self.score is None else Trace.of(self.score, levels)
        message = Trace.of(self.message, {'weight': HEADS, **levels}, CHANNELS)
        if self.softmax and not self.is_linear_in_weight(message):
            raise ValueError(
                f"Program {self.name!r}: with 'softmax', 'message' has to be 'weight' times something that does not "
                "depend on 'weight'"
            )
        return BoundProgram(self, tuple(levels), products, score, message)


@dataclasses.dataclass(frozen=True, eq=False)
class BoundProgram:
    """A program with the operands of one kind of call, traced.

    Attributes:
        program: The program.
        present: The operands that are given, in the program's order.
        products: Those of them that are given as features times a weight.
        score: The recorded score, or None.
        message: The recorded message.
    """

    program: EdgeProgram
    present: tuple[str, ...]
    products: tuple[str, ...]
    score: Trace | None
    message: Trace

    @property
    def softmax(self) -> bool:
        return self.program.softmax

    @functools.cached_property
    def score_is_of_heads(self) -> bool:
        """Whether scores need no channels: then several edges are scored side by side."""
        return self.score is None or all(operand.level != CHANNELS for operand in self.score.operands)

    @functools.cached_property
    def edge_rows(self) -> list[str]:
        """Channels operands of edges that are given as rows."""
        return [name for name in self.names(EDGE, CHANNELS) if name not in self.products]

    @functools.cached_property
    def edge_products(self) -> list[str]:
        """Channels operands of edges that are given as features times a weight."""
        return [name for name in self.names(EDGE, CHANNELS) if name in self.products]

    @functools.cached_property
    def reads_edges(self) -> bool:
        """Whether any operand belongs to edges."""
        return any(self.program.operands[name].side == EDGE for name in self.present)

    @functools.cached_property
    def separable(self) -> bool:
        """Whether each channel of the output can be computed apart from the others."""
        return self.score_is_of_heads

    @functools.cached_property
    def summed_sources(self) -> str | None:
        """The name of the only operand, if it is the message and belongs to sources: the adjoint is the same sum along
        the transpose."""
        (name, *others) = self.present
        alone = not others and self.score is None and self.message.output.name == name
        return name if alone and name in self.names(SOURCE, CHANNELS) else None

    @functools.cached_property
    def weighed_sources(self) -> tuple[str, str] | None:
        """The names of the only two operands, sources and a number for each edge that is their weight."""
        if len(self.present) != 2 or self.score is None or self.softmax or self.products:
            return None
        source, weight = [*self.names(SOURCE, CHANNELS), None][0], self.score.output.name
        product, operand = self.message.output, self.program.operands.get(weight)
        if source is None or operand is None or operand.side != EDGE or product.word != 'mul':
            return None
        factors = sorted(value.name for value in product.arguments if isinstance(value, Value))
        return (source, weight) if factors == sorted((source, 'weight')) else None

    def names(self, side: str, level: str) -> list[str]:
        """The operands given on one side at one level, in order."""
        return self._by_place.get((side, level), [])

    @functools.cached_property
    def _by_place(self) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for name in self.present:
            operand = self.program.operands[name]
            found.setdefault((operand.side, operand.level), []).append(name)
        return found

    def text(self, trace: Trace, name: str, sides: Mapping[str, str]) -> str:
        """The text of a traced function as the walks call it.

        Args:
            trace: The score or the message.
            name: The name of the function written.
            sides: For ``'source'`` and ``'target'`` the role that this walk gives it: ``'resident'``, ``'gathered'``.

        Returns:
            A function of ``weight`` (for the message) and the tuples ``resident_heads, resident_channels,
            gathered_heads, gathered_channels, edge_heads, edge_channels, parameter_heads, parameters,
            scalars``.
        """
        return _with_tuples(self, trace.text(name), trace, sides)

    def adjoint_text(
        self,
        trace: Trace,
        name: str,
        wrt: Sequence[Sequence[str]],
        sides: Mapping[str, str],
        unsummed: Collection[str] = (),
    ) -> str:
        """The same of the adjoint: a function of ``grad`` and what `text` takes (see `Trace.adjoint_text`)."""
        return _with_tuples(self, trace.adjoint_text(name, wrt, unsummed), trace, sides)


TUPLES = (
    'resident_heads',
    'resident_channels',
    'gathered_heads',
    'gathered_channels',
    'edge_heads',
    'edge_channels',
    'parameter_heads',
    'parameters',
    'scalars',
)


def place(bound: BoundProgram, name: str, sides: Mapping[str, str]) -> tuple[str, int]:
    """In which of the walks' tuples an operand is, and at which position."""
    operand = bound.program.operands[name]
    names = bound.names(operand.side, operand.level)
    if operand == Operand(EDGE, CHANNELS):
        names = [*bound.edge_rows, *bound.edge_products]
    position = names.index(name)
    if operand == Operand(EDGE, SCALAR):
        return 'edge_heads', len(bound.names(EDGE, HEADS)) + position
    if operand.side == PARAMETER:
        return {SCALAR: 'scalars', HEADS: 'parameter_heads', CHANNELS: 'parameters'}[operand.level], position
    return f'{sides.get(operand.side, operand.side)}_{operand.level}', position


def _with_tuples(bound: BoundProgram, text: str, trace: Trace, sides: Mapping[str, str]) -> str:
    """Rewrites a function of operands into one of the walks' tuples."""
    header, *body = text.split('\n')
    name, given = header.removeprefix('def ').removesuffix('):').split('(')
    first = ['grad'] if given.split(', ')[0] == 'grad' else []
    if trace is bound.message:
        first.append('weight')
    unpacking = []
    for operand in trace.operands:
        if operand.name != 'weight':
            container, position = place(bound, operand.name, sides)
            unpacking.append(f'    {operand.name} = {container}[{position}]')
    return '\n'.join([f'def {name}({", ".join([*first, *TUPLES])}):', *unpacking, *body])
