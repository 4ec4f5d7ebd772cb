"""Operands that are other functions of rows and parameters than linear maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from pygfuse.program.program import EDGE

# the rows of a side, or one of the tensors that are given for it by its place
Source = str | int


class Derived(NamedTuple):
    """Operands that are functions of rows and of tensors that a layer gives.

    Where they are functions of rows of edges, backward computes them again: nothing of edges is kept.

    Attributes:
        reads: What each operand is a function of, by its name.
        compute: ``compute(rows, given)``: the operands in their order, by operators of torch that autograd follows.
        adjoint: ``adjoint(found, operands, rows, given)``: by what they are of, the gradients of rows and of what is
            given, from those that were found of operands by name.
    """

    reads: Mapping[str, tuple[Source, ...]]
    compute: Callable[[Mapping[str, Tensor], Sequence[Tensor]], Sequence[Tensor]]
    adjoint: Callable[
        [Mapping[str, Tensor], Mapping[str, Tensor], Mapping[str, Tensor], Sequence[Tensor]], Mapping[Source, Tensor]
    ]

    @property
    def is_remade(self) -> bool:
        """Whether backward computes them again."""
        return any(EDGE in parts for parts in self.reads.values())

    def needed(self, sides: Mapping[str, bool], given: Sequence[bool]) -> list[bool]:
        """Which operands need a gradient, where it is said which rows and which of what is given do."""
        return [
            any(sides.get(part, False) if isinstance(part, str) else given[part] for part in parts)
            for parts in self.reads.values()
        ]
