"""Operands of edges given as features times a weight: kept in parts, formed when a walk needs them.

What autograd keeps are the features and the weight, which the user has anyway.
Values of heads ``[edges, H]`` exist only during a walk. Channels are formed edge by edge within it; where they are no
wider than the features, so that the user holds a larger tensor, they exist during a walk, as one matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.row_products import sum_over_rows
from pygfuse.program.program import EdgeProgram
from pygfuse.program.trace import HEADS


class Product(NamedTuple):
    """Features of edges times a weight.

    Attributes:
        features: ``[edges, D]``.
        weight: ``[D, H]`` for an operand of heads, ``[D, H * C]`` for one of channels.
        loops: Features of self-loops that were put in, ``[loops, D]``, or None.

    Example:
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


def is_formed(program: EdgeProgram, name: str, product: Product) -> bool:
    """Whether a walk takes a product multiplied out: values of heads, and rows that are no wider than the features."""
    features, weight = product.features, product.weight
    return program.operands[name].level == HEADS or features.shape[1] >= weight.shape[1]


def as_walked(program: EdgeProgram, name: str, product: Product) -> Tensor | Product:
    """A product as a walk takes it: multiplied out, or its features with those of loops."""
    features, weight, loops = product
    features = features if loops is None else torch.cat([features, loops])
    return features @ weight if is_formed(program, name, product) else Product(features, weight)


def gradient_of(product: Product, found: Tensor | Product, needed: Product) -> Product:
    """The gradients of a product's parts, from what a walk gave for `as_walked`.

    Args:
        product: The product.
        found: The gradient of its values, or of its features (None if nobody needs it) and its weight.
        needed: Which parts need a gradient; the others have None.
    """
    rows = product.features.shape[0]
    if isinstance(found, Product):
        of_features, of_weight = found.features, found.weight
    else:
        of_features = found @ product.weight.t() if needed.features or needed.loops else None
        of_weight = _gradient_of_weight(product, found) if needed.weight else None
    # copies: the gradients of an operator's arguments may not share memory
    return Product(
        of_features[:rows].clone() if needed.features else None,
        of_weight if needed.weight else None,
        of_features[rows:].clone() if needed.loops else None,
    )


def _gradient_of_weight(product: Product, grad: Tensor) -> Tensor:
    rows = product.features.shape[0]
    found = sum_over_rows(product.features, grad[:rows])
    return found if product.loops is None else found + sum_over_rows(product.loops, grad[rows:])
