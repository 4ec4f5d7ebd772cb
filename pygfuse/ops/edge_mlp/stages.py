"""What a network does on an edge, stage after stage, and as a text that can go through an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.program.activation import Activation


@dataclasses.dataclass(frozen=True, eq=False)
class Begin:
    """The first stage: ``source_j + target_i + features_e``, of these what is there.

    Attributes:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        features: Of edges, ``[edges, width]`` in the user's order.
    """

    source: Tensor | None = None
    target: Tensor | None = None
    features: Tensor | None = None

    @property
    def width(self) -> int:
        """Values of an edge."""
        return self.first.shape[1]

    @property
    def first(self) -> Tensor:
        """The first of its tensors that is there."""
        return next(t for t in (self.source, self.target, self.features) if t is not None)

    @property
    def has_ends(self) -> bool:
        """Whether there are other summands than features."""
        return self.source is not None or self.target is not None


@dataclasses.dataclass(frozen=True, eq=False)
class Map:
    """``values @ weight.t() + bias``."""

    weight: Tensor
    bias: Tensor | None


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """``values * scale + shift``."""

    scale: Tensor
    shift: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Rectifier:
    """The values where they are positive, else times a slope for each channel."""

    slope: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Normalise:
    """A layer normalisation of an edge's values."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float


@dataclasses.dataclass(frozen=True, eq=False)
class Plus:
    """``values + features_e @ weight.t()``, with features of edges ``[edges, D]`` in the user's order.

    Without a weight the features are added as they are: a residual connection.
    """

    features: Tensor
    weight: Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Times:
    """``values * source_j * features_e``, of these what is there; features of edges may be one number an edge."""

    source: Tensor | None = None
    features: Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Drop:
    """A dropout: ``values * dropout_factor(features_e, *draws)``, drawn again wherever it is computed again.

    Attributes:
        features: A mark for each edge, ``[edges, 1]`` (`pygfuse.ops.dropout_draws.edge_marks`).
        draws: Keys and probabilities, ``[2, width]``.
    """

    features: Tensor
    draws: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Contract:
    """A matrix of each edge's own, made linearly of its values ``h`` and multiplied with its source, but never made.

    ``sum over k of h_k * (source_j @ weight_k.t())``, and ``source_j @ weight_K.t()`` where there is one matrix more
    than values.

    Attributes:
        source: ``[sources, D]``.
        weight: The matrices side by side, ``[width, K * D]`` or ``[width, (K + 1) * D]``.
    """

    source: Tensor
    weight: Tensor

    @staticmethod
    def by(source: Tensor, weight: Tensor, bias: Tensor | None) -> Contract:
        """The product ``source_j @ (weight @ h + bias).view(D, width)``.

        Args:
            source: ``[sources, D]``.
            weight: ``[D * width, K]``.
            bias: ``[D * width]``, or None.
        """
        shape = source.shape[1], weight.shape[0] // source.shape[1], -1
        found = weight.reshape(shape)
        if bias is not None:
            found = torch.cat([found, bias.reshape(shape)], dim=2)
        return Contract(source, found.permute(1, 2, 0).flatten(1))


EdgeStage = Begin | Map | Affine | Rectifier | Normalise | Plus | Times | Drop | Contract | Activation

_KINDS = {kind.__name__: kind for kind in (Begin, Map, Affine, Rectifier, Normalise, Plus, Times, Drop, Contract)}


# fields that hold tensors
_TENSORS: dict[type, tuple[str, ...]] = {
    Begin: ('source', 'target', 'features'),
    Map: ('weight', 'bias'),
    Affine: ('scale', 'shift'),
    Rectifier: ('slope',),
    Normalise: ('weight', 'bias'),
    Plus: ('features', 'weight'),
    Times: ('source', 'features'),
    Drop: ('features', 'draws'),
    Contract: ('source', 'weight'),
    Activation: (),
}


def tensors_of(stages: Sequence[EdgeStage]) -> list[Tensor]:
    """The tensors of all stages, one after another, each stage's in the order of its fields."""
    found = [getattr(stage, name) for stage in stages for name in _TENSORS[type(stage)]]
    return [tensor for tensor in found if tensor is not None]


def written(stages: Sequence[EdgeStage]) -> tuple[str, list[Tensor]]:
    """Stages as a text and the tensors in it, which can go through an operator; features that come twice are one.

    Example:
        >>> features = torch.ones(5, 3)
        >>> text, tensors = written([Begin(features=features), Activation('elu', (1.0, 1.0)), Plus(features)])
        >>> text, len(tensors)
        ('Begin features=0;elu 1.0 1.0;Plus features=0', 1)
    """
    words: list[str] = []
    tensors: list[Tensor] = []
    places: dict[int, int] = {}
    for stage in stages:
        if isinstance(stage, Activation):
            words.append(' '.join([stage.name, *map(repr, stage.numbers)]))
            continue
        said = [type(stage).__name__]
        for field in dataclasses.fields(stage):
            held = getattr(stage, field.name)
            if isinstance(held, Tensor):
                place = places.setdefault(id(held), len(tensors)) if field.name == 'features' else len(tensors)
                if place == len(tensors):
                    tensors.append(held)
                said.append(f'{field.name}={place}')
            elif held is not None:
                said.append(f'{field.name}={held!r}')
        words.append(' '.join(said))
    return ';'.join(words), tensors


def read(text: str, tensors: Sequence[Tensor]) -> list[EdgeStage]:
    """The reverse of `written`.

    Args:
        text: The text.
        tensors: The tensors, no two of which are one object.
    """
    stages: list[EdgeStage] = []
    for word in text.split(';'):
        name, *said = word.split(' ')
        if name not in _KINDS:
            stages.append(Activation(name, tuple(float(number) for number in said)))
            continue
        found = dict.fromkeys(field.name for field in dataclasses.fields(_KINDS[name]))
        for field, place in (item.split('=') for item in said):
            found[field] = float(place) if field == 'eps' else tensors[int(place)]
        stages.append(_KINDS[name](**found))
    return stages


def widths_of(stages: Sequence[EdgeStage]) -> list[int]:
    """Values of an edge after each stage."""
    widths: list[int] = []
    for stage in stages:
        if isinstance(stage, Begin):
            widths.append(stage.width)
        else:
            widths.append(stage.weight.shape[0] if isinstance(stage, (Map, Contract)) else widths[-1])
    return widths


def widest_of(stages: Sequence[EdgeStage]) -> int:
    """The most values of an edge that exist at one time in one stage."""
    return max(1, *widths_of(stages), *(stage.weight.shape[1] for stage in stages if isinstance(stage, Contract)))


def features_of(stages: Sequence[EdgeStage]) -> list[Tensor]:
    """The features of edges among the stages, each once."""
    found = [stage.features for stage in stages if isinstance(stage, (Begin, Plus, Times, Drop))]
    return list({id(tensor): tensor for tensor in found if tensor is not None}.values())


def held_apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, contiguous, each an object of its own though somebody gives one twice."""
    return [t.contiguous().detach() for t in tensors]


def like_operands(tensors: Sequence[Tensor]) -> list[Tensor]:
    """What the gradients of all operands are written into."""
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
