"""The adjoint of a call as walks: which walks give which gradients, whatever the device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence

from pygfuse.program.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.program.trace import CHANNELS, HEADS, SCALAR, Trace

# which role each end of an edge has in a walk by target rows, and in one by source rows
BY_TARGET = {TARGET: 'resident', SOURCE: 'gathered'}
BY_SOURCE = {SOURCE: 'resident', TARGET: 'gathered'}


@dataclasses.dataclass(frozen=True)
class BackwardPlan:
    """What one walk of the adjoint computes.

    Attributes:
        side: ``'source'`` or ``'target'``: whose rows are walked.
        heads: Operands of that side with a value a head, whose gradient is summed over the row.
        channels: The same with values for channels.
        edges: Operands of edges with a value a head: their gradient is written at the edge's id.
        edge_channels: The same with values for channels.
        passed: Operands of the other side with a value a head: their gradient on each edge is written in the order of
            this walk, to be summed over the other side's rows afterwards.
        added: The same, where each part of the work adds it to its own copy of the other side's rows.
        parameters: Parameters with values for channels: their gradient is summed over each part of the work.
        features: Those of `edge_channels` given as features times a weight whose features need a gradient.
        edge_scalars: Operands of edges with one value: their gradient is written at the edge's id, for each tile.
        parameter_heads: Parameters with a value a head: their gradient is summed over each part of the work.
    """

    side: str
    heads: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    edge_channels: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    edge_scalars: tuple[str, ...] = ()
    parameter_heads: tuple[str, ...] = ()

    def of_score(self, bound: BoundProgram) -> bool:
        """Whether any of it flows through the score."""
        if bound.score is None:
            return False
        through_heads = {*self.heads, *self.edges, *self.passed, *self.added, *self.edge_scalars, *self.parameter_heads}
        wanted = through_heads | {*self.channels, *self.edge_channels, *self.parameters}
        return any(operand.name in wanted for operand in bound.score.operands)

    def is_separable(self, bound: BoundProgram) -> bool:
        """Whether each channel's gradients can be computed apart from those of others."""
        return bound.separable and not self.of_score(bound)

    def adds_up(self, bound: BoundProgram) -> bool:
        """Whether something is summed over edges or channels, so that no channel may be computed twice."""
        products = [name for name in self.edge_channels if name in bound.edge_products]
        return bool(self.parameters or self.parameter_heads or self.features or self.edge_scalars or products)

    def by_end(self, bound: BoundProgram) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those of `channels` that belong to sources, and to targets."""
        of_sources = bound.names(SOURCE, CHANNELS)
        return (
            tuple(name for name in self.channels if name in of_sources),
            tuple(name for name in self.channels if name not in of_sources),
        )

    def rows_of(self, trace: Trace) -> tuple[list[str], list[str], list[str]]:
        """Those of `channels`, of `edge_channels` and of `parameters` that a traced function takes."""
        return tuple(used_by(trace, names) for names in (self.channels, self.edge_channels, self.parameters))


def used_by(trace: Trace | None, names: Sequence[str]) -> list[str]:
    """Those of the operands `names` that a traced function takes."""
    available = set() if trace is None else set(trace.names())
    return [name for name in names if name in available]


@functools.lru_cache(maxsize=256)
def unread_rows(bound: BoundProgram, needed: tuple[str, ...], reduce: str) -> tuple[str, ...]:
    """The operands of nodes with values for channels that no walk for the gradients of `needed` reads.

    Of a sum those are what its message is linear in, unless the weights need a gradient.

    Args:
        bound: The program.
        needed: Names of operands.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
    """
    if bound.softmax or reduce in ('max', 'min'):
        return ()
    of_score = [] if bound.score is None else bound.score.names()
    through_score = ['weight'] if used_by(bound.score, needed) else []
    read = bound.message.read_by_adjoint([*through_score, *used_by(bound.message, needed)])
    rows = [*bound.names(SOURCE, CHANNELS), *bound.names(TARGET, CHANNELS)]
    return tuple(name for name in rows if name not in read and name not in of_score)


def wanted_rows(bound: BoundProgram, needed: Collection[str]) -> tuple[str, ...]:
    """The operands of edges with values for channels among those `needed`; products come last, as walks load them."""
    return tuple(name for name in (*bound.edge_rows, *bound.edge_products) if name in needed)


@functools.lru_cache(maxsize=1024)
def whole_plan(bound: BoundProgram, needed: frozenset[str], features: frozenset[str]) -> BackwardPlan:
    """The gradients of the operands `needed`, and of the features of those products in `features`, by one walk.

    It adds what belongs to either end of an edge where it lies: ``heads`` are those of sources, ``added`` of targets,
    ``channels`` of sources and then of targets.
    """

    def wanted(side: str, level: str) -> tuple[str, ...]:
        return tuple(name for name in bound.names(side, level) if name in needed)

    return BackwardPlan(
        TARGET,
        heads=wanted(SOURCE, HEADS),
        channels=wanted(SOURCE, CHANNELS) + wanted(TARGET, CHANNELS),
        edges=wanted(EDGE, HEADS),
        edge_channels=wanted_rows(bound, needed),
        added=wanted(TARGET, HEADS),
        parameters=wanted(PARAMETER, CHANNELS),
        features=tuple(name for name in wanted_rows(bound, needed) if name in features),
        edge_scalars=wanted(EDGE, SCALAR),
        parameter_heads=wanted(PARAMETER, HEADS),
    )


def backward_plans(
    bound: BoundProgram, needed: Collection[str], features: Collection[str] = (), adding: bool = False
) -> list[BackwardPlan]:
    """The walks that give the gradients of the operands `needed`, and of the features of those products in `features`.

    What belongs to sources needs a walk along the transpose, channels of targets one along the graph; the rest goes
    with the first of them that is made. Values of heads of targets are passed along the transpose and summed
    afterwards, or, if `adding`, summed at once into copies.
    """

    def wanted(side: str, level: str) -> tuple[str, ...]:
        return tuple(name for name in bound.names(side, level) if name in needed)

    edges, parameters = wanted(EDGE, HEADS), wanted(PARAMETER, CHANNELS)
    edge_channels = wanted_rows(bound, needed)
    features = tuple(name for name in edge_channels if name in features)
    edge_scalars, parameter_heads = wanted(EDGE, SCALAR), wanted(PARAMETER, HEADS)
    shared = (parameters, features, edge_scalars, parameter_heads)
    target_heads, target_channels = wanted(TARGET, HEADS), wanted(TARGET, CHANNELS)
    source_heads, source_channels = wanted(SOURCE, HEADS), wanted(SOURCE, CHANNELS)
    plans = []
    if source_heads or source_channels:
        others = () if target_channels else target_heads
        passed, added = ((), others) if adding else (others, ())
        plans.append(BackwardPlan(SOURCE, source_heads, source_channels, edges, edge_channels, passed, added, *shared))
        if target_channels:
            plans.append(BackwardPlan(TARGET, target_heads, target_channels))
    elif needed:
        plans.append(BackwardPlan(TARGET, target_heads, target_channels, edges, edge_channels, (), (), *shared))
    return plans
