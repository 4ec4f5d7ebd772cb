"""The forward walk, the combination of rows that lie in several parts, and the walk that gives weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pygfuse.codegen.precision import SLACK, lowest
from pygfuse.cpu.inlining import compiled, edge_row_loader, edge_row_prefetcher
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.memory import place_at
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.arguments import COMBINE, FORWARD, WEIGHTS
from pygfuse.cpu.walks.score import group_scorer
from pygfuse.cpu.work import piece_of, rows_of
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram

# softmax in one pass; or its statistics first, and then the sums
ONE_PASS, STATISTICS, GIVEN = 'one pass', 'statistics', 'given'

# how many edges ahead their features are asked for
AHEAD = 16


def _finisher(layout: Layout, softmax: bool, reduce: str, form: str) -> Callable:
    """``finish(...)``: writes a whole row's output and what its adjoint needs."""
    extreme, smallest, mean = reduce in ('max', 'min'), reduce == 'min', reduce == 'mean'
    normalised, sums = softmax and form != GIVEN, form != STATISTICS
    store_heads, store_row, row_zeros = layout.store_heads, layout.store_row, layout.row_zeros
    equal = vocabulary.equal

    @inlined
    def finish(v, head, channel, total_heads, width, degree, result, ties, top, total, out, statistics):
        if extreme:
            if degree == 0:
                result = row_zeros()
            # torch counts the zero that a row begins with among the ties, although it takes no part
            store_row(statistics, v * width + channel, equal(result, 0.0, ties + 1.0, ties))
            if smallest:
                result = -result
        if degree > 0:
            if normalised:
                result = result * (1.0 / total)
                store_heads(statistics, 2 * v * total_heads + head, top)
                store_heads(statistics, (2 * v + 1) * total_heads + head, 1.0 / total)
            if mean:
                result = result * (1.0 / degree)
        if sums:
            store_row(out, v * width + channel, result)

    return finish


def forward_body(
    bound: BoundProgram, layout: Layout, reduce: str, form: str = ONE_PASS, scattered: bool = False
) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    Softmax takes one pass with a running maximum: where a score exceeds it by more than a slack (hardly ever after a
    row's first group), the sums so far are scaled down. It leaves of each row and head that maximum and the reciprocal
    of the sum of exponentials relative to it. Or it takes two: one of `form` ``'statistics'`` that leaves only these,
    and one of `form` ``'given'`` that reads them, so that a row's pieces leave plain sums. A maximum (or minimum)
    leaves, for each value of the row, the number of edges among which torch divides its gradient. Of a row that is not
    whole in this part, the state is left in the part's slot.

    Edges that are in no order (`scattered`) are each a piece of its row: `indptr` then holds the row of each edge, and
    the sums are added up in the part's own copy of all rows.

    Args:
        bound: The program.
        layout: What is held of a row.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        form: What of a softmax is computed.
        scattered: Whether edges are in no order; for sums without softmax only.
    """
    has_score, given, sums = bound.score is not None, bound.softmax and form == GIVEN, form != STATISTICS
    softmax = bound.softmax and not given
    extreme, smallest = reduce in ('max', 'min'), reduce == 'min'
    score = group_scorer(bound, layout, BY_TARGET) if has_score else None
    message = compiled(bound.text(bound.message, 'message', BY_TARGET))
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    with_edge_rows = len(bound.edge_rows) + len(bound.edge_products) > 0
    fetch_edge_rows = edge_row_prefetcher(len(bound.edge_rows), len(bound.edge_products))
    finish, least = _finisher(layout, softmax, reduce, form), lowest(str(layout.element))
    group, heads = layout.group, layout.heads
    load_heads, load_row, mask_edges = layout.load_heads, layout.load_row, layout.mask_edges
    store_heads, store_row, store_edges = layout.store_heads, layout.store_row, layout.store_edges
    any_above, max_edges, sum_edges = layout.any_above, layout.max_edges, layout.sum_edges
    heads_full, edges_full, row_zeros = layout.heads_full, layout.edges_full, layout.row_zeros
    repeat, buffer, dropout = layout.repeat, layout.buffer, dropout_edges(layout)
    exp, maximum, equal = vocabulary.exp, vocabulary.maximum, vocabulary.equal

    @FORWARD.of
    def forward(
        part, tiles, bounds, indptr, index, edge_id,
        resident_heads, resident_channels, gathered_heads, gathered_channels,
        edge_heads, edge_scalars, edge_rows, edge_features, edge_weights, parameter_heads, parameters, scalars,
        total_heads, width, num_rows, seed, threshold, scale, out, statistics,
        partial_rows, partial_tops, partial_totals,
    ):  # fmt: skip
        _, piece, head, channel = piece_of(part, tiles)
        parameter_rows, head_parameters = load_row(parameters, channel), repeat(load_heads(parameter_heads, head))
        weights = buffer()
        if scattered:
            first, last = first_edge, last_edge = bounds[2 * piece + 1], bounds[2 * piece + 3]
        else:
            first, last, first_edge, last_edge = rows_of(piece, bounds, indptr)
        for i in range(first, last):
            if scattered:
                v, begin, end = place_at(indptr, i), i, i + 1
                row_begin, row_end = begin, end
            else:
                v, row_begin, row_end = i, place_at(indptr, i), place_at(indptr, i + 1)
                begin, end = max(row_begin, first_edge), min(row_end, last_edge)
            own_heads = repeat(load_heads(resident_heads, v * total_heads + head))
            own_row = load_row(resident_channels, v * width + channel)
            top, total, result, ties = heads_full(least), edges_full(0.0), row_zeros(), row_zeros()
            if given:
                row_top = repeat(load_heads(statistics, 2 * v * total_heads + head))
                row_factor = repeat(load_heads(statistics, (2 * v + 1) * total_heads + head))
            if extreme:
                result = result - np.inf
            for q in range(begin, end, group):
                count = min(group, end - q)
                if has_score:
                    s, _, _ = score(
                        q, end, index, edge_id, own_heads, own_row, gathered_heads, gathered_channels,
                        edge_heads, edge_scalars, edge_rows, edge_features, edge_weights,
                        head_parameters, parameter_rows, scalars, total_heads, width, head, channel, weights,
                    )  # fmt: skip
                    if softmax:
                        s = mask_edges(s, end - q, -np.inf)
                        if any_above(s, top + SLACK):
                            raised = maximum(top, max_edges(s))
                            factor = exp(top - raised)
                            result, total, top = result * factor, total * factor, raised
                        s = exp(s - top)
                        total = total + s
                    if given:
                        s = exp(s - row_top) * row_factor
                    if seed is not None:
                        s = s * dropout(seed, threshold, scale, edge_id, q, end, head)
                    store_edges(weights, 0, s)
                for k in range(count if sums else 0):
                    if with_edge_rows:
                        ahead = place_at(edge_id, min(q + k + AHEAD, last_edge - 1))
                        fetch_edge_rows(edge_rows, edge_features, edge_weights, ahead, width)
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
            over_edges = sum_edges(total)
            if scattered:
                place = (piece * num_rows + v) * width + channel
                store_row(partial_rows, place, load_row(partial_rows, place) + result)
            elif begin == row_begin and end == row_end:
                finish(
                    v, head, channel, total_heads, width, end - begin, result, ties, top, over_edges, out, statistics
                )  # fmt: skip
            else:
                slot = 2 * piece + (begin == row_begin)
                store_row(partial_rows, slot * width + channel, result)
                if extreme:
                    store_row(partial_tops, slot * width + channel, ties)
                if softmax:
                    store_heads(partial_tops, slot * total_heads + head, top)
                    store_heads(partial_totals, slot * total_heads + head, over_edges)

    return forward


def combine_body(layout: Layout, softmax: bool, reduce: str, form: str = ONE_PASS) -> Callable:
    """Finishes the rows that lie in several parts, from what their parts left, in the order of edges."""
    extreme, softmax = reduce in ('max', 'min'), softmax and form != GIVEN
    finish, least = _finisher(layout, softmax, reduce, form), lowest(str(layout.element))
    load_heads, load_row = layout.load_heads, layout.load_row
    heads_full, row_zeros = layout.heads_full, layout.row_zeros
    exp, maximum, equal = vocabulary.exp, vocabulary.maximum, vocabulary.equal

    @COMBINE.of
    def combine(
        part, tiles, split_rows, split_indptr, slots, indptr, total_heads, width,
        partial_rows, partial_tops, partial_totals, out, statistics,
    ):  # fmt: skip
        _, split, head, channel = piece_of(part, tiles)
        v = split_rows[split]
        top, total, result, ties = heads_full(least), heads_full(0.0), row_zeros(), row_zeros()
        if extreme:
            result = result - np.inf
        for k in range(split_indptr[split], split_indptr[split + 1]):
            slot = slots[k]
            found = load_row(partial_rows, slot * width + channel)
            if extreme:
                best = maximum(found, result)
                theirs = equal(found, best, load_row(partial_tops, slot * width + channel), 0.0)
                result, ties = best, equal(result, best, ties, 0.0) + theirs
            elif softmax:
                their_top = load_heads(partial_tops, slot * total_heads + head)
                raised = maximum(top, their_top)
                mine, theirs = exp(top - raised), exp(their_top - raised)
                result, top = result * mine + found * theirs, raised
                total = total * mine + load_heads(partial_totals, slot * total_heads + head) * theirs
            else:
                result = result + found
        degree = place_at(indptr, v + 1) - place_at(indptr, v)
        finish(v, head, channel, total_heads, width, degree, result, ties, top, total, out, statistics)

    return combine


def weights_body(bound: BoundProgram, layout: Layout) -> Callable:
    """The walk that writes each edge's weight, before dropout, at the edge's id; of a softmax it reads the statistics.

    Args:
        bound: A program with a score.
        layout: What is held of a row.
    """
    softmax, score, exp = bound.softmax, group_scorer(bound, layout, BY_TARGET), vocabulary.exp
    group, load_heads, load_row = layout.group, layout.load_heads, layout.load_row
    repeat, buffer, scatter_edges = layout.repeat, layout.buffer, layout.scatter_edges

    @WEIGHTS.of
    def weights(
        part, tiles, bounds, indptr, index, edge_id,
        resident_heads, resident_channels, gathered_heads, gathered_channels,
        edge_heads, edge_scalars, edge_rows, edge_features, edge_weights, parameter_heads, parameters, scalars,
        total_heads, width, statistics, result,
    ):  # fmt: skip
        _, piece, head, channel = piece_of(part, tiles)
        parameter_rows, head_parameters = load_row(parameters, channel), repeat(load_heads(parameter_heads, head))
        room = buffer()
        first_row, end_row, first_edge, last_edge = rows_of(piece, bounds, indptr)
        for v in range(first_row, end_row):
            begin, end = max(place_at(indptr, v), first_edge), min(place_at(indptr, v + 1), last_edge)
            own_heads = repeat(load_heads(resident_heads, v * total_heads + head))
            own_row = load_row(resident_channels, v * width + channel)
            if softmax:
                top = repeat(load_heads(statistics, 2 * v * total_heads + head))
                factor = repeat(load_heads(statistics, (2 * v + 1) * total_heads + head))
            for q in range(begin, end, group):
                s, _, _ = score(
                    q, end, index, edge_id, own_heads, own_row, gathered_heads, gathered_channels,
                    edge_heads, edge_scalars, edge_rows, edge_features, edge_weights,
                    head_parameters, parameter_rows, scalars, total_heads, width, head, channel, room,
                )  # fmt: skip
                if softmax:
                    s = exp(s - top) * factor
                scatter_edges((result,), edge_id, q, end, total_heads, head, (s,))

    return weights
