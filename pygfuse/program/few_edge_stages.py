"""Networks of stages on edges that are so few that they are taken as they come (`pygfuse.mapping.few_edges`)."""

from __future__ import annotations

import dataclasses
import functools
from typing import TypeAlias

import torch

from pygfuse._lib.memo import Memo
from pygfuse.program.activation import Activation


# no tuples: those of equal numbers would be equal, whatever stage they are
@dataclasses.dataclass(frozen=True)
class Sum:
    """The first stage: rows of both ends and of features, of these what is there, added up."""

    width: int
    has_source: bool
    has_target: bool
    has_features: bool


@dataclasses.dataclass(frozen=True)
class Mapped:
    """A linear map."""

    before: int
    after: int
    has_bias: bool


@dataclasses.dataclass(frozen=True)
class Added:
    """Features of edges that are added, so many numbers an edge: as they are, or a linear map of them."""

    width: int
    features: int
    has_weight: bool


@dataclasses.dataclass(frozen=True)
class Multiplied:
    """A product with rows of sources and with features of edges, of these what is there.

    Of features an edge has a row or one number; 0 if there are none.
    """

    width: int
    has_source: bool
    features: int


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A dropout, drawn from a mark for each edge, and from a key and a probability for each channel."""

    width: int


@dataclasses.dataclass(frozen=True)
class Applied:
    """An activation of values of a width."""

    activation: Activation
    width: int


@dataclasses.dataclass(frozen=True)
class Normalised:
    """A layer normalisation of an edge's values."""

    width: int
    has_weight: bool
    has_bias: bool
    eps: float


FewEdgeStage: TypeAlias = Sum | Mapped | Added | Multiplied | Dropped | Applied | Normalised


@dataclasses.dataclass(frozen=True)
class FewEdgeStages:
    """What happens on an edge, stage after stage, and what becomes of it.

    The tensors of all stages follow one another, each stage's in the order of its fields.

    Attributes:
        stages: The stages; the first is a `Sum`, no other is.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.
        dtype: Of all tensors.
        memo: What is derived from it.

    Example:
        >>> stages = Sum(8, True, True, False), Applied(Activation('relu'), 8), Mapped(8, 4, True)
        >>> network = FewEdgeStages(stages, 'sum', torch.float32)
        >>> network.widths, network.places
        ((8, 8, 4), ((0, 1, None), (), (2, 3)))
    """

    stages: tuple[FewEdgeStage, ...]
    reduce: str
    dtype: torch.dtype
    memo: Memo = dataclasses.field(default_factory=Memo, compare=False, repr=False)

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Values of an edge after each stage."""
        return tuple([stage.after if isinstance(stage, Mapped) else stage.width for stage in self.stages])

    @functools.cached_property
    def products(self) -> int:
        """How many numbers are multiplied for an edge in linear maps."""
        maps = (s.before * s.after for s in self.stages if isinstance(s, Mapped))
        return sum(maps) + sum(s.features * s.width for s in self.stages if isinstance(s, Added) and s.has_weight)

    @functools.cached_property
    def of_edges(self) -> tuple[bool, ...]:
        """Which of all tensors are features of edges."""
        found: list[bool] = []
        for stage in self.stages:
            are_features = _FEATURES.get(type(stage), (False, False))
            found += [is_one for is_one, is_there in zip(are_features, _there(stage), strict=False) if is_there]
        return tuple(found)

    @functools.cached_property
    def places(self) -> tuple[tuple[int | None, ...], ...]:
        """Which of all tensors are those of each stage; None for one that is not there."""
        found, count = [], 0
        for stage in self.stages:
            there = _there(stage)
            found.append(tuple([count + sum(there[:i]) if is_there else None for i, is_there in enumerate(there)]))
            count += sum(there)
        return tuple(found)


# which tensors of a stage are features of edges
_FEATURES = {Sum: (False, False, True), Added: (True, False), Multiplied: (False, True), Dropped: (True, False)}


def _there(stage: FewEdgeStage) -> tuple[bool, ...]:
    """Which tensors a stage has."""
    if isinstance(stage, Sum):
        return stage.has_source, stage.has_target, stage.has_features
    if isinstance(stage, Mapped):
        return True, stage.has_bias
    if isinstance(stage, Added):
        return True, stage.has_weight
    if isinstance(stage, Normalised):
        return stage.has_weight, stage.has_bias
    if isinstance(stage, Dropped):
        return True, True
    return (stage.has_source, stage.features > 0) if isinstance(stage, Multiplied) else ()
