"""What a network does on an edge, stage after stage, and as a text that can go through an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.program.activation import Activation


@dataclasses.dataclass(frozen=True, eq=False)
class Map:
    """``values @ weight.t() + bias``."""

    weight: Tensor
    bias: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """``values * scale + shift``."""

    scale: Tensor
    shift: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Rectifier:
    """The values where they are positive, else times a slope for each channel."""

    slope: Tensor


EdgeStage = Map | Affine | Rectifier | Activation

_FIELDS = {'map': Map, 'affine': Affine, 'rectifier': Rectifier}
_NAMES = {kind: name for name, kind in _FIELDS.items()}


def written(stages: Sequence[EdgeStage]) -> tuple[str, list[Tensor]]:
    """Stages as a text and the tensors in it, which can go through an operator."""
    words: list[str] = []
    tensors: list[Tensor] = []
    for stage in stages:
        if isinstance(stage, Activation):
            words.append(' '.join([stage.name, *map(repr, stage.numbers)]))
        else:
            words.append(_NAMES[type(stage)])
            tensors += tensors_of(stage)
    return ';'.join(words), tensors


def read(text: str, tensors: Sequence[Tensor]) -> list[EdgeStage]:
    """The reverse of `_written`."""
    left = iter(tensors)
    stages: list[EdgeStage] = []
    for word in text.split(';') if text else []:
        name, *numbers = word.split(' ')
        if name in _FIELDS:
            stages.append(_FIELDS[name](*[next(left) for _ in dataclasses.fields(_FIELDS[name])]))
        else:
            stages.append(Activation(name, tuple(float(number) for number in numbers)))
    return stages


def channels_of(source: Tensor, stages: Sequence[EdgeStage]) -> int:
    """Values of an edge after all stages."""
    maps = [stage for stage in stages if isinstance(stage, Map)]
    return maps[-1].weight.shape[0] if maps else source.shape[1]


def tensors_of(stage: EdgeStage) -> list[Tensor]:
    """The tensors in a stage."""
    return [] if isinstance(stage, Activation) else [getattr(stage, f.name) for f in dataclasses.fields(stage)]


def like_operands(source: Tensor, target: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """What the gradients of all operands are written into."""
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (source, target, *tensors)]
