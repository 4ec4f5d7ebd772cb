"""What stands for the arguments of walks along few edges while the lines that pack them are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse.codegen.arguments import Draws, Row
from pygfuse.codegen.packing import integers_that_stand_for
from pygfuse.cpu.operands import gatherer_of
from pygfuse.cpu.walks.listed import ListedEdges
from pygfuse.program.products import Product
from pygfuse.program.program import TARGET, BoundProgram

# of a product, as names of tensors have them behind a colon
PARTS = Product._fields[:2]
# how the names of rows begin
ROWS = 'tensor_', 'out', 'statistics', 'grad', 'of_messages', 'found_'


class Given:
    """What stands for the arguments of a call while their order is written out.

    Args:
        names, numbers: The names of the tensors and of the numbers that calls bring.
        dtype: The type of the tensors.
        draws: What dropout draws in one of the calls.
        there: Which of the tensors have values.

    Attributes:
        named: What stands for an argument, by its name.
        of_edges, of_operands: The names in the order in which calls bring them.
    """

    of_edges = 'edge_index', 'target_row', 'num_targets', 'num_sources', 'loops', 'num_walked'

    def __init__(
        self, names: Sequence[str], numbers: Sequence[str], dtype: torch.dtype, draws: Draws, there: Sequence[bool]
    ) -> None:
        self.named: dict[str, object] = {}
        of_edges = integers_that_stand_for(self.of_edges[1:])
        self._edges = [self.of('edge_index', torch.int64), *(self._keep(*pair) for pair in of_edges.items())]
        tensors = [self.of(f'tensor_{k}', dtype) for k in range(len(names))]
        for k, is_there in enumerate(there):
            if not is_there:
                # nobody reads it
                self.absent(f'tensor_{k}')
        self._tensors = dict(zip(names, tensors, strict=True))
        self._numbers = {name: self._keep(f'number_{k}', float(f'{k}.5')) for k, name in enumerate(numbers)}
        drawn = zip(draws._fields, draws, strict=True)
        self._draws = Draws(*[None if value is None else self._keep(name, _like(value)) for name, value in drawn])
        self.of_operands = (
            *draws._fields,
            *[f'number_{k}' for k in range(len(numbers))],
            *[f'tensor_{k}' for k in range(len(names))],
        )

    def of(self, name: str, dtype: torch.dtype) -> Tensor:
        """A tensor that stands for one of this name."""
        return self._keep(name, torch.empty(0, dtype=dtype))

    def absent(self, name: str) -> None:
        """An argument that is given and not packed."""
        self.named.pop(name, None)

    @property
    def rows(self) -> list[str]:
        """The names of rows of nodes and edges, of which no walk reads the length; those of products are counted."""
        parts = {f'tensor_{k}' for k, name in enumerate(self._tensors) if ':' in name}
        return [name for name in self.named if name.startswith(ROWS) and name not in parts]

    def arguments(self, bound: BoundProgram, row: Row, tiles: Tensor) -> tuple:
        """The first arguments of both walks.

        Args:
            bound: The program.
            row: The sizes of a row.
            tiles: How it is cut for registers.
        """
        plain, parts = {}, {}
        for name, tensor in self._tensors.items():
            operand, _, part = name.partition(':')
            if part:
                parts.setdefault(operand, {})[part] = tensor
            else:
                plain[name] = tensor
        products = {name: Product(*[found[part] for part in PARTS]) for name, found in parts.items()}
        operands = gatherer_of(bound, TARGET)(plain, products, self._numbers)
        return ListedEdges(tiles, *self._edges), operands, row, self._draws

    def _keep(self, name: str, value: Any) -> Any:
        self.named[name] = value
        return value


def _like(number: float) -> float:
    """Another number of the type of one, an object of its own."""
    return float('0.25') if isinstance(number, float) else int(f'{2**41}')
