"""The forward walk, and the combination of rows that lie in several parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pygfuse.codegen.combination import combiner, finisher, leaver, resumer
from pygfuse.codegen.precision import SLACK, lowest
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.arguments import COMBINE, FORWARD, SETTLE
from pygfuse.cpu.walks.edge_products import EdgeProducts
from pygfuse.cpu.walks.inlining import compiled, edge_row_loader
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.parts import piece_of, row_walkers
from pygfuse.cpu.walks.score import above, edge_row_fetcher, edge_scorer, head_fetcher, row_fetcher
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram

# softmax in one pass; or its statistics first, and then the sums
ONE_PASS, STATISTICS, GIVEN = 'one pass', 'statistics', 'given'


def forward_body(
    bound: BoundProgram,
    layout: Instructions,
    reduce: str,
    form: str = ONE_PASS,
    scattered: bool = False,
    carried: bool = False,
) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    Softmax takes one pass with a running maximum: where a score exceeds it by more than a slack (hardly ever after a
    row's first step), the sums so far are scaled down. It leaves of each row and head that maximum and the reciprocal
    of the sum of exponentials relative to it. Or it takes two: one of `form` ``'statistics'`` that leaves only these,
    and one of `form` ``'given'`` that reads them, so that a row's pieces leave plain sums. A maximum (or minimum)
    leaves, for each value of the row, the number of edges among which torch divides its gradient. Of a row that is not
    whole in this part, the state is left in the part's slot.

    Edges that are in no order (`scattered`, see `row_walkers`) are added up in the part's own copy of all rows. Where
    edges are walked block by block (`carried`), each block goes on with the state of a row in the slot of its number,
    and leaves it there; no row lies in several parts, and `settle_body` finishes all rows.

    Args:
        bound: The program.
        layout: What is held of a row.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        form: What of a softmax is computed.
        scattered: Whether edges are in no order; for sums without softmax only.
        carried: Whether the edges are one block of several; for one pass only.
    """
    has_score, given, sums = bound.score is not None, bound.softmax and form == GIVEN, form != STATISTICS
    softmax = bound.softmax and not given
    extreme, smallest = reduce in ('max', 'min'), reduce == 'min'
    score = edge_scorer(bound, layout, BY_TARGET) if has_score else None
    message = compiled(bound.text(bound.message, 'message', BY_TARGET))
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    with_edge_rows, fetch_edge_rows = len(bound.edge_rows) > 0, edge_row_fetcher(bound, layout)
    with_products, products = len(bound.edge_products) > 0, EdgeProducts(layout, len(bound.edge_products))
    room, fill = products.room, products.fill
    fetches, fetch_rows, fetch_heads = bound.score_is_of_heads, row_fetcher(layout), head_fetcher(layout)
    is_long = bound.message.is_long and not has_score
    finish, leave = finisher(layout, reduce, softmax, sums), leaver(layout, reduce, softmax)
    resume = resumer(layout, str(layout.element), reduce, softmax)
    least = lowest(str(layout.element))
    step, heads = layout.step, layout.heads
    load_weight = layout.load_spread if bound.message.is_spread('weight') else layout.load_heads
    load_heads, load_row, mask_edges = layout.load_heads, layout.load_row, layout.mask_edges
    store_row, store_edges = layout.store_row, layout.store_edges
    rows_of, row_at = row_walkers(scattered)
    any_above, max_edges, sum_edges = layout.any_above, layout.max_edges, layout.sum_edges
    heads_full, edges_full, row_full = layout.heads_full, layout.edges_full, layout.row_full
    repeat, buffer, dropout = layout.repeat, layout.buffer, dropout_edges(layout)
    exp, maximum, equal = vocabulary.exp, vocabulary.maximum, vocabulary.equal

    @FORWARD.of
    def forward(part, walked, operands, total_heads, width, num_rows, seed, threshold, scale, results, partial):
        _, piece, head, channel = piece_of(part, walked.tiles)
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = repeat(load_heads(operands.parameter_heads, head))
        weights = buffer()
        first, last, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
        formed, chunk_first, chunk_last = room(), first_edge, first_edge
        for i in range(first, last):
            v, begin, end, is_whole, slot = row_at(i, (), piece, walked.indptr, first_edge, last_edge)
            if carried and begin == end:
                continue
            own_heads = repeat(load_heads(operands.resident_heads, v * total_heads + head))
            own_row = load_row(operands.resident_channels, v * width + channel)
            top, total, result, ties = heads_full(least), edges_full(0.0), row_full(0.0), row_full(0.0)
            if given:
                row_top = repeat(load_heads(results.statistics, 2 * v * total_heads + head))
                row_factor = repeat(load_heads(results.statistics, (2 * v + 1) * total_heads + head))
            if carried:
                result, ties, top, before = resume(v, head, channel, total_heads, width, partial)
                if softmax:
                    total = total + repeat(before) * (1.0 / step)
            elif extreme:
                result = result - np.inf
            for q in range(begin, end, step):
                count = min(step, end - q)
                if has_score:
                    if with_products and q + count > chunk_last:
                        chunk_first, chunk_last = (
                            q,
                            fill(operands, walked.edge_id, q, last_edge, width, channel, formed),
                        )
                    s, _, _ = score(
                        q, end, walked, operands, own_heads, own_row, head_parameters, parameter_rows,
                        total_heads, width, head, channel, operands.gathered_channels, last_edge, formed, chunk_first,
                    )  # fmt: skip
                    if softmax:
                        s = mask_edges(s, end - q, -np.inf)
                        if any_above(s, top + SLACK):
                            raised = maximum(top, max_edges(s))
                            # nothing was added up before a row's first edges
                            if carried or q > begin:
                                factor = exp(top - raised)
                                result, total = result * factor, total * factor
                            top = raised
                        s = exp(above(s, top))
                        total = total + s
                    if given:
                        s = exp(above(s, row_top)) * row_factor
                    if seed is not None:
                        s = s * dropout(seed, threshold, scale, walked.edge_id, q, end, head)
                    store_edges(weights, 0, s)
                for k in range(count if sums else 0):
                    if with_edge_rows:
                        fetch_edge_rows(q + k, last_edge, walked, operands, width, channel)
                    if fetches or is_long:
                        fetch_rows(q + k, last_edge, walked, operands.gathered_channels, width, channel)
                    if fetches:
                        fetch_heads(q + k, last_edge, walked, operands.gathered_heads, total_heads, head)
                    if with_products and not has_score and q + k >= chunk_last:
                        chunk_first = q + k
                        chunk_last = fill(operands, walked.edge_id, chunk_first, last_edge, width, channel, formed)
                    other = load_row(operands.gathered_channels, place_at(walked.gathered, q + k) * width + channel)
                    edge = place_at(walked.edge_id, q + k)
                    row = load_edge_rows(operands, edge, width, channel, formed, q + k - chunk_first)
                    weight = load_weight(weights, k * heads)
                    found = message(weight, (), own_row, (), other, (), row, (), parameter_rows, operands.scalars)
                    if extreme:
                        found = found + row_full(0.0)
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
                store_row(partial.partial_rows, place, load_row(partial.partial_rows, place) + result)
            elif carried:
                leave(v, head, channel, total_heads, width, result, ties, top, over_edges, partial)
            elif is_whole:
                finish(
                    v, head, channel, total_heads, width, end - begin, result, ties, top, over_edges, results
                )  # fmt: skip
            else:
                leave(slot, head, channel, total_heads, width, result, ties, top, over_edges, partial)

    return forward


def combine_body(lanes: Instructions, softmax: bool, reduce: str, form: str = ONE_PASS) -> Callable:
    """Finishes the rows that lie in several parts."""
    combine_row = combiner(lanes, str(lanes.element), reduce, softmax and form != GIVEN, form != STATISTICS)

    @COMBINE.of
    def combine(part, left, indptr, total_heads, width, partial, results):
        _, split, head, channel = piece_of(part, left.tiles)
        combine_row(split, head, channel, left, indptr, total_heads, width, partial, results)

    return combine


def settle_body(lanes: Instructions, softmax: bool, reduce: str) -> Callable:
    """Finishes all rows, whose states were carried from block to block of their edges."""
    resume = resumer(lanes, str(lanes.element), reduce, softmax)
    finish, place_at = finisher(lanes, reduce, softmax), lanes.place_at

    @SETTLE.of
    def settle(part, settled, total_heads, width, partial, results):
        _, piece, head, channel = piece_of(part, settled.tiles)
        for v in range(piece * settled.rows_a_part, min((piece + 1) * settled.rows_a_part, settled.num_rows)):
            degree = place_at(settled.indptr, v + 1) - place_at(settled.indptr, v)
            result, ties, top, total = resume(v, head, channel, total_heads, width, partial)
            finish(v, head, channel, total_heads, width, degree, result, ties, top, total, results)

    return settle
