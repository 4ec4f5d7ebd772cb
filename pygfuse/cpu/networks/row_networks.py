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

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.networks.activation_tangents import texts_of
from pygfuse.cpu.networks.row_stages import (
    ACTIVATION_REGISTERS,
    BLOCK,
    RowText,
    adjoint_of,
    application,
    outer,
    product,
    totals,
)
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.walks.edge_products import TOGETHER, registers_of_block
from pygfuse.program.few_edge_stages import Applied

# of a chunk: each sums gradients of weights apart
ROW_PARTS = 16
# a wider map is worth a library's product by itself, and its weight's gradient copies for each part
WIDEST = 256


@dataclasses.dataclass(frozen=True)
class LinearMap:
    """A linear map, by the widths of values before and after it."""

    before: int
    after: int


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
        widest = max((max(stage.before, stage.after) for stage in maps), default=0)
        return 0 < widest <= WIDEST and any(isinstance(stage, Applied) for stage in self.stages)

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


def _text_of(network: RowNetwork) -> RowText:
    """The beginning of a text: block after block of a part."""
    text = RowText(network.dtype)
    text.say('end = min(rows, (part + 1) * step)')
    text.say(f'for first in range(part * step, end, {BLOCK}):')
    text.say(f'last = min(end, first + {BLOCK})', 2)
    return text


def _forward_body(network: RowNetwork) -> Callable:
    text, j = _text_of(network), 0
    for i, stage in enumerate(network.stages):
        if isinstance(stage, LinearMap):
            rest = f'{stage.before}, weights[{j}], {{}}, {stage.after}, column, held[{i + 1}]'
            calls = [f'held[{i}], first, last, ' + rest.format(f'biases[{j}]')]
            if network.with_tangents:
                calls.append(f'held[{i}], rows + first, rows + last, ' + rest.format('None'))
            text.call(stage.after, registers_of_block(), product, *calls, indent=2)
            j += 1
        else:
            apply = functools.partial(application, stage.activation, network.with_tangents)
            arguments = f'first, last, rows, {stage.width}, column, held[{i}], held[{i + 1}]'
            text.call(stage.width, ACTIVATION_REGISTERS, apply, arguments, indent=2)
    run = text.function('part, step, rows, held, weights, biases')

    def forward(part, step, rows, held, weights, biases):
        run(part, step, rows, held, weights, biases)

    return forward


def _backward_body(network: RowNetwork) -> Callable:
    text = _text_of(network)
    j = sum(isinstance(stage, LinearMap) for stage in network.stages)
    for i, stage in reversed(list(enumerate(network.stages))):
        if isinstance(stage, Applied):
            adjoint = functools.partial(adjoint_of, stage.activation, network.with_tangents)
            arguments = f'first, last, rows, {stage.width}, column, held[{i}], grads[{j}]'
            text.call(stage.width, ACTIVATION_REGISTERS, adjoint, arguments, indent=2)
            continue
        j -= 1
        runs = ['first, last', 'rows + first, rows + last'] if network.with_tangents else ['first, last']
        arguments = f'{stage.before}, {stage.after}, column, held[{i}], grads[{j + 1}], of_weights[{j}], part, nothing'
        text.call(stage.before, registers_of_block(), outer, *(f'{run}, {arguments}' for run in runs), indent=2)
        arguments = f'first, last, {stage.after}, column, grads[{j + 1}], of_biases[{j}], part'
        text.call(stage.after, 1, totals, arguments, indent=2)
        arguments = f'{stage.after}, weights[{j}], None, {stage.before}, column, grads[{j}]'
        runs = runs[:1] if i == 0 and network.values_alone else runs
        calls = [f'grads[{j + 1}], {run}, {arguments}' for run in runs]
        text.call(stage.before, registers_of_block(), product, *calls, indent=2)
    run = text.function('part, step, rows, nothing, held, weights, grads, of_weights, of_biases')

    def backward(part, step, rows, nothing, held, weights, grads, of_weights, of_biases):
        run(part, step, rows, nothing, held, weights, grads, of_weights, of_biases)

    return backward


@functools.lru_cache(maxsize=64)
def _kernel(body: Callable[[RowNetwork], Callable], network: RowNetwork) -> Kernel:
    texts = [text for stage in network.stages if isinstance(stage, Applied) for text in texts_of(stage.activation)]
    name = f'{body.__name__.strip("_")} of {network}'
    return Kernel(body(network), name, (str(simd.register_bytes()), *texts))
