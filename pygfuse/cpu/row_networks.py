"""Linear maps and activations of a chunk's rows in one kernel: a thread takes a block of rows through all of them.

Between two stages a block's values lie in the thread's own caches, and a chunk costs one launch forward and one
backward, however many stages there are. Values come alone, ``[rows, width]``, or with tangents behind them, ``[2, rows,
width]``. Gradients of weights are summed apart for each part of a chunk: the parts do not depend on the number of
threads.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pygfuse.cpu import simd
from pygfuse.cpu.activation_tangents import has_tangent, texts_of
from pygfuse.cpu.edge_products import TOGETHER, outer_sums, registers_of_block, repeated
from pygfuse.cpu.inlining import compiled
from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.memory import pointer_at
from pygfuse.cpu.row_blocks import blocks
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.walked_edges import nothing
from pygfuse.program.activation import Activation

# of a chunk: each sums gradients of weights apart
ROW_PARTS = 16
# rows that go through all stages together, so that they stay in a core's second cache
_BLOCK = 16 * TOGETHER
# a wider map is worth a library's product by itself, and its weight's gradient copies for each part
WIDEST = 256
_ACTIVATION_REGISTERS = 4
# where a value is NaN, torch's derivatives are other numbers than those of the programs
_LEFT_TO_TORCH = ('relu', 'elu')


@dataclasses.dataclass(frozen=True)
class LinearMap:
    """A linear map, by the widths of values before and after it."""

    before: int
    after: int


@dataclasses.dataclass(frozen=True)
class Applied:
    """An activation of values of a width."""

    activation: Activation
    width: int


@dataclasses.dataclass(frozen=True)
class RowNetwork:
    """Stages that take each row by itself.

    Attributes:
        stages: Linear maps and activations.
        dtype: Of all tensors.
        with_tangents: Whether tangents lie behind values.
        values_alone: With tangents, whether the gradients of what is before the first stage, a map, are those of values
            alone: nobody wants their tangents'.
    """

    stages: tuple[LinearMap | Applied, ...]
    dtype: torch.dtype
    with_tangents: bool = False
    values_alone: bool = False

    # looked for once, as a search by all stages takes as long as a launch
    @functools.cached_property
    def _forward(self) -> Kernel:
        return _kernel(_forward_body, self)

    @functools.cached_property
    def _backward(self) -> Kernel:
        return _kernel(_backward_body, self)

    def is_taken(self) -> bool:
        """Whether one kernel gives the same and is faster than a library's products one by one."""
        maps = [stage for stage in self.stages if isinstance(stage, LinearMap)]
        others = [stage.activation for stage in self.stages if isinstance(stage, Applied)]
        widest = max((max(stage.before, stage.after) for stage in maps), default=0)
        are_same = all(has_tangent(act) and act.name not in _LEFT_TO_TORCH for act in others)
        return 0 < widest <= WIDEST and len(others) > 0 and are_same

    def forward(
        self, rows: int, held: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor | None]
    ) -> None:
        """Writes the values after each stage.

        Args:
            rows: Of the chunk.
            held: What is before the first stage, and room for at least what is after each; of an activation that may be
                what is before it.
            weights: Of each map, transposed: ``[before, after]``.
            biases: Of each map.
        """
        parts, step = _parts_of(rows)
        self._forward(parts, step, rows, tuple(held), tuple(weights), tuple(biases))

    def backward(
        self,
        rows: int,
        held: Sequence[Tensor],
        weights: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        of_weights: Sequence[Tensor | None],
        of_biases: Sequence[Tensor | None],
    ) -> None:
        """Takes the gradients of the last values back to the first.

        Args:
            rows: Of the chunk.
            held: What is before each stage.
            weights: Of each map: ``[after, before]``.
            grads: Room for at least the gradients before each map, and those after the last stage; all are written to.
                The first is None where nobody wants it.
            of_weights: Where the gradient of each weight is added, ``[ROW_PARTS, after, before]``, or None.
            of_biases: The same of biases, ``[ROW_PARTS, after]``.
        """
        parts, step = _parts_of(rows)
        self._backward(
            *(parts, step, rows, nothing(self.dtype)),
            *map(tuple, (held, weights, grads, of_weights, of_biases)),
        )


def _parts_of(rows: int) -> tuple[int, int]:
    """Into how many parts a chunk is cut, and how many rows each has."""
    step = -(-rows // (ROW_PARTS * TOGETHER)) * TOGETHER
    return -(-rows // step), step


class _Text:
    """The text of what is done with a block of rows, as it is written stage after stage."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._lines: list[str] = []
        self._scope: dict[str, object] = {}

    def call(self, width: int, registers: int, function: Callable[[Layout], Function], *calls: str) -> None:
        """Calls a function for each block of a row's channels, whose first one is ``column``."""
        for layout, starts in blocks(self._dtype, width, registers):
            name = f'work{len(self._scope)}'
            self._scope[name] = function(layout)
            first, last = int(starts[0]), int(starts[-1])
            self._lines.append(f'        for column in range({first}, {last + 1}, {layout.channels}):')
            self._lines += [f'            {name}({arguments})' for arguments in calls]

    def function(self, parameters: str) -> Function:
        """``run(part, step, rows, ...)``: all that was written, block after block of a part."""
        text = [
            f'def run(part, step, rows, {parameters}):',
            '    end = min(rows, (part + 1) * step)',
            f'    for first in range(part * step, end, {_BLOCK}):',
            f'        last = min(end, first + {_BLOCK})',
            *self._lines,
            '    return',
        ]
        return compiled('\n'.join(text), **self._scope)


def _forward_body(network: RowNetwork) -> Callable:
    text, j = _Text(network.dtype), 0
    for i, stage in enumerate(network.stages):
        if isinstance(stage, LinearMap):
            rest = f'{stage.before}, weights[{j}], {{}}, {stage.after}, column, held[{i + 1}]'
            calls = [f'held[{i}], first, last, ' + rest.format(f'biases[{j}]')]
            if network.with_tangents:
                calls.append(f'held[{i}], rows + first, rows + last, ' + rest.format('None'))
            text.call(stage.after, registers_of_block(), _product, *calls)
            j += 1
        else:
            apply = functools.partial(_application, stage.activation, network.with_tangents)
            arguments = f'first, last, rows, {stage.width}, column, held[{i}], held[{i + 1}]'
            text.call(stage.width, _ACTIVATION_REGISTERS, apply, arguments)
    run = text.function('held, weights, biases')

    def forward(part, step, rows, held, weights, biases):
        run(part, step, rows, held, weights, biases)

    return forward


def _backward_body(network: RowNetwork) -> Callable:
    text = _Text(network.dtype)
    j = sum(isinstance(stage, LinearMap) for stage in network.stages)
    for i, stage in reversed(list(enumerate(network.stages))):
        if isinstance(stage, Applied):
            adjoint = functools.partial(_adjoint, stage.activation, network.with_tangents)
            arguments = f'first, last, rows, {stage.width}, column, held[{i}], grads[{j}]'
            text.call(stage.width, _ACTIVATION_REGISTERS, adjoint, arguments)
            continue
        j -= 1
        runs = ['first, last', 'rows + first, rows + last'] if network.with_tangents else ['first, last']
        arguments = f'{stage.before}, {stage.after}, column, held[{i}], grads[{j + 1}], of_weights[{j}], part, nothing'
        text.call(stage.before, registers_of_block(), _outer, *(f'{run}, {arguments}' for run in runs))
        text.call(stage.after, 1, _totals, f'first, last, {stage.after}, column, grads[{j + 1}], of_biases[{j}], part')
        arguments = f'{stage.after}, weights[{j}], None, {stage.before}, column, grads[{j}]'
        runs = runs[:1] if i == 0 and network.values_alone else runs
        calls = [f'grads[{j + 1}], {run}, {arguments}' for run in runs]
        text.call(stage.before, registers_of_block(), _product, *calls)
    run = text.function('nothing, held, weights, grads, of_weights, of_biases')

    def backward(part, step, rows, nothing, held, weights, grads, of_weights, of_biases):
        run(part, step, rows, nothing, held, weights, grads, of_weights, of_biases)

    return backward


def _product(block: Layout) -> Function:
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


def _outer(block: Layout) -> Function:
    """``outer(first, last, size, width, column, values, grad, sums, part, nothing)``.

    Adds ``grad[first:last].t() @ values[first:last]`` to this part's ``sums``, the block's channels of `values`.
    """
    text = [
        'def outer(first, last, size, width, column, values, grad, sums, part, nothing):',
        '    if sums is not None:',
        '        some, base = pointer_at(values, first * size), part * size * width + column',
        '        add((grad, nothing), None, first, last - first, some, size, column, sums, base, width, size)',
        '    return',
    ]
    return _of(text, block, add=outer_sums(block))


def _totals(block: Layout) -> Function:
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


def _application(act: Activation, with_tangents: bool, block: Layout) -> Function:
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


def _adjoint(act: Activation, with_tangents: bool, block: Layout) -> Function:
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


@functools.lru_cache(maxsize=64)
def _kernel(body: Callable[[RowNetwork], Callable], network: RowNetwork) -> Kernel:
    texts = [text for stage in network.stages if isinstance(stage, Applied) for text in texts_of(stage.activation)]
    name = f'{body.__name__.strip("_")} of {network}'
    return Kernel(body(network), name, (str(simd.register_bytes()), *texts))
