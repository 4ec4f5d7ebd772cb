"""Operands, as layers give them, bound to a program and to a graph: what the backends are asked to compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from pygfuse.ops.walked_products import gradient_of
from pygfuse.program.products import Product
from pygfuse.program.program import BoundProgram


def is_needed(flags: bool | Product) -> bool:
    """Whether an operand, or any part of it, needs a gradient."""
    return any(flags) if isinstance(flags, Product) else flags


class Needed(NamedTuple):
    """Which gradients a call needs.

    Attributes:
        flags: By operand, whether it, or which of its parts, needs one.
        names: The operands that need one.
        features: The products that walks take in parts and whose features need one.
    """

    flags: Mapping[str, bool | Product]
    names: frozenset[str]
    features: tuple[str, ...]


def needed_of(bound: BoundProgram, flags: Mapping[str, bool | Product]) -> Needed:
    """What follows from which operands, and which of their parts, need a gradient."""
    names = frozenset(name for name, flag in flags.items() if is_needed(flag))
    return Needed(flags, names, tuple(_walked_features(bound, flags)))


def _walked_features(bound: BoundProgram, needed: Mapping[str, bool | Product]) -> list[str]:
    """The products that walks take in parts and whose features need a gradient."""
    return [name for name in bound.products if name in needed and (needed[name].features or needed[name].loops)]


def gradients_of(
    operands: Mapping[str, Tensor | Product],
    found: Mapping[str, Tensor | Product],
    needed: Mapping[str, bool | Product],
) -> dict[str, Tensor | Product]:
    """The gradients of operands, from those of what walks took; None where none is needed."""
    gradients = {}
    for name, flags in needed.items():
        if is_needed(flags):
            value = operands[name]
            is_product = isinstance(value, Product)
            gradients[name] = gradient_of(value, found[name], flags) if is_product else found[name]
    return gradients
