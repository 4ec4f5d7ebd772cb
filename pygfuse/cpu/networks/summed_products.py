"""A chunk's values times the rows of their sources, each with each, added up by target, and the adjoint of that.

Of an edge (j, i) with values ``h`` these are the products ``h_k x_j``; a row of their sums has ``x_j`` alone behind
them where it is wider. None of an edge is in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.codegen.precision import SETTLED_AFTER
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk

# of four values side by side these are all accumulators
_REGISTERS, _ROW_PARTS = 4, 64


def _sums_body(layout: Layout) -> Callable:
    """One row of a target after another, four values of its edges at a time; on chip: their sums for a block of
    channels. Written: the sums, and added to once they have grown long."""
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full

    @inlined
    def put(out, place, found, is_more):
        if is_more:
            found = found + load_row(out, place)
        store_row(out, place, found)

    def sums(part, starts, indptr, index, first, last, row, rows, step, width, count, products, source, values, out):
        for v in range(row + part * step, row + min(rows, (part + 1) * step)):
            row_begin, row_end = max(place_at(indptr, v), first), min(place_at(indptr, v + 1), last)
            for i in range(len(starts)):
                at = (v - row) * products * width + starts[i]
                for begin in range(row_begin, max(row_end, row_begin + 1), SETTLED_AFTER):
                    end, is_more = min(row_end, begin + SETTLED_AFTER), begin > row_begin
                    for k in range(0, count - 3, 4):
                        zeroth, next_one, second, third = row_full(0.0), row_full(0.0), row_full(0.0), row_full(0.0)
                        for e in range(begin, end):
                            own = load_row(source, place_at(index, e) * width + starts[i])
                            place = (e - first) * count + k
                            zeroth = zeroth + own * row_full(values[place])
                            next_one = next_one + own * row_full(values[place + 1])
                            second = second + own * row_full(values[place + 2])
                            third = third + own * row_full(values[place + 3])
                        put(out, at + k * width, zeroth, is_more)
                        put(out, at + (k + 1) * width, next_one, is_more)
                        put(out, at + (k + 2) * width, second, is_more)
                        put(out, at + (k + 3) * width, third, is_more)
                    for k in range(count // 4 * 4, products):
                        zeroth = row_full(0.0)
                        for e in range(begin, end):
                            own = load_row(source, place_at(index, e) * width + starts[i])
                            if k < count:
                                own = own * row_full(values[(e - first) * count + k])
                            zeroth = zeroth + own
                        put(out, at + k * width, zeroth, is_more)

    return sums


def _back_body(layout: Layout) -> Callable:
    """One edge after another; on chip: its source's row and gradient for a block of channels. Written: gradients."""
    load_row, store_row, row_full, total = layout.load_row, layout.store_row, layout.row_full, layout.total

    def back(
        part, starts, indptr, index, first, last, row, rows, step, width, count, products,
        source, values, grad, grad_values, grad_source,
    ):  # fmt: skip
        for v in range(row + part * step, row + min(rows, (part + 1) * step)):
            for e in range(max(place_at(indptr, v), first), min(place_at(indptr, v + 1), last)):
                of_edge = (e - first) * count
                for i in range(len(starts)):
                    at = (v - row) * products * width + starts[i]
                    own, to_source = load_row(source, place_at(index, e) * width + starts[i]), row_full(0.0)
                    for k in range(count):
                        of_product = load_row(grad, at + k * width)
                        to_source = to_source + of_product * row_full(values[of_edge + k])
                        grad_values[of_edge + k] = grad_values[of_edge + k] + total(of_product * own)
                    if grad_source is not None:
                        if products > count:
                            to_source = to_source + load_row(grad, at + count * width)
                        store_row(grad_source, (e - first) * width + starts[i], to_source)

    return back


@functools.lru_cache(maxsize=64)
def _kernel(body: Callable[[Layout], Callable], name: str, layout: Layout) -> Kernel:
    return Kernel(body(layout), f'{name}, {layout.channels}, {layout.element}', (str(layout.row),))


def _run(
    body: Callable, name: str, csr: Csr, chunk: EdgeChunk, source: Tensor, values: Tensor, sums: Tensor, *rest
) -> None:
    width, count, step = source.shape[1], values.shape[1], -(-chunk.rows // _ROW_PARTS)
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        _kernel(body, name, layout)(
            -(-chunk.rows // step),
            *(starts, csr.indptr, csr.index, chunk.first, chunk.last, chunk.row, chunk.rows, step),
            *(width, count, sums.shape[1] // width, source, values, sums, *rest),
        )


def sum_products(csr: Csr, chunk: EdgeChunk, source: Tensor, values: Tensor, out: Tensor) -> None:
    """Writes to `out`, for each of a chunk's rows, the sum of the products of its edges in the chunk.

    Args:
        csr: Edges by target.
        chunk: The chunk.
        source: ``[sources, D]``.
        values: Of the chunk's edges, ``[edges, K]``.
        out: ``[rows, K * D]``, or ``[rows, (K + 1) * D]`` with the sum of the sources behind the products.
    """
    _run(_sums_body, 'sums of products', csr, chunk, source, values, out)


def sum_products_back(
    csr: Csr,
    chunk: EdgeChunk,
    source: Tensor,
    values: Tensor,
    grad: Tensor,
    grad_values: Tensor,
    grad_source: Tensor | None,
) -> None:
    """The adjoint of `sum_products`.

    Args:
        csr, chunk, source, values: As of that.
        grad: The gradient of the sums.
        grad_values: Where the gradients of values are written.
        grad_source: Where those of the sources' rows are, edge by edge, ``[edges, D]``; None: nobody wants these.
    """
    grad_values.zero_()
    _run(_back_body, 'adjoint of sums of products', csr, chunk, source, values, grad, grad_values, grad_source)
