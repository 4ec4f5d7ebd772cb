"""Kernels on chunks of edges: a run of edges by target, whose values ``[edges, width]`` fit into cache.

Rows of a graph may lie in several chunks; chunks are worked on one after another, so a row's second piece adds to what
its first left. Within a chunk each row, or each block of channels, belongs to one thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages  # noqa: F401  of results as long as all edges
from pygfuse.codegen.precision import SETTLED_AFTER
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.networks.activation_tangents import (  # noqa: F401  for stages
    activated,
    activated_with_tangent,
    activated_with_tangent_back,
)
from pygfuse.cpu.networks.edge_dropout import dropped  # noqa: F401  for stages
from pygfuse.cpu.networks.edge_factors import times, times_back  # noqa: F401  for stages
from pygfuse.cpu.networks.row_networks import ROW_PARTS, Applied, LinearMap, RowNetwork  # noqa: F401  for stages
from pygfuse.cpu.networks.summed_products import sum_products, sum_products_back  # noqa: F401  for stages
from pygfuse.cpu.products.matrix_products import add_mapped, add_over_rows, mapped, mapped_back  # noqa: F401  for stages
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk, chunk_size, chunk_size_of_sums  # noqa: F401  for stages
from pygfuse.program import vocabulary

_EDGES_A_PART = 128
_ROW_PARTS = 64
# whether linear maps and activations that follow one another run as one kernel (`RowNetwork`)
HAS_ROW_NETWORKS = True
# whether of a linear map before a maximum only rows of winners are differentiated (`map_adjoint_at_winners`)
MAPS_WINNERS_ALONE = True
# whether products of values and sources are added up by target (`sum_products`) before a linear map takes them
SUMS_PRODUCTS = True
# whether activations and their tangents are computed in one pass (`activated_with_tangent`)
HAS_TANGENTS = True
# parts of a chunk that sum the gradient of a weight apart
WEIGHT_PARTS = 8
_REGISTERS = 16


@functools.lru_cache(maxsize=256)
def _kernel(body: Callable[[Layout], Callable], name: str, layout: Layout) -> Kernel:
    return Kernel(body(layout), f'{name}, {layout.channels}, {layout.element}', (str(layout.row),))


def _ends_body(layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row

    def ends(part, starts, indptr, index, first, last, row, rows, step, width, source, target, out):
        channel, piece = starts[part % len(starts)], part // len(starts)
        begin = first + piece * step
        if target is None:
            for e in range(begin, min(last, begin + step)):
                of_source = load_row(source, place_at(index, e) * width + channel)
                store_row(out, (e - first) * width + channel, of_source)
            return
        low, high = row, row + rows
        while high - low > 1:  # the row that holds edge `begin`
            middle = (low + high) // 2
            if place_at(indptr, middle) <= begin:
                low = middle
            else:
                high = middle
        own = load_row(target, low * width + channel)
        for e in range(begin, min(last, begin + step)):
            if place_at(indptr, low + 1) <= e:
                while place_at(indptr, low + 1) <= e:
                    low += 1
                own = load_row(target, low * width + channel)
            value = own
            if source is not None:
                value = value + load_row(source, place_at(index, e) * width + channel)
            store_row(out, (e - first) * width + channel, value)

    return ends


def _sum_body(layout: Layout) -> Callable:
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full

    def sums(part, starts, indptr, first, last, row, rows, step, width, values, out):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for v in range(row + piece * step, row + min(rows, (piece + 1) * step)):
            row_begin = place_at(indptr, v)
            begin, end = max(row_begin, first), min(place_at(indptr, v + 1), last)
            if begin < end:
                total = row_full(0.0)
                for q in range(begin, end, SETTLED_AFTER):
                    some = row_full(0.0)
                    for e in range(q, min(end, q + SETTLED_AFTER)):
                        some = some + load_row(values, (e - first) * width + channel)
                    total = total + some
                if row_begin < first:
                    total = total + load_row(out, v * width + channel)
                store_row(out, v * width + channel, total)

    return sums


def _largest_body(layout: Layout) -> Callable:
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full
    maximum, equal = vocabulary.maximum, vocabulary.equal

    def largest(part, starts, indptr, first, last, row, rows, step, width, values, out, winners):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for v in range(row + piece * step, row + min(rows, (piece + 1) * step)):
            row_begin = place_at(indptr, v)
            begin, end = max(row_begin, first), min(place_at(indptr, v + 1), last)
            if begin < end:
                best, winner = row_full(-np.inf), row_full(0.0)
                if row_begin < first:
                    best, winner = load_row(out, v * width + channel), load_row(winners, v * width + channel)
                for e in range(begin, end):
                    greater = maximum(load_row(values, (e - first) * width + channel), best)
                    winner = equal(greater, best, winner, e - row_begin)
                    best = greater
                store_row(out, v * width + channel, best)
                store_row(winners, v * width + channel, equal(best, best, winner, best))

    return largest


def _spread_body(layout: Layout) -> Callable:
    load_row, store_row, row_full, equal = layout.load_row, layout.store_row, layout.row_full, vocabulary.equal

    def spread(part, starts, indptr, first, last, row, rows, step, width, winners, grad_out, values):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for v in range(row + piece * step, row + min(rows, (piece + 1) * step)):
            row_begin = place_at(indptr, v)
            grad, winner = load_row(grad_out, v * width + channel), row_full(0.0)
            if winners is not None:
                winner = load_row(winners, v * width + channel)
            for e in range(max(row_begin, first), min(place_at(indptr, v + 1), last)):
                if winners is not None:
                    # NaN for all edges of a NaN, as in torch
                    kept = equal(winner, e - row_begin, grad, winner - winner)
                    store_row(values, (e - first) * width + channel, kept)
                else:
                    store_row(values, (e - first) * width + channel, grad)

    return spread


def _sources_body(layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row

    def sources(part, starts, index, first, last, width, values, out):
        channel = starts[part]
        for e in range(first, last):
            at = place_at(index, e) * width + channel
            store_row(out, at, load_row(out, at) + load_row(values, (e - first) * width + channel))

    return sources


def _winners_body(layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row

    def adjoint(
        part, starts, indptr, first, last, row, rows, step, width, channels,
        winners, grad_out, weight, values, grad_values, grad_weights,
    ):  # fmt: skip
        start, piece = starts[part % len(starts)], part // len(starts)
        for v in range(row + piece * step, row + min(rows, (piece + 1) * step)):
            row_begin, row_end = place_at(indptr, v), place_at(indptr, v + 1)
            if row_begin == row_end:
                continue
            for c in range(channels):
                at = np.uint64(v * channels + c)
                grad, winner = grad_out[at], winners[at]
                if winner == winner:
                    begin = row_begin + np.int64(winner)
                    end = begin + (grad != 0.0)
                else:  # NaN, and so is the gradient for all edges, as in torch
                    grad, begin, end = winner, row_begin, row_end
                for e in range(max(begin, first), min(end, last)):
                    of_edge, of_channel = (e - first) * width + start, c * width + start
                    of_weight = piece * channels * width + of_channel
                    before = load_row(grad_values, of_edge)
                    store_row(grad_values, of_edge, before + grad * load_row(weight, of_channel))
                    before = load_row(grad_weights, of_weight)
                    store_row(grad_weights, of_weight, before + grad * load_row(values, of_edge))

    return adjoint


def _take_body(layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row

    def take(part, starts, edge_id, first, last, step, width, rows, adds, values):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(first + piece * step, min(last, first + (piece + 1) * step)):
            at, place = place_at(edge_id, e) * width + channel, (e - first) * width + channel
            if adds is not None:
                store_row(values, place, load_row(values, place) + load_row(rows, at))
            else:
                store_row(values, place, load_row(rows, at))

    return take


def _put_body(layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row

    def put(part, starts, edge_id, first, last, step, width, values, rows):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(first + piece * step, min(last, first + (piece + 1) * step)):
            store_row(rows, place_at(edge_id, e) * width + channel, load_row(values, (e - first) * width + channel))

    return put


def add_ends(csr: Csr, chunk: EdgeChunk, source: Tensor | None, target: Tensor | None, out: Tensor) -> None:
    """Writes ``target[i] + source[j]``, or one of them, for the edges (j, i) of a chunk to `out`."""
    width = out.shape[1]
    for layout, starts in blocks(out.dtype, width, _REGISTERS):
        _kernel(_ends_body, 'sums of both ends', layout)(
            -(-chunk.edges // _EDGES_A_PART) * len(starts),
            *(starts, csr.indptr, csr.index, chunk.first, chunk.last, chunk.row, chunk.rows, _EDGES_A_PART, width),
            *(source, target, out),
        )


def _by_rows(
    body: Callable[[Layout], Callable], name: str, csr: Csr, chunk: EdgeChunk, width: int, like: Tensor, *rest
) -> None:
    step = -(-chunk.rows // _ROW_PARTS)
    for layout, starts in blocks(like.dtype, width, _REGISTERS):
        _kernel(body, name, layout)(
            -(-chunk.rows // step) * len(starts),
            *(starts, csr.indptr, chunk.first, chunk.last, chunk.row, chunk.rows, step, width),
            *rest,
        )


def add_to_targets(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor) -> None:
    """Adds the values of a chunk to the rows of their targets in `out`, which is zero where the rows begin."""
    _by_rows(_sum_body, 'sums of rows of a chunk', csr, chunk, values.shape[1], values, values, out)


def keep_largest(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor, winners: Tensor) -> None:
    """Raises `out` to the largest values of its rows' edges, and notes the place in its row of the first that has it.

    Args:
        csr: Edges by target.
        chunk: The chunk.
        values: Of its edges.
        out: ``[targets, width]``.
        winners: The same shape and type.
    """
    _by_rows(_largest_body, 'maxima of rows of a chunk', csr, chunk, values.shape[1], values, values, out, winners)


def spread(csr: Csr, chunk: EdgeChunk, grad_out: Tensor, winners: Tensor | None, values: Tensor) -> None:
    """Writes each target's row of `grad_out` to its edges in the chunk; with `winners`, to these alone.

    The others get 0, and NaN where the winner is NaN.
    """
    name = 'rows spread over a chunk' if winners is None else 'rows spread over a chunk to winners'
    _by_rows(_spread_body, name, csr, chunk, grad_out.shape[1], grad_out, winners, grad_out, values)


def add_to_sources(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor) -> None:
    """Adds the values of a chunk to the rows of their sources in `out`, in the order of edges."""
    width = values.shape[1]
    for layout, starts in blocks(values.dtype, width, 1):
        kernel = _kernel(_sources_body, 'sums of sources of a chunk', layout)
        kernel(len(starts), starts, csr.index, chunk.first, chunk.last, width, values, out)


def take_edges(csr: Csr, chunk: EdgeChunk, rows: Tensor, out: Tensor, adds: bool = False) -> None:
    """Writes the rows of a chunk's edges to `out`, or adds them to it.

    Args:
        csr: Edges by target.
        chunk: The chunk.
        rows: ``[edges of the graph, width]`` in the user's order.
        out: ``[edges, width]``.
        adds: Whether to add.
    """
    if csr.edge_id is None:
        found = rows[chunk.first : chunk.last]
        out.add_(found) if adds else out.copy_(found)
        return
    name = 'rows of edges added to a chunk' if adds else 'rows of edges of a chunk'
    width = out.shape[1]
    for layout, starts in blocks(out.dtype, width, _REGISTERS):
        _kernel(_take_body, name, layout)(
            -(-chunk.edges // _EDGES_A_PART) * len(starts),
            *(starts, csr.edge_id, chunk.first, chunk.last, _EDGES_A_PART, width, rows, 1 if adds else None, out),
        )


def put_edges(csr: Csr, chunk: EdgeChunk, values: Tensor, rows: Tensor) -> None:
    """Writes the values of a chunk to the rows of its edges, the reverse of `take_edges`."""
    if csr.edge_id is None:
        rows[chunk.first : chunk.last] = values
        return
    width = values.shape[1]
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        _kernel(_put_body, 'values of a chunk to rows of edges', layout)(
            -(-chunk.edges // _EDGES_A_PART) * len(starts),
            *(starts, csr.edge_id, chunk.first, chunk.last, _EDGES_A_PART, width, values, rows),
        )


def map_adjoint_at_winners(
    csr: Csr,
    chunk: EdgeChunk,
    grad_out: Tensor,
    winners: Tensor,
    weight: Tensor,
    values: Tensor,
    grad_values: Tensor,
    grad_weights: Tensor,
) -> None:
    """The adjoint of a linear map whose results were reduced to their largest: one edge a target and channel.

    Args:
        csr: Edges by target.
        chunk: The chunk.
        grad_out: The gradient of the largest, ``[targets, channels]``.
        winners: Where they are, as of `keep_largest`.
        weight: ``[channels, width]``.
        values: What was mapped, ``[edges, width]``.
        grad_values: Its gradient is written here.
        grad_weights: The gradient of `weight` is added here, in `WEIGHT_PARTS` summands: ``[parts, channels, width]``.
    """
    grad_values.zero_()
    channels, width = weight.shape
    step = -(-chunk.rows // WEIGHT_PARTS)
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        _kernel(_winners_body, 'adjoint of a map at winners', layout)(
            -(-chunk.rows // step) * len(starts),
            *(starts, csr.indptr, chunk.first, chunk.last, chunk.row, chunk.rows, step, width, channels),
            *(winners, grad_out, weight, values, grad_values, grad_weights),
        )
