"""Operands of edges given as features times a weight: kept in parts, formed when a walk needs them.

What autograd keeps are the features and the weight, which the user has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor


class Product(NamedTuple):
    """Features of edges times a weight.

    Attributes:
        features: ``[edges, D]``.
        weight: ``[D, H]`` for an operand of heads, ``[D, H * C]`` for one of channels.
        loops: Features of self-loops that were put in, ``[loops, D]``, or None.

    Example:
        >>> import torch
        >>> from pygfuse.ops import Edges, aggregate
        >>> from pygfuse.program.library.gine import GINE
        >>> edges, x = Edges(torch.tensor([[0, 1], [1, 1]]), 2, 2), torch.zeros(2, 1, 2)
        >>> edge = Product(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0, 10.0]]))
        >>> aggregate(GINE, edges, {'x': x, 'edge': edge}, heads=1, channels=2).flatten(1)
        tensor([[ 0.,  0.],
                [ 3., 30.]])
    """

    features: Tensor
    weight: Tensor
    loops: Tensor | None = None


OperandValue = Tensor | Product | float | None


def tensors_in(operands: Mapping[str, OperandValue]) -> list[Tensor]:
    """The tensors of operands, those in products too."""
    found: list[Tensor] = []
    for value in operands.values():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, Product):
            found += (part for part in value if part is not None)
    return found
