"""Dropout of a chunk's values, drawn from a mark for each edge and a key for each channel."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.program import vocabulary

_REGISTERS, _EDGES_A_PART = 4, 128


def _body(layout: Layout) -> Callable:
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full
    factor = vocabulary.dropout_factor

    def dropped(part, starts, edges, step, width, marks, draws, values, out):
        for i in range(len(starts)):
            channel = starts[i]
            key, probability = load_row(draws, channel), load_row(draws, width + channel)
            for e in range(part * step, min(edges, (part + 1) * step)):
                at = e * width + channel
                store_row(out, at, load_row(values, at) * factor(row_full(marks[e]), key, probability))

    return dropped


@functools.lru_cache(maxsize=64)
def _kernel(layout: Layout) -> Kernel:
    return Kernel(_body(layout), f'dropout of a chunk, {layout.channels}, {layout.element}', (str(layout.row),))


def dropped(values: Tensor, marks: Tensor, draws: Tensor, out: Tensor) -> None:
    """Writes values times their factors (`pygfuse.program.vocabulary.dropout_factor`) to `out`.

    Args:
        values: ``[edges, width]``.
        marks: A mark for each edge, ``[edges, 1]``.
        draws: Keys and probabilities, ``[2, width]``.
        out: Like `values`; may be `values`.
    """
    count, width = values.shape
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        parts = -(-count // _EDGES_A_PART)
        _kernel(layout)(parts, starts, count, _EDGES_A_PART, width, marks, draws, values, out)
