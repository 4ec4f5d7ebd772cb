"""Sums over rows of products of their values: the gradient of a weight, of a chunk of rows that lies in a cache."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import pointer_at
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.edge_products import outer_sums, registers_of_block

# as many as a core's first cache holds
_ROWS = 64


def _body(layout: Layout) -> Callable:
    add = outer_sums(layout)

    def sums(part, starts, rows, width, size, grad, values, out):
        start = starts[part]
        for first in range(0, rows, _ROWS):
            some = pointer_at(values, first * size)
            add(grad, None, first, min(_ROWS, rows - first), some, size, start, out, start, width, size)

    return sums


@functools.lru_cache(maxsize=64)
def _kernel(layout: Layout) -> Kernel:
    return Kernel(_body(layout), f'sums over rows, {layout.channels}, {layout.element}', (str(layout.row),))


def add_sums_over_rows(grad: Tensor, values: Tensor, out: Tensor) -> None:
    """Adds ``grad.t() @ values`` to `out`.

    Args:
        grad: ``[rows, width]``, contiguous.
        values: ``[rows, D]``, contiguous.
        out: ``[width, D]``, contiguous.
    """
    (rows, width), size = grad.shape, values.shape[1]
    for layout, starts in blocks(values.dtype, size, registers_of_block()):
        _kernel(layout)(len(starts), starts, rows, width, size, (grad, nothing(grad.dtype)), values, out)
