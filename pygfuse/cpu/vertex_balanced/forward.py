"""The forward walk of the vertex-balanced mapping."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pygfuse import vocabulary
from pygfuse.cpu.functions import compiled, edge_row_loader
from pygfuse.cpu.layout import Layout, place_at
from pygfuse.cpu.random import dropout_edges
from pygfuse.program import SOURCE, TARGET, BoundProgram

SIDES = {TARGET: 'resident', SOURCE: 'gathered'}

# the running maximum is only raised when a score exceeds it by this much: exp(8) is far from overflow
SLACK = 8.0


def forward_body(bound: BoundProgram, layout: Layout, reduce: str) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    Softmax takes one pass with a running maximum: where a score exceeds it by more than a slack (hardly ever after a
    row's first group), the sums so far are scaled down. It leaves the log-sum-exp of each row and head. A maximum (or
    minimum) leaves, for each value of the row, the number of edges among which torch divides its gradient.

    Args:
        bound: The program.
        layout: What is held of a row.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
    """
    has_score, softmax, of_heads = bound.score is not None, bound.softmax, bound.score_is_of_heads
    extreme, smallest, mean = reduce in ('max', 'min'), reduce == 'min', reduce == 'mean'
    score = compiled(bound.text(bound.score, 'score', SIDES)) if has_score else None
    message = compiled(bound.text(bound.message, 'message', SIDES))
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    group, heads = layout.group, layout.heads
    # finite, so that a score of -inf is below it and gets the weight 0
    lowest = float(np.finfo(str(layout.element)).min)
    load_heads, load_row, store_heads, store_row = (
        layout.load_heads, layout.load_row, layout.store_heads, layout.store_row,
    )  # fmt: skip
    gather_scalars = layout.gather_scalars
    gather_edges, mask_edges, repeat, store_edges, buffer = (
        layout.gather_edges, layout.mask_edges, layout.repeat, layout.store_edges, layout.buffer,
    )  # fmt: skip
    any_above, max_edges, sum_edges = layout.any_above, layout.max_edges, layout.sum_edges
    heads_full, edges_full, row_zeros = layout.heads_full, layout.edges_full, layout.row_zeros
    dropout, exp, log, maximum, equal = (
        dropout_edges(layout), vocabulary.exp, vocabulary.log, vocabulary.maximum, vocabulary.equal,
    )  # fmt: skip

    def forward(
        part, tiles, parts, indptr, index, edge_id,
        resident_heads, resident_channels, gathered_heads, gathered_channels,
        edge_heads, edge_scalars, edge_rows, edge_features, edge_weights, parameter_heads, parameters, scalars,
        total_heads, width, seed, threshold, scale, out, statistics,
    ):  # fmt: skip
        num_tiles = len(tiles) // 2
        tile, piece = part % num_tiles, part // num_tiles
        head, channel = tiles[2 * tile], tiles[2 * tile + 1]
        parameter_rows = load_row(parameters, channel)
        head_parameters = repeat(load_heads(parameter_heads, head))
        weights = buffer()
        for v in range(place_at(parts, piece), place_at(parts, piece + 1)):
            begin, end = place_at(indptr, v), place_at(indptr, v + 1)
            own_heads = repeat(load_heads(resident_heads, v * total_heads + head))
            own_row = load_row(resident_channels, v * width + channel)
            top, total, result = heads_full(lowest), edges_full(0.0), row_zeros()
            if extreme:
                result, ties = result - np.inf, row_zeros()
            for q in range(begin, end, group):
                if has_score:
                    other_heads = gather_edges(gathered_heads, index, q, end, total_heads, head)
                    on_edge = gather_edges(edge_heads, edge_id, q, end, total_heads, head)
                    on_edge = on_edge + gather_scalars(edge_scalars, edge_id, q, end)
                    if of_heads:
                        s = score(own_heads, (), other_heads, (), on_edge, (), head_parameters, (), scalars)
                    else:
                        other = load_row(gathered_channels, place_at(index, q) * width + channel)
                        row = load_edge_rows(
                            edge_rows, edge_features, edge_weights, place_at(edge_id, q), width, channel
                        )
                        s = score(
                            own_heads,
                            own_row,
                            other_heads,
                            other,
                            on_edge,
                            row,
                            head_parameters,
                            parameter_rows,
                            scalars,
                        )
                    if softmax:
                        s = mask_edges(s, end - q, -np.inf)
                        if any_above(s, top + SLACK):
                            raised = maximum(top, max_edges(s))
                            factor = exp(top - raised)
                            result, total, top = result * factor, total * factor, raised
                        s = exp(s - top)
                        total = total + s
                    if seed is not None:
                        s = s * dropout(seed, threshold, scale, edge_id, q, end, head)
                    store_edges(weights, 0, s)
                for k in range(min(group, end - q)):
                    if of_heads:
                        other = load_row(gathered_channels, place_at(index, q + k) * width + channel)
                        row = load_edge_rows(
                            edge_rows, edge_features, edge_weights, place_at(edge_id, q + k), width, channel
                        )
                    weight = load_heads(weights, k * heads)
                    found = message(weight, (), own_row, (), other, (), row, (), parameter_rows, scalars)
                    if extreme:
                        found = found + row_zeros()
                        if smallest:
                            found = -found
                        best = maximum(found, result)
                        ties = equal(found, best, equal(result, best, ties, 0.0) + 1.0, ties)
                        result = best
                    else:
                        result = result + found
            if extreme:
                if end == begin:
                    result = row_zeros()
                # torch counts the zero that a row begins with among the ties, although it takes no part
                store_row(statistics, v * width + channel, equal(result, 0.0, ties + 1.0, ties))
                if smallest:
                    result = -result
            if end > begin:
                if softmax:
                    sums = sum_edges(total)
                    result = result * (1.0 / sums)
                    store_heads(statistics, v * total_heads + head, top + log(sums))
                if mean:
                    result = result * (1.0 / (end - begin))
            store_row(out, v * width + channel, result)

    return forward
