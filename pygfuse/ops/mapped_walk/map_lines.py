"""Lines with products of the rows of sides and the weights of maps, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from pygfuse.codegen.product_list import Matrix
from pygfuse.ops.mapped_walk.form import Part
from pygfuse.ops.nodes.product_lines import ProductLines, contiguous, matrix
from pygfuse.program.program import EDGE, SOURCE, TARGET

SIDES = (SOURCE, TARGET, EDGE)
# the gradient that a call's adjoint is given
GIVEN = 'grad_of_result'
# what stands for a side where the result is mapped: its rows
SUMMED = 'summed'


class Shape(NamedTuple):
    """What lines depend on beside a form.

    Attributes:
        same: Whether sources and targets are one tensor.
        biased: Whether each map has a bias.
        turned: Whether the weight of each is ``[in, out]``.
        once: Whether rows of targets are added to the result, once.
        added: Whether they are added any other number of times.
        multiplies: Whether the walk multiplies rows of edges.
    """

    same: bool
    biased: tuple[bool, ...]
    turned: tuple[bool, ...]
    once: bool
    added: bool
    multiplies: bool


class MapLines(ProductLines):
    """Lines with products of the rows of sides and the weights of maps, whose sizes are read once.

    The number of targets has the name ``num_targets``.

    Args:
        shape: What lines depend on beside a form.
        of: The type and device of all tensors.
        width: Of the rows that are `SUMMED`.

    Attributes:
        counts: The numbers of rows of gradients, by their names.
    """

    def __init__(self, shape: Shape, of: tuple[torch.dtype, torch.device], width: int) -> None:
        super().__init__('source', of)
        self.shape, self._width = shape, width
        self.counts: dict[str, str] = {}

    def add_up(
        self,
        result: str,
        parts: Sequence[Part],
        width: str | int,
        begun: str | None = None,
        in_place: bool = False,
        room: str | None = None,
    ) -> None:
        """Sets a name to the sum of parts, and of rows of targets that are there.

        Args:
            result: The name.
            parts: The parts.
            width: Of the rows.
            begun: The name of the rows that are there.
            in_place: Whether the sum is written over these.
            room: Where memory is reserved for a sum that is new and read by launches alone; None for a tensor.
        """
        there = [part for part in parts if is_there(part, self.shape)]
        maps = [part for part in there if part.side is not None and part.linear is not None]
        terms = [] if begun is None else [begun]
        terms += [rows_of(part.side, self.shape) for part in there if part.linear is None]
        biases = [f'b{part.linear}' for part in there if part.side is None]
        if not maps and not biases and (len(terms) != 2 or begun is None):
            write = self.prepare if begun is None else self.say
            write(f'{result} = {" + ".join(terms)}' + ('.contiguous()' if len(terms) == 1 else ''))
            return
        count = 'num_targets' if begun is not None else self.rows(there[0].side)[1]
        if in_place:
            self.rename(result, begun)
        elif room is not None and len(terms) < 2:
            self.reserve(result, f'{count} * {width}', room)
        else:
            self.prepare(f'{result} = source.new_empty({count}, {width})')
        out = matrix(result, width)
        addend = None
        if not maps and not biases:
            self.add_two(result, terms, (count, width))
            return
        if terms:
            addend = self.row(terms.pop(0), width) if begun is not None else self._term(terms.pop(0), width)
        for part in maps:
            rows, count, _ = self.rows(part.side)
            weight, outputs, inputs = self.weight(part)
            self.check(part, width)
            bias = self.bias(part) if has_bias(part, self.shape) else 0
            if bias == 0 and biases:
                bias = self._alone(biases.pop(), width)
            self.product((count, inputs, outputs), rows, weight.turned, out, bias, addend)
            addend = out
        for name in biases:
            self.product((count, 0, width), None, None, out, self._alone(name, width), addend)
            addend = out
        for name in terms:
            self.say(f'{result}.add_({name})')

    def add_two(self, result: str, terms: Sequence[str], size: tuple[str, str | int]) -> None:
        """Writes the sum of rows of a size by their names, of which the result's may be one."""
        rows, width = size
        of_terms = [self._term(name, width) if name in (*SIDES, GIVEN) else matrix(name, width) for name in terms]
        self.sum_of_two(rows, width, *of_terms, matrix(result, width))

    def check(self, part: Part, width: int) -> None:
        """Writes a check that a part maps rows of its side to rows of a width."""
        self.rows(part.side)
        self.weight(part)
        name, outputs, inputs = (f'{text}{part.linear}' for text in ('w', 'outputs_', 'inputs_'))
        rows = rows_of(part.side, self.shape)
        taken, given = part.columns or (0, inputs), part.outputs or (0, outputs)
        conditions = [f'{taken[1]} == {self.size_of(part.side)[1]}', f'{given[1]} == {width}']
        conditions += [] if part.columns is None else [f'{inputs} >= {sum(taken)}']
        conditions += [] if part.outputs is None else [f'{outputs} >= {sum(given)}']
        names = [name] if part.side == SUMMED else [rows, name]
        if has_bias(part, self.shape):
            conditions.append(f'b{part.linear}.numel() == {outputs}')
            names.append(f'b{part.linear}')
        self.expect(conditions, *names)

    def _alone(self, name: str, width: int) -> str:
        """The address of a bias that is a part alone."""
        self.expect([f'{name}.numel() == {width}'], name)
        return self.vector(name)

    def _term(self, name: str, width: int) -> Matrix:
        """Rows that are added as they are."""
        self.expect([f'{name}.shape[1] == {width}'], name)
        return self.row(name, width)

    def size_of(self, side: str) -> tuple[str, str | int]:
        """The number of rows of a side and their width."""
        return ('num_targets', self._width) if side == SUMMED else self.rows(side)[1:]

    def rows(self, side: str) -> tuple[Matrix, str, str | int]:
        """The rows of a side, their number and their width."""
        if side == SUMMED:
            return matrix(SUMMED, self._width), *self.size_of(side)
        name = rows_of(side, self.shape)
        count = {'source': 'num_sources', 'target': 'num_targets'}.get(name, 'rows_of_edge')
        width = f'width_of_{name}'
        self.once(
            contiguous([name]), f'rows_of_edge, {width} = edge.shape' if side == EDGE else f'{width} = {name}.shape[1]'
        )
        return matrix(name, width), count, width

    def row(self, name: str, width: str | int) -> Matrix:
        """Rows of a width by their name."""
        if not self.is_reserved(name):
            self.once(contiguous([name]))
        return matrix(name, width)

    def vector(self, name: str, first: str | int = 0) -> str:
        """The address of a bias, or of a part of it."""
        self.once(contiguous([name]))
        return matrix(name, 1, self._bytes(first)).address

    def weight(self, part: Part, name: str | None = None) -> tuple[Matrix, str | int, str | int]:
        """What of a weight, or of one like it, a part is mapped by, ``[outputs, inputs]``, and how many these are."""
        own, outputs, inputs = (f'{text}{part.linear}' for text in ('w', 'outputs_', 'inputs_'))
        is_turned = self.shape.turned[part.linear]
        names = (inputs, outputs) if is_turned else (outputs, inputs)
        self.once(contiguous([own]), f'{", ".join(names)} = {own}.shape')
        blocks = part.outputs or (0, outputs), part.columns or (0, inputs)
        step, (row, column) = names[1], (block[0] for block in (reversed(blocks) if is_turned else blocks))
        found = matrix(name or own, step, self._bytes(f'{row} * {step} + {column}' if row else column))
        return found.turned if is_turned else found, blocks[0][1], blocks[1][1]

    def bias(self, part: Part) -> str:
        """The same of a bias: its address."""
        return self.vector(f'b{part.linear}', 0 if part.outputs is None else part.outputs[0])

    def part_of_vector(self, name: str, part: Part) -> tuple[Matrix, str | int]:
        """What of a vector like a bias, which is contiguous, is a part's, and its length."""
        first, length = part.outputs or (0, self._length_of(part))
        return matrix(name, 0, self._bytes(first)), length

    def _length_of(self, part: Part) -> str | int:
        """The length of the bias of a part's map."""
        if part.side is not None:
            return self.weight(part)[1]
        # len() of a tensor is a function of Python
        self.once(f'length_of_{part.linear} = b{part.linear}.numel()')
        return f'length_of_{part.linear}'

    def _bytes(self, numbers: str | int) -> str | int:
        return 0 if numbers == 0 else f'({numbers}) * {self._number_bytes}'


def rows_of(side: str, shape: Shape) -> str:
    """The name of the rows of a side."""
    return 'source' if side == TARGET and shape.same else side


def has_bias(part: Part, shape: Shape) -> bool:
    """Whether the bias of its map is added to a part."""
    return part.linear is not None and part.biased and shape.biased[part.linear]


def is_there(part: Part, shape: Shape) -> bool:
    """Whether a part is something: not the bias of a map that has none."""
    return part.side is not None or shape.biased[part.linear]


def part_of(name: str, part: Part, shape: Shape) -> str:
    """A weight, or one like it, as far as a part is mapped by it, ``[out, in]``."""
    turned = '.t()' if shape.turned[part.linear] else ''
    outputs = '' if part.outputs is None else '.narrow(0, {}, {})'.format(*part.outputs)
    columns = '' if part.columns is None else '.narrow(1, {}, {})'.format(*part.columns)
    return name + turned + outputs + columns
