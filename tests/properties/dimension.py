"""What a case is made of: a value of each dimension, and one number that stands for all of them."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LAYER = 'layer'
# how many cases of the same values there are, which differ in their random numbers
SEEDS = 2**16


@dataclasses.dataclass(frozen=True, eq=False)
class Dimension:
    """Something in which two cases may differ.

    Attributes:
        name: Of the dimension; options of a layer's constructor are named ``Layer.option``.
        values: What its values stand for, by name; the first is the usual one.
        weights: How often values are drawn that are not drawn as often as others, which have a weight of 1.
        layer: The only layer that it belongs to, or None.
    """

    name: str
    values: Mapping[str, Any]
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    layer: str | None = None

    def draw(self, source: random.Random) -> str:
        names, weights = self._cumulative
        return names[bisect.bisect_right(weights, source.random() * weights[-1], 0, len(names) - 1)]

    @functools.cached_property
    def _cumulative(self) -> tuple[list[str], list[float]]:
        names = list(self.values)
        return names, list(itertools.accumulate(self.weights.get(name, 1.0) for name in names))


@dataclasses.dataclass(frozen=True)
class Case:
    """One value of each dimension, by name, and the seed of its random numbers."""

    values: Mapping[str, str]
    seed: int

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def __str__(self) -> str:
        return ', '.join(f'{name}={value}' for name, value in self.values.items()) + f', seed={self.seed}'


class Space:
    """All cases.

    Args:
        dimensions: The first is that of the layers.
    """

    def __init__(self, dimensions: Iterable[Dimension]) -> None:
        self.dimensions = {dimension.name: dimension for dimension in dimensions}
        assert next(iter(self.dimensions)) == LAYER
        self._short = {name: name.rpartition('.')[2] for name in self.dimensions}
        self._of_layer = {
            layer: [found for found in self.dimensions.values() if found.layer in (None, layer)]
            for layer in self.dimensions[LAYER].values
        }

    def of_layer(self, layer: str) -> Sequence[Dimension]:
        """The dimensions of a layer's cases."""
        return self._of_layer[layer]

    def draw(self, source: random.Random, fixed: Mapping[str, str] | None = None) -> Case:
        """A random case with some values given, possible or not."""
        fixed = fixed or {}
        layers = {self.dimensions[name].layer for name in fixed} - {None}
        layer = fixed.get(LAYER) or (layers.pop() if layers else self.dimensions[LAYER].draw(source))
        given = {**fixed, LAYER: layer}
        values = {
            dimension.name: given.get(dimension.name) or dimension.draw(source) for dimension in self._of_layer[layer]
        }
        return Case(values, source.randrange(SEEDS))

    def meaning(self, case: Case) -> dict[str, Any]:
        """What a case's values stand for; options of the layer under their own names."""
        return {self._short[name]: self.dimensions[name].values[value] for name, value in case.values.items()}

    def number(self, case: Case) -> int:
        """The number of a case."""
        number = case.seed
        for dimension in reversed(self._of_layer[case[LAYER]]):
            names = list(dimension.values)
            number = number * len(names) + names.index(case[dimension.name])
        return number

    def case(self, number: int) -> Case:
        """The case of a number."""
        layers = list(self.dimensions[LAYER].values)
        values = {}
        for dimension in self._of_layer[layers[number % len(layers)]]:
            number, place = divmod(number, len(dimension.values))
            values[dimension.name] = list(dimension.values)[place]
        return Case(values, number)
