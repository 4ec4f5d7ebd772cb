"""A chunk's values times rows of their sources and features of edges, and the adjoint of that, each in one pass.

Values come alone, ``[edges, width]``, or with tangents behind them, ``[2, edges, width]``; then factors may have
tangents, too. Features of edges are rows or one number an edge. Of sources, features and tangents any may be absent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import Function, inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk

_REGISTERS, _EDGES_A_PART = 4, 128


def _loaders(layout: Layout) -> tuple[Function, Function]:
    """``of_source(rows, row, width, channel)`` and ``of_edge(features, edge, is_row, width, channel)``: 1 for None."""
    load_row, row_full = layout.load_row, layout.row_full

    @inlined
    def of_source(rows, row, width, channel):
        if rows is None:
            return row_full(1.0)
        return load_row(rows, row * width + channel)

    @inlined
    def of_edge(features, edge, is_row, width, channel):
        if features is None:
            return row_full(1.0)
        if is_row is None:
            return row_full(features[edge])
        return load_row(features, edge * width + channel)

    return of_source, of_edge


def _forward_body(layout: Layout) -> Callable:
    load_row, store_row, (of_source, of_edge) = layout.load_row, layout.store_row, _loaders(layout)

    def forward(
        part, starts, index, first, edges, step, width, is_row, with_tangents,
        source, features, source_tangent, features_tangent, values, out,
    ):  # fmt: skip
        for e in range(part * step, min(edges, (part + 1) * step)):
            u = place_at(index, first + e)
            for i in range(len(starts)):
                channel = starts[i]
                at, behind = e * width + channel, (edges + e) * width + channel
                row, feature = of_source(source, u, width, channel), of_edge(features, e, is_row, width, channel)
                value, factor = load_row(values, at), row * feature
                if with_tangents is not None:
                    moved = load_row(values, behind) * factor
                    if source_tangent is not None:
                        moved = moved + value * of_source(source_tangent, u, width, channel) * feature
                    if features_tangent is not None:
                        moved = moved + value * of_edge(features_tangent, e, is_row, width, channel) * row
                    store_row(out, behind, moved)
                store_row(out, at, value * factor)

    return forward


def _backward_body(layout: Layout) -> Callable:
    load_row, store_row, (of_source, of_edge) = layout.load_row, layout.store_row, _loaders(layout)
    row_full, total = layout.row_full, layout.total

    def backward(
        part, starts, index, first, edges, step, width, is_row, with_tangents,
        source, features, source_tangent, features_tangent, values, grad, grad_source, grad_features,
    ):  # fmt: skip
        for e in range(part * step, min(edges, (part + 1) * step)):
            u, sums = place_at(index, first + e), row_full(0.0)
            for i in range(len(starts)):
                channel = starts[i]
                at, behind = e * width + channel, (edges + e) * width + channel
                row, feature = of_source(source, u, width, channel), of_edge(features, e, is_row, width, channel)
                value, of_value, factor = load_row(values, at), load_row(grad, at), row * feature
                of_factor, before = of_value * value, of_value * factor
                to_source, to_edge = of_factor * feature, of_factor * row
                if with_tangents is not None:
                    of_moved = load_row(grad, behind)
                    of_tangent = of_moved * value
                    of_factor = of_moved * load_row(values, behind)
                    to_source, to_edge = to_source + of_factor * feature, to_edge + of_factor * row
                    if source_tangent is not None:
                        moved = of_source(source_tangent, u, width, channel)
                        before, to_edge = before + of_moved * moved * feature, to_edge + of_tangent * moved
                    if features_tangent is not None:
                        moved = of_edge(features_tangent, e, is_row, width, channel)
                        before, to_source = before + of_moved * moved * row, to_source + of_tangent * moved
                    store_row(grad, behind, of_moved * factor)
                store_row(grad, at, before)
                if grad_source is not None:
                    store_row(grad_source, at, to_source)
                if grad_features is not None:
                    if is_row is not None:
                        store_row(grad_features, at, to_edge)
                    else:
                        sums = sums + to_edge
            if grad_features is not None and is_row is None:
                grad_features[e] = grad_features[e] + total(sums)

    return backward


@functools.lru_cache(maxsize=256)
def _kernel(body: Callable[[Layout], Callable], name: str, layout: Layout) -> Kernel:
    return Kernel(body(layout), f'{name}, {layout.channels}, {layout.element}', (str(layout.row),))


def _run(body: Callable, name: str, csr: Csr, chunk: EdgeChunk, values: Tensor, factors: tuple, *rest) -> None:
    _, features, *_ = factors
    width = values.shape[-1]
    is_row = 1 if features is not None and features.shape[1] == width else None
    with_tangents = 1 if values.dim() == 3 else None
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        _kernel(body, name, layout)(
            -(-chunk.edges // _EDGES_A_PART),
            *(starts, csr.index, chunk.first, chunk.edges, _EDGES_A_PART, width, is_row, with_tangents),
            *factors,
            values,
            *rest,
        )


# rows of sources, features of a chunk's edges, and the tangents of both
Factors = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def times(csr: Csr, chunk: EdgeChunk, values: Tensor, factors: Factors, out: Tensor) -> None:
    """Writes a chunk's values times both factors, with the tangents of the products if values have them, to `out`.

    Args:
        csr: Edges by target.
        chunk: The chunk.
        values: Of its edges.
        factors: ``[sources, width]``, ``[edges, width]`` or ``[edges, 1]``, and their tangents.
        out: Like `values`; may be `values`.
    """
    _run(_forward_body, 'products with factors', csr, chunk, values, factors, out)


def times_back(
    csr: Csr,
    chunk: EdgeChunk,
    values: Tensor,
    factors: Factors,
    grad: Tensor,
    grad_source: Tensor | None,
    grad_features: Tensor | None,
) -> None:
    """Turns gradients of `times` into those of `values`, in place, and gives those of the factors.

    Args:
        csr, chunk, values, factors: As `times` takes them.
        grad: Like `values`.
        grad_source: Where the gradients of the sources' rows are written, edge by edge, ``[edges, width]``.
        grad_features: Where those of features are; of one number an edge they are added.
    """
    rest = grad, grad_source, grad_features
    _run(_backward_body, 'adjoint of products with factors', csr, chunk, values, factors, *rest)
