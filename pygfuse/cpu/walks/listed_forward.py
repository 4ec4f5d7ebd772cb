"""The forward walk along few edges as they come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments, Whole
from pygfuse.codegen.combination import finisher
from pygfuse.codegen.precision import lowest
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.walks.edge_products import EdgeProducts
from pygfuse.cpu.walks.inlining import compiled, edge_row_loader
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.listed import FEW, OPERANDS, list_edges, list_scorer
from pygfuse.cpu.walks.parts import piece_of
from pygfuse.cpu.walks.score import above
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET, used_by
from pygfuse.program.program import BoundProgram

LISTED_FORWARD = Arguments('part', FEW, OPERANDS, shared.Row, shared.Draws, Whole('results', shared.Results))


def listed_forward_body(bound: BoundProgram, layout: Instructions, reduce: str) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    All scores come first, then of a softmax each target's greatest and the sum of exponentials relative to it, which
    lie where the statistics will be, and last the messages.

    Args:
        bound: The program; products of edges are multiplied chunk by chunk, see `pygfuse.cpu.walks.edge_products`.
        layout: What is held of a row; one edge at a time where scores are of channels.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
    """
    has_score, softmax = bound.score is not None, bound.softmax
    extreme, smallest = reduce in ('max', 'min'), reduce == 'min'
    score = list_scorer(bound, layout) if has_score else None
    message = compiled(bound.text(bound.message, 'message', BY_TARGET))
    products = EdgeProducts(layout, len(bound.edge_products))
    room, fill = products.room, products.fill
    scores_products = len(used_by(bound.score, bound.edge_products)) > 0
    sums_products = len(used_by(bound.message, bound.edge_products)) > 0
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    finish = finisher(layout, reduce, softmax)
    load_weight = layout.load_spread if bound.message.is_spread('weight') else layout.load_heads
    load_heads, load_row, load_edges = layout.load_heads, layout.load_row, layout.load_edges
    store_heads, store_row, store_edges = layout.store_heads, layout.store_row, layout.store_edges
    gather_edges, repeat, dropout = layout.gather_edges, layout.repeat, dropout_edges(layout)
    heads_full, row_full, step, heads = layout.heads_full, layout.row_full, layout.step, layout.heads
    element = getattr(np, str(layout.element))
    least, exp, maximum, equal = lowest(str(layout.element)), vocabulary.exp, vocabulary.maximum, vocabulary.equal

    @LISTED_FORWARD.of
    def forward(part, few, operands, total_heads, width, seed, threshold, scale, results):
        _, _, head, channel = piece_of(part, few.tiles)
        targets, sources, ids, degrees, count = list_edges(few)
        if count < 0:
            return
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = repeat(load_heads(operands.parameter_heads, head))
        for v in range(few.num_targets):
            first = row_full(0.0)
            if extreme:
                store_row(results.statistics, v * width + channel, first)
                first = first - np.inf
            store_row(results.out, v * width + channel, first)
            if softmax:
                store_heads(results.statistics, 2 * v * total_heads + head, heads_full(least))
                store_heads(results.statistics, (2 * v + 1) * total_heads + head, heads_full(0.0))
        weights = np.empty((count + step) * heads if has_score else 1, element)
        formed, chunk_first, chunk_last = room(), 0, 0
        if has_score:
            for q in range(0, count, step):
                if scores_products and min(q + step, count) > chunk_last:
                    chunk_first, chunk_last = q, fill(operands, ids, q, count, width, channel, formed)
                s, _, _, _, _ = score(
                    q, count, targets, sources, ids, operands, head_parameters, parameter_rows, total_heads, width,
                    head, channel, formed, chunk_first,
                )  # fmt: skip
                if seed is not None and not softmax:
                    s = s * dropout(seed, threshold, scale, ids, q, count, head)
                store_edges(weights, q * heads, s)
        if softmax:
            for q in range(count):
                place = 2 * targets[q] * total_heads + head
                raised = maximum(load_heads(results.statistics, place), load_heads(weights, q * heads))
                store_heads(results.statistics, place, raised)
            for q in range(0, count, step):
                tops = gather_edges(results.statistics, targets, q, count, 2 * total_heads, head)
                s = exp(above(load_edges(weights, q * heads), tops))
                store_edges(weights, q * heads, s)
                for k in range(q, min(q + step, count)):
                    place = (2 * targets[k] + 1) * total_heads + head
                    grown = load_heads(results.statistics, place) + load_heads(weights, k * heads)
                    store_heads(results.statistics, place, grown)
                if seed is not None:
                    store_edges(weights, q * heads, s * dropout(seed, threshold, scale, ids, q, count, head))
        chunk_last = 0
        for q in range(count):
            if sums_products and q >= chunk_last:
                chunk_first, chunk_last = q, fill(operands, ids, q, count, width, channel, formed)
            place = targets[q] * width + channel
            own_row = load_row(operands.resident_channels, place)
            other = load_row(operands.gathered_channels, sources[q] * width + channel)
            row = load_edge_rows(operands, ids[q], width, channel, formed, q - chunk_first)
            if has_score:
                weight = load_weight(weights, q * heads)
            else:
                weight = ()
            found = message(weight, (), own_row, (), other, (), row, (), parameter_rows, operands.scalars)
            result = load_row(results.out, place)
            if extreme:
                found = found + row_full(0.0)
                if smallest:
                    found = -found
                best, ties = maximum(found, result), load_row(results.statistics, place)
                ties = equal(found, best, equal(result, best, ties, 0.0) + 1.0, ties)
                store_row(results.statistics, place, ties)
                store_row(results.out, place, best)
            else:
                store_row(results.out, place, result + found)
        for v in range(few.num_targets):
            top, total, ties = heads_full(0.0), heads_full(0.0), row_full(0.0)
            if softmax:
                top = load_heads(results.statistics, 2 * v * total_heads + head)
                total = load_heads(results.statistics, (2 * v + 1) * total_heads + head)
            if extreme:
                ties = load_row(results.statistics, v * width + channel)
            result = load_row(results.out, v * width + channel)
            finish(v, head, channel, total_heads, width, degrees[v], result, ties, top, total, results)

    return forward
