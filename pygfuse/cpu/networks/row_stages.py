"""What kernels on blocks of rows are written of: products, activations, and the adjoints of both, block by block."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

import torch

from pygfuse.cpu.networks.activation_tangents import texts_of
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import pointer_at
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.edge_products import TOGETHER, outer_sums, repeated
from pygfuse.cpu.walks.inlining import compiled
from pygfuse.program.activation import Activation

# rows that go through all stages together, so that they stay in a core's second cache
BLOCK = 16 * TOGETHER
ACTIVATION_REGISTERS = 4


class RowText:
    """The text of what is done with rows, as it is written line after line.

    Args:
        dtype: Of the rows.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._lines: list[str] = []
        self._scope: dict[str, object] = {'pointer_at': pointer_at}

    def say(self, text: str, indent: int = 1, **scope: object) -> None:
        """Writes lines as they are.

        Args:
            text: The lines.
            indent: How deep they are.
            scope: What names in them stand for.
        """
        self._scope |= scope
        self._lines += textwrap.indent(textwrap.dedent(text), '    ' * indent).splitlines()

    def call(
        self, width: int, registers: int, function: Callable[[Layout], Function], *calls: str, indent: int = 1
    ) -> None:
        """Calls a function for each block of a row's channels, whose first one is ``column``.

        Args:
            width: Of a row.
            registers: How many a block takes.
            function: Gives the function of a block.
            calls: The arguments of each call.
            indent: How deep the calls are.
        """
        for layout, starts in blocks(self._dtype, width, registers):
            name = f'work{len(self._scope)}'
            first, last = int(starts[0]), int(starts[-1])
            self.say(
                f'for column in range({first}, {last + 1}, {layout.channels}):', indent, **{name: function(layout)}
            )
            for arguments in calls:
                self.say(f'{name}({arguments})', indent + 1)

    def function(self, parameters: str) -> Function:
        """``run(...)``: all that was written."""
        return compiled('\n'.join([f'def run({parameters}):', *self._lines, '    return']), **self._scope)


def product(block: Layout) -> Function:
    """``multiply(source, first, last, size, weight, bias, width, column, out)``.

    Writes ``source[q] @ weight + bias`` for the rows from `first` to `last`, the block's channels. Several rows are
    multiplied side by side, so that each row of the weight that is read serves them all.
    """
    text = [
        'def multiply(source, first, last, size, weight, bias, width, column, out):',
        '    if out is None:',
        '        return',
        f'    for q in range(first, last, {TOGETHER}):',
        # the last row, where there are no more
        *repeated('        q# = min(q + #, last - 1)'),
        *repeated('        row# = pointer_at(source, q# * size)'),
        '        begun = row_full(0.0)',
        '        if bias is not None:',
        '            begun = load_row(bias, column)',
        *repeated('        sum# = begun'),
        '        for d in range(size):',
        '            values = load_row(weight, d * width + column)',
        *repeated('            sum# = sum# + row#[d] * values'),
        *repeated('        store_row(out, q# * width + column, sum#)'),
        '    return',
    ]
    return _of(text, block)


def outer(block: Layout) -> Function:
    """``outer(first, last, size, width, column, values, grad, sums, part, nothing)``.

    Adds ``grad[first:last].t() @ values[first:last]`` to this part's ``sums``, the block's channels of `values`.
    """
    text = [
        'def outer(first, last, size, width, column, values, grad, sums, part, nothing):',
        '    if sums is not None:',
        '        some, base = pointer_at(values, first * size), part * size * width + column',
        '        add((nothing, grad), None, first, last - first, some, size, column, sums, base, width, size)',
        '    return',
    ]
    return _of(text, block, add=outer_sums(block))


def totals(block: Layout) -> Function:
    """``totals(first, last, width, column, grad, sums, part)``: adds the sum of rows to this part's ``sums``."""
    text = [
        'def totals(first, last, width, column, grad, sums, part):',
        '    if sums is not None:',
        '        total = load_row(sums, part * width + column)',
        '        for q in range(first, last):',
        '            total = total + load_row(grad, q * width + column)',
        '        store_row(sums, part * width + column, total)',
        '    return',
    ]
    return _of(text, block)


def application(act: Activation, with_tangents: bool, block: Layout) -> Function:
    """``apply(first, last, rows, width, column, values, out)``."""
    text = [
        'def apply(first, last, rows, width, column, values, out):',
        '    for q in range(first, last):',
        '        z = load_row(values, q * width + column)',
        '        store_row(out, q * width + column, function(z))',
    ]
    if with_tangents:
        text += [
            '        behind = (rows + q) * width + column',
            '        store_row(out, behind, tangent(load_row(values, behind), z))',
        ]
    return _of([*text, '    return'], block, **_functions(act))


def adjoint_of(act: Activation, with_tangents: bool, block: Layout) -> Function:
    """``back(first, last, rows, width, column, values, grad)``: gradients after an activation become those before."""
    text = [
        'def back(first, last, rows, width, column, values, grad):',
        '    for q in range(first, last):',
        '        at = q * width + column',
        '        z = load_row(values, at)',
        '        of_value = adjoint(load_row(grad, at), z)[0][0]',
    ]
    if with_tangents:
        text += [
            '        behind = (rows + q) * width + column',
            '        of_both = adjoint_of_tangent(load_row(grad, behind), load_row(values, behind), z)[0]',
            '        store_row(grad, at, of_value + of_both[1])',
            '        store_row(grad, behind, of_both[0])',
        ]
    else:
        text.append('        store_row(grad, at, of_value)')
    return _of([*text, '    return'], block, **_functions(act))


def _functions(act: Activation) -> dict[str, Function]:
    names = 'function', 'tangent', 'adjoint', 'adjoint_of_tangent'
    return {name: compiled(text) for name, text in zip(names, texts_of(act), strict=True)}


def _of(text: Sequence[str], block: Layout, **functions: Function) -> Function:
    scope = {name: getattr(block, name) for name in ('load_row', 'store_row', 'row_full')}
    return compiled('\n'.join(text), pointer_at=pointer_at, **scope, **functions)
