"""The operands of a call as layers give them, taken apart and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from pygfuse.ops.edges import Edges
from pygfuse.ops.schema import Arguments
from pygfuse.ops.walked_products import is_formed
from pygfuse.program.products import OperandValue, Product
from pygfuse.program.program import PARAMETER, SOURCE, TARGET, EdgeProgram
from pygfuse.program.trace import CHANNELS, HEADS


class Given(NamedTuple):
    """The operands of a call.

    Attributes:
        program: The program.
        names: The names of the tensors, those of products as parts (``'edge:features'``).
        tensors: The tensors.
        in_parts: The names of products that walks take in parts.
        numbers: The scalars by name.
    """

    program: EdgeProgram
    names: tuple[str, ...]
    tensors: Sequence[Tensor]
    in_parts: tuple[str, ...]
    numbers: dict[str, float]

    def arguments(
        self, edges: Edges, heads: int, channels: int, reduce: str, dropout: float, seed: Tensor | None
    ) -> Arguments:
        """The call as operators take it."""
        return Arguments(
            *(self.program.name, ','.join(self.names), [tensor.flatten(1) for tensor in self.tensors]),
            *(','.join(self.numbers), list(self.numbers.values())),
            *(edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops),
            *(heads, channels, reduce, dropout, seed),
        )


def given_of(program: EdgeProgram, operands: Mapping[str, OperandValue]) -> Given:
    """The operands that are there, taken apart."""
    names: list[str] = []
    tensors: list[Tensor] = []
    in_parts: list[str] = []
    numbers: dict[str, float] = {}
    for name, value in operands.items():
        if isinstance(value, Tensor):
            names.append(name)
            tensors.append(value)
        elif isinstance(value, Product):
            for field, part in zip(Product._fields, value, strict=True):
                if part is not None:
                    names.append(f'{name}:{field}')
                    tensors.append(part)
            if not is_formed(program, name, value):
                in_parts.append(name)
        elif isinstance(value, (int, float)):
            numbers[name] = float(value)
    return Given(program, tuple(names), tensors, tuple(in_parts), numbers)


class Expected(NamedTuple):
    """What a tensor has to be.

    Attributes:
        place: Its place among the tensors.
        name: What messages call it.
        side: The side whose nodes it has rows for; None where that is not known yet.
        width: How many values a row holds.
    """

    place: int
    name: str
    side: str | None
    width: int


def expected_of(program: EdgeProgram, names: Sequence[str], heads: int, channels: int) -> list[Expected]:
    """What the tensors `names` have to be; of the parts of a product, the weight alone has a width that is known."""
    widths, expected = {CHANNELS: heads * channels, HEADS: heads}, []
    for place, name in enumerate(names):
        operand_name, _, part = name.partition(':')
        operand = program.operands[operand_name]
        if part in ('', 'weight'):
            side = None if part else operand.side
            expected.append(Expected(place, name.replace(':', '.'), side, widths.get(operand.level, 1)))
    return expected


def check_shapes(expected: Sequence[Expected], tensors: Sequence[Tensor], edges: Edges) -> None:
    """Raises a ValueError that names a tensor of another shape than expected."""
    for place, name, side, width in expected:
        tensor = tensors[place]
        have = rows = tensor.shape[0]
        if side == SOURCE:
            rows = edges.num_sources
        elif side == TARGET:
            rows = edges.num_targets
        elif side == PARAMETER:
            rows = 1
        if have != rows or tensor.numel() != have * width:
            raise ValueError(
                f"Expected '{name}' to hold {width} values for each of {rows} {side or 'feature'} rows "
                f'(got shape {list(tensor.shape)})'
            )


def check_types(names: Sequence[str], tensors: Sequence[Tensor], may_differ: bool) -> None:
    """Raises a ValueError that names a tensor of another device, or, unless types may differ, of another type."""
    if len(tensors) == 1:
        return
    device, dtype = tensors[0].device, tensors[0].dtype
    for tensor, name in zip(tensors, names, strict=True):
        if tensor.device != device:
            raise ValueError(f"Expected '{name}' on the device of '{names[0]}', {device} (got {tensor.device})")
        if tensor.dtype != dtype and not may_differ:
            raise ValueError(f"Expected '{name}' of the type of '{names[0]}', {dtype} (got {tensor.dtype})")
