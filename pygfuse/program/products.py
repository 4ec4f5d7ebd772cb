"""Operands of edges given as features times a weight: kept in parts, formed when a walk needs them.

The parts of an operand ``e`` travel as ``e:features`` ``[edges, D]``, ``e:weight`` ``[D, width]`` and, where self-loops
are put in and have features of their own, ``e:loops`` ``[loops, D]``. What autograd keeps is what the user has anyway.
Values of heads ``[edges, H]`` exist only during a walk. Channels are formed edge by edge within it; where they are no
wider than the features, so that the user holds a larger tensor, they exist during a walk, as one matrix product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.row_products import sum_over_rows
from pygfuse.program.program import EdgeProgram
from pygfuse.program.trace import HEADS

FEATURES, WEIGHT, LOOPS = 'features', 'weight', 'loops'


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


Value = Tensor | Product | float | None


def parts_of(operands: Mapping[str, Value]) -> dict[str, Tensor]:
    """The tensors of operands by name, those of products as parts."""
    tensors: dict[str, Tensor] = {}
    for name, value in operands.items():
        if isinstance(value, Product):
            parts = zip((FEATURES, WEIGHT, LOOPS), value, strict=True)
            tensors |= {f'{name}:{part}': tensor for part, tensor in parts if tensor is not None}
        elif isinstance(value, Tensor):
            tensors[name] = value
    return tensors


def operand_of(name: str) -> str:
    """The operand that a tensor is, or is a part of."""
    return name.partition(':')[0]


def is_formed(program: EdgeProgram, tensors: Mapping[str, Tensor], operand: str) -> bool:
    """Whether a walk takes a product multiplied out: values of heads, and rows that are no wider than the features.

    Args:
        program: The program.
        tensors: The tensors by name, with the parts ``[edges, D]`` and ``[D, width]`` of the product.
        operand: Its name.
    """
    features, weight = tensors[f'{operand}:{FEATURES}'], tensors[f'{operand}:{WEIGHT}']
    return program.operands[operand].level == HEADS or features.shape[1] >= weight.shape[1]


def formed(program: EdgeProgram, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a walk takes: features with those of loops, or what is multiplied out."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        operand, _, part = name.partition(':')
        if part == LOOPS:
            continue
        if part == FEATURES:
            loops = tensors.get(f'{operand}:{LOOPS}')
            features = tensor if loops is None else torch.cat([tensor, loops])
            if is_formed(program, tensors, operand):
                found[operand] = features @ tensors[f'{operand}:{WEIGHT}']
            else:
                found[name] = features
        elif not part or not is_formed(program, tensors, operand):
            found[name] = tensor
    return found


def needed_of_walks(program: EdgeProgram, tensors: Mapping[str, Tensor], needed: Collection[str]) -> set[str]:
    """The gradients that a walk has to give for those of `needed`."""
    wanted = set()
    for name in needed:
        operand, _, part = name.partition(':')
        if part and is_formed(program, tensors, operand):
            wanted.add(operand)
        else:
            wanted.add(f'{operand}:{FEATURES}' if part == LOOPS else name)
    return wanted


def gradients_of_parts(
    program: EdgeProgram, tensors: Mapping[str, Tensor], found: Mapping[str, Tensor], needed: Collection[str]
) -> list[Tensor]:
    """The gradients of the tensors `needed`, from those that a walk gave."""
    return [_gradient(program, tensors, found, name) for name in needed]


def _gradient(program: EdgeProgram, tensors: Mapping[str, Tensor], found: Mapping[str, Tensor], name: str) -> Tensor:
    operand, _, part = name.partition(':')
    if not part:
        return found[name]
    rows = tensors[f'{operand}:{FEATURES}'].shape[0]
    if not is_formed(program, tensors, operand):
        if part == WEIGHT:
            return found[name]
        of_features = found[f'{operand}:{FEATURES}']
    elif part == WEIGHT:
        features, loops, grad = tensors[f'{operand}:{FEATURES}'], tensors.get(f'{operand}:{LOOPS}'), found[operand]
        of_weight = sum_over_rows(features, grad[:rows])
        return of_weight if loops is None else of_weight + sum_over_rows(loops, grad[rows:])
    else:
        of_features = found[operand] @ tensors[f'{operand}:{WEIGHT}'].t()
    # copies: an operator's results may not share memory
    return (of_features[:rows] if part == FEATURES else of_features[rows:]).clone()
