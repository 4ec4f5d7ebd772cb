"""Products of a sparse matrix with a dense one: rows of the result are weighted sums of rows of the dense one.

One kernel a type serves all widths: as many channels as registers hold are summed side by side, then one register after
another. A row belongs to the part of the work that it ends in, and its values are added in their order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.walked_edges import THREAD_WORK
from pygfuse.cpu.nodes.zero_rows import line_of
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import alignment
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.walks.edge_products import registers_of_block
from pygfuse.graph.csr import Csr
from pygfuse.mapping.cost_model import edge_cost
from pygfuse.mapping.mapping import cut


def _body(dtype: torch.dtype) -> Callable:
    element = ELEMENT_TYPES[dtype]
    lanes = simd.register_bytes() // alignment(element)
    wide = registers_of_block() * lanes
    block, line = Layout(element, 1, wide), line_of(element)
    load_row, store_row, row_full = block.load_row, block.store_row, block.row_full
    load_some, store_some, some_full = line.load_some_edges, line.store_some_edges, line.edges_full

    def multiply(part, bounds, indptr, index, position, values, dense, width, out):
        # of a cut, where parts begin and end within rows, those rows that end in this part
        for v in range(bounds[2 * part], bounds[2 * part + 2]):
            column = 0
            while column + wide <= width:
                row = row_full(0.0)
                for q in range(indptr[v], indptr[v + 1]):
                    place = q if position is None else position[q]
                    row = row + load_row(dense, index[q] * width + column) * values[place]
                store_row(out, v * width + column, row)
                column += wide
            while column < width:
                some = some_full(0.0)
                for q in range(indptr[v], indptr[v + 1]):
                    place = q if position is None else position[q]
                    some = some + load_some(dense, index[q] * width + column, width - column) * values[place]
                store_some(out, v * width + column, some, width - column)
                column += lanes

    return multiply


@functools.cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel(_body(dtype), f'a sparse product, {ELEMENT_TYPES[dtype]}', (str(simd.register_bytes()),))


def product(csr: Csr, values: Tensor, dense: Tensor) -> Tensor:
    """The product of a sparse matrix with a dense one, whose type is float32 or float64.

    Args:
        csr: Where the matrix has values, by row; by column, with positions, for the transpose of a matrix.
        values: One for each place, or for each position, ``[values]``, contiguous.
        dense: ``[columns, channels]``, contiguous.

    Returns:
        ``[rows, channels]``.

    Example:
        >>> csr = Csr(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), None)
        >>> product(csr, torch.tensor([1.0, 2.0, 3.0]), torch.eye(2))
        tensor([[0., 1.],
                [2., 3.]])
    """
    width, parts = dense.shape[1], cut(csr)
    out = on_huge_pages(dense.new_empty(csr.num_rows, width))
    worth = int(csr.num_edges * edge_cost(width * dense.element_size()) / THREAD_WORK)
    threads = 1 if worth < 2 else min(worth, torch.get_num_threads())
    given = parts.bounds, csr.indptr, csr.index, csr.position, values, dense
    _kernel(dense.dtype)(parts.count, *given, width, out, threads=threads)
    return out
