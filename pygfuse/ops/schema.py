"""A call as PyTorch's operators take it, tensors and numbers only, and the way back to a `Call`.

The parts of an operand ``e`` that is a product travel as ``e:features``, ``e:weight`` and ``e:loops``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import CustomOpDef

from pygfuse.ops.within_torch.tags import OF_EDGES
from pygfuse.program.products import Product


class Arguments(NamedTuple):
    """A call as operators take it: tensors and numbers in the order of the schema."""

    program: str
    names: str
    tensors: Sequence[Tensor]
    scalar_names: str
    scalars: Sequence[float]
    token: Tensor
    num_sources: int
    num_targets: int
    flow: str
    loops: int | None
    heads: int
    channels: int
    reduce: str
    dropout: float
    seed: Tensor | None

    def operands(self) -> dict[str, Tensor | Product]:
        """The operands that are tensors, and the products."""
        return with_parts(self.names.split(','), self.tensors)

    def numbers(self) -> dict[str, float]:
        """The scalars by the names of operands."""
        names = self.scalar_names.split(',') if self.scalar_names else ()
        return dict(zip(names, self.scalars, strict=True))


SCHEMA = (
    'str program, str names, Tensor[] tensors, str scalar_names, float[] scalars, '
    'Tensor token, SymInt num_sources, SymInt num_targets, str flow, SymInt? loops, '
    'SymInt heads, SymInt channels, str reduce, float dropout, Tensor? seed'
)


def operator(name: str, more: str, result: str) -> Callable[[Callable], CustomOpDef]:
    """Makes a function of the arguments of a call, and of `more`, an operator."""
    schema = f'({SCHEMA}, {more}) -> {result}'
    return torch.library.custom_op(f'pygfuse::{name}', mutates_args=(), schema=schema, tags=OF_EDGES)


def parted(arguments: Sequence) -> tuple[Arguments, Sequence]:
    """An operator's arguments: those of a call, and the rest."""
    count = len(Arguments._fields)
    return Arguments(*arguments[:count]), arguments[count:]


def flattened(operands: Mapping[str, Tensor | Product | None]) -> dict[str, Tensor]:
    """Tensors by name, those of products as parts; what is None is left out."""
    found: dict[str, Tensor | None] = {}
    for name, value in operands.items():
        if isinstance(value, Product):
            found |= {f'{name}:{part}': tensor for part, tensor in value._asdict().items()}
        else:
            found[name] = value
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def with_parts(names: Collection[str], values: Collection) -> dict[str, Tensor | Product]:
    """The reverse of `flattened`, of tensors or whatever belongs to them."""
    found: dict = {}
    for name, value in zip(names, values, strict=True):
        operand, _, part = name.partition(':')
        if part:
            found[operand] = found.get(operand, Product(None, None))._replace(**{part: value})
        else:
            found[operand] = value
    return found
