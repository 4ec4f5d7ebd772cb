"""The forward walk, and the combination of rows that lie in several parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pygfuse.codegen.combination import combiner, finisher, folder, leaver
from pygfuse.codegen.parts import row_reader, rows_reader
from pygfuse.codegen.precision import SLACK, lowest
from pygfuse.cuda.walks.arguments import COMBINE, FOLD, FORWARD
from pygfuse.cuda.walks.edges import RESIDENT, Batch, tile_reader
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram


def _messenger(lanes: Any, bound: BoundProgram) -> Callable:
    """``message(edge, weight, ...)``: the message of a loaded edge."""
    message, row_full = lanes.compiled(bound.text(bound.message, 'message', BY_TARGET)), lanes.row_full

    @lanes.inlined
    def message_edge(edge, weight, own_heads, own_row, head_parameters, parameters, scalars):
        _, _, other_heads, other, on_edge, row = edge
        found = message(
            weight, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars
        )
        return row_full(0.0) + found

    return message_edge


def _reducer(lanes: Any, reduce: str) -> Callable:
    """``take(state, edge, found)``: the sums, or the extremes and the numbers of edges that attain them."""
    extreme, smallest, choose, rounded = reduce in ('max', 'min'), reduce == 'min', lanes.choose, lanes.rounded
    maximum, equal = vocabulary.maximum, vocabulary.equal

    @lanes.inlined
    def take(state, edge, found):
        result, ties = state
        if not extreme:
            return result + choose(edge[0], found, 0.0), ties
        # what is compared with the output in backward must be what the output can hold
        found = rounded(found)
        if smallest:
            found = -found
        best = maximum(found, result)
        attained = equal(found, best, equal(result, best, ties, 0.0) + 1.0, ties)
        return choose(edge[0], best, result), choose(edge[0], attained, ties)

    return take


def _subteam_merger(lanes: Any, softmax: bool, extreme: bool) -> Callable:
    """``merge(state, top, total)``: the state of a row from those of the subteams that walked it."""
    sum_subteams, max_subteams = lanes.sum_subteams, lanes.max_subteams
    alone, exp, equal = lanes.layout.subteams == 1, vocabulary.exp, vocabulary.equal

    @lanes.inlined
    def merge(state, top, total):
        result, ties = state
        if alone:
            return result, ties, top, total
        if extreme:
            best = max_subteams(result)
            return best, sum_subteams(equal(result, best, ties, 0.0)), top, total
        if softmax:
            raised = max_subteams(top)
            factor = exp(top - raised)
            return sum_subteams(result * factor), ties, raised, sum_subteams(total * factor)
        return sum_subteams(result), ties, top, total

    return merge


def forward_body(bound: BoundProgram, lanes: Any, reduce: str, two_pass: bool) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    Softmax takes one pass with a running maximum: where a score exceeds it by more than a slack (hardly ever after a
    row's first batch), the sums so far are scaled down. Or it takes two over the edges of a row: the greatest score
    first, then the sums. It leaves of each row and head that maximum and the reciprocal of the sum of exponentials
    relative to it. A maximum (or minimum) leaves, for each value of the row, the number of edges among which torch
    divides its gradient. Of a row that is not whole in this part, the state is left in the part's slot.

    Args:
        bound: The program.
        lanes: The instructions of a lane.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        two_pass: Whether a softmax takes two passes.
    """
    has_score, softmax, extreme = bound.score is not None, bound.softmax, reduce in ('max', 'min')
    load_heads, load_row, rows_of, row_at = lanes.load_heads, lanes.load_row, rows_reader(lanes), row_reader(lanes)
    heads_full, row_full, leave = lanes.heads_full, lanes.row_full, leaver(lanes, reduce, softmax)
    choose, any_above, dropout, place_at = lanes.choose, lanes.any_above, lanes.dropout, lanes.place_at
    team_number, team_count, subteam_number, tile_of = (
        lanes.team_number, lanes.team_count, lanes.subteam_number, tile_reader(lanes),
    )  # fmt: skip
    exp, maximum, above, least = vocabulary.exp, vocabulary.maximum, lanes.above, lowest(lanes.layout.compute)
    finish, merge = finisher(lanes, reduce, softmax), _subteam_merger(lanes, softmax, extreme)
    batch = Batch(lanes, bound)
    step, places, load_edges, copy = batch.step, batch.places(), batch.loaded(), lanes.copies(batch.size)
    send = batch.mapped(_messenger(lanes, bound), ['edges', 'weights'], RESIDENT)
    take = batch.folded(_reducer(lanes, reduce), ['edges', 'found'])
    score = batch.scored() if has_score else None

    @lanes.inlined
    def absent(found, edge):
        return choose(edge[0], found, -np.inf)

    @lanes.inlined
    def higher(state, found):
        return maximum(state, found)

    @lanes.inlined
    def weigh(found, top):
        return exp(above(found, top))

    @lanes.inlined
    def add(state, found):
        return state + found

    @lanes.inlined
    def drop(weight, edge, seed, threshold, scale, head):
        return weight * dropout(seed, threshold, scale, edge[1], head)

    mask, highest = batch.mapped(absent, ['found', 'edges']), batch.folded(higher, ['found'])
    weigh_all, add_all = batch.mapped(weigh, ['found'], ['top']), batch.folded(add, ['found'])
    drop_all = batch.mapped(drop, ['weights', 'edges'], ['seed', 'threshold', 'scale', 'head'])

    @FORWARD.of
    def forward(
        parts, walked, operands, sizes, total_heads, width, seed, threshold, scale, results, partial,
    ):  # fmt: skip
        subteam, (_, head, channel) = subteam_number(), tile_of(walked.tiles)
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = load_heads(operands.parameter_heads, head)
        for piece in range(team_number(), parts, team_count()):
            first_row, end_row, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
            for v in range(first_row, end_row):
                begin, end, is_whole, slot = row_at(v, piece, walked.indptr, first_edge, last_edge)
                own_heads = load_heads(operands.resident_heads, v * total_heads + head)
                own_row = load_row(operands.resident_channels, v * width + channel)
                top, total, state = heads_full(least), heads_full(0.0), (row_full(0.0), row_full(0.0))
                if extreme:
                    state = (row_full(-np.inf), row_full(0.0))
                if two_pass:
                    for q in range(begin, end, step):
                        edges = load_edges(
                            places(q + subteam), end, walked, operands, sizes, total_heads, width, head, channel
                        )
                        weights = score(edges, own_heads, own_row, head_parameters, parameter_rows, operands.scalars)
                        top = highest(top, mask(weights, edges))
                for q in range(begin, end, step):
                    edges = load_edges(
                        places(q + subteam), end, walked, operands, sizes, total_heads, width, head, channel
                    )
                    weights = copy(heads_full(1.0))
                    if has_score:
                        weights = score(edges, own_heads, own_row, head_parameters, parameter_rows, operands.scalars)
                        if softmax:
                            weights = mask(weights, edges)
                            if not two_pass:
                                peak = highest(top, weights)
                                if any_above(peak, top + SLACK):
                                    factor = exp(top - peak)
                                    state, total, top = (state[0] * factor, state[1]), total * factor, peak
                            weights = weigh_all(weights, top)
                            total = add_all(total, weights)
                        if seed is not None:
                            weights = drop_all(weights, edges, place_at(seed, 0), threshold, scale, head)
                    found = send(edges, weights, own_heads, own_row, head_parameters, parameter_rows, operands.scalars)
                    state = take(state, edges, found)
                result, ties, top, total = merge(state, top, total)
                if is_whole:
                    finish(
                        v, head, channel, total_heads, width, end - begin, result, ties, top, total, results
                    )  # fmt: skip
                else:
                    leave(slot, head, channel, total_heads, width, result, ties, top, total, partial)

    return forward


def combine_body(lanes: Any, softmax: bool, reduce: str) -> Callable:
    """Finishes the rows that lie in several parts."""
    combine_row, tile_of = combiner(lanes, lanes.layout.compute, reduce, softmax), tile_reader(lanes)
    team_number, team_count = lanes.team_number, lanes.team_count

    @COMBINE.of
    def combine(splits, left, indptr, total_heads, width, partial, results):
        _, head, channel = tile_of(left.tiles)
        for split in range(team_number(), splits, team_count()):
            combine_row(split, head, channel, left, indptr, total_heads, width, partial, results)

    return combine


def fold_body(lanes: Any, softmax: bool, reduce: str) -> Callable:
    """Leaves, of each run of pieces of a row, what these leave together."""
    fold, leave = folder(lanes, lanes.layout.compute, reduce, softmax), leaver(lanes, reduce, softmax)
    team_number, team_count, tile_of, place_at = (
        lanes.team_number, lanes.team_count, tile_reader(lanes), lanes.place_at,
    )  # fmt: skip

    @FOLD.of
    def fold_pieces(runs, left, total_heads, width, partial):
        _, head, channel = tile_of(left.tiles)
        for run in range(team_number(), runs, team_count()):
            result, ties, top, total = fold(run, head, channel, left, total_heads, width, partial)
            slot = place_at(left.split_rows, run)
            leave(slot, head, channel, total_heads, width, result, ties, top, total, partial)

    return fold_pieces


def dots_body(lanes: Any) -> Callable:
    """The dot of two rows over each head's channels."""
    load_row, put_heads, sum_channels, tile_of = (
        lanes.load_row, lanes.put_heads, lanes.sum_channels, tile_reader(lanes),
    )  # fmt: skip
    team_number, team_count = lanes.team_number, lanes.team_count

    def dots(rows, tiles, x, y, total_heads, width, result):
        _, head, channel = tile_of(tiles)
        for v in range(team_number(), rows, team_count()):
            product = load_row(x, v * width + channel) * load_row(y, v * width + channel)
            put_heads(result, v * total_heads + head, sum_channels(product))

    return dots
