"""The walks along few edges as they come: forward, and the whole adjoint.

One part of the work has all edges, times a tile of the row. It lists them first: their ends and ids, with self-loops
put in, on memory of its own that holds few numbers an edge. Rows of nodes are added to where they lie. They are few
enough for a core's caches, so that the order of edges costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments, Whole
from pygfuse.codegen.combination import finisher
from pygfuse.codegen.precision import SETTLED_AFTER, lowest
from pygfuse.cpu.edge_products import EdgeProducts
from pygfuse.cpu.ends import ends_of, is_any_outside
from pygfuse.cpu.inlining import add_tuples, compiled, copies, edge_row_loader
from pygfuse.cpu.instructions import Instructions
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.backward import adjoints_of, edge_products_of
from pygfuse.cpu.walks.parts import piece_of
from pygfuse.cpu.walks.score import above, edge_scorer, head_values
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET, BackwardPlan, used_by
from pygfuse.program.program import BoundProgram

# what `list_edges` tells of an edge that names a node which is not there
OUT_OF_RANGE = -1


class ListedEdges(NamedTuple):
    """Tiles of the row, the two rows of edges, which of them holds targets, the numbers of nodes and, not negative,
    of self-loops put in; and where the number of edges walked is written."""

    tiles: Tensor
    edges: Tensor
    target_row: int
    num_targets: int
    num_sources: int
    loops: int
    num_walked: Tensor


class Walked(NamedTuple):
    """The ends and ids of edges as `edge_scorer` takes them."""

    gathered: Tensor
    edge_id: Tensor


class OfTargets(NamedTuple):
    """What the adjoint reads of targets: the gradients of what messages are reduced to (before means are divided) and
    of the output, the output, and statistics as forward left them."""

    of_messages: Tensor
    grad_out: Tensor
    out: Tensor
    statistics: Tensor | None


class Gradients(NamedTuple):
    """Where the adjoint adds, or of edges writes, what it finds for the operands of each kind.

    Of products of edges that is the gradient of their weights.
    """

    source_heads: tuple[Tensor, ...]
    source_channels: tuple[Tensor, ...]
    target_heads: tuple[Tensor, ...]
    target_channels: tuple[Tensor, ...]
    edge_heads: tuple[Tensor, ...]
    edge_rows: tuple[Tensor, ...]
    edge_scalars: tuple[Tensor, ...]
    grad_weights: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]
    parameter_heads: tuple[Tensor, ...]


_FEW, _OPERANDS = Whole('few', ListedEdges), Whole('operands', shared.Operands)
LISTED_FORWARD = Arguments('part', _FEW, _OPERANDS, shared.Row, shared.Draws, Whole('results', shared.Results))
LISTED_BACKWARD = Arguments(
    *('part', _FEW, _OPERANDS, shared.Row, shared.Draws, Whole('of_targets', OfTargets), Whole('grads', Gradients)),
)


@inlined
def list_edges(few):
    """The targets, sources and ids of the edges that are walked, how many there are in all and at each target; in all
    `OUT_OF_RANGE`, where one names a node that is not there."""
    of_targets, of_sources, num_edges = ends_of(few.edges, few.target_row)
    most = num_edges + max(few.loops, 0) + 1
    targets, sources, ids = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    degrees = np.empty(few.num_targets + 1, np.int64)
    count = 0
    for edge in range(num_edges):
        target, source = of_targets[edge], of_sources[edge]
        targets[count], sources[count], ids[count] = target, source, edge
        # what is dropped is written over
        count += few.loops < 0 or target != source
    for v in range(few.loops):
        targets[count], sources[count], ids[count] = v, v, num_edges + v
        count += 1
    if is_any_outside(of_targets, of_sources, num_edges, few.num_targets, few.num_sources):
        count = OUT_OF_RANGE
    else:
        for v in range(few.num_targets):
            degrees[v] = 0
        for q in range(count):
            degrees[targets[q]] += 1
    few.num_walked[0] = count
    return targets, sources, ids, degrees, count


def _list_scorer(bound: BoundProgram, layout: Instructions) -> Callable:
    """``score(q, count, ...)``: of the edges that are scored side by side from `q` on, the scores, the values of heads
    or the row of their targets, and the values of sources and edges that they came from."""
    score, of_heads = edge_scorer(bound, layout, BY_TARGET), bound.score_is_of_heads
    gather_edges, load_row = layout.gather_edges, layout.load_row

    @inlined
    def score_edges(
        q, count, targets, sources, ids, operands, head_parameters, parameter_rows, total_heads, width, head, channel,
        formed, chunk_first,
    ):  # fmt: skip
        if of_heads:
            own_heads, own_row = gather_edges(operands.resident_heads, targets, q, count, total_heads, head), ()
        else:
            own_heads, own_row = (), load_row(operands.resident_channels, targets[q] * width + channel)
        found, others, on_edges = score(
            q, count, Walked(sources, ids), operands, own_heads, own_row, head_parameters, parameter_rows, total_heads,
            width, head, channel, (), count, formed, chunk_first,
        )  # fmt: skip
        return found, own_heads, own_row, others, on_edges

    return score_edges


def listed_forward_body(bound: BoundProgram, layout: Instructions, reduce: str) -> Callable:
    """The walk that computes the output and what its adjoint needs of it.

    All scores come first, then of a softmax each target's greatest and the sum of exponentials relative to it, which
    lie where the statistics will be, and last the messages.

    Args:
        bound: The program; products of edges are multiplied chunk by chunk, see `pygfuse.cpu.edge_products`.
        layout: What is held of a row; one edge at a time where scores are of channels.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
    """
    has_score, softmax = bound.score is not None, bound.softmax
    extreme, smallest = reduce in ('max', 'min'), reduce == 'min'
    score = _list_scorer(bound, layout) if has_score else None
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


def _edge_row_writer(layout: Instructions, bound: BoundProgram, names: Sequence[str], adds: bool) -> Callable:
    """``write(grads, edge, width, channel, of_formed, place, rows)``: writes, or adds, the gradients of an edge's
    channels where they lie, those of products in their chunk."""
    rows = [name for name in names if name in bound.edge_rows]
    places = [(f'grads.edge_rows[{i}]', 'edge * width + channel') for i in range(len(rows))]
    chunk = f'place * {layout.heads * layout.channels}'
    places += [(f'of_formed[{j}]', chunk) for j in range(len(names) - len(rows))]
    before = 'load_row({}, {}) + ' if adds else ''
    lines = [f'store_row({a}, {at}, {before.format(a, at)}rows[{i}])' for i, (a, at) in enumerate(places)]
    header = 'def write(grads, edge, width, channel, of_formed, place, rows):'
    text = '\n    '.join([header, *lines, 'return'])
    return compiled(text, load_row=layout.load_row, store_row=layout.store_row)


def listed_backward_body(bound: BoundProgram, layout: Instructions, plan: BackwardPlan, reduce: str) -> Callable:
    """The walk of the whole adjoint: scores and weights are computed again, an edge's gradients all at once.

    Args:
        bound, layout, reduce: As for forward.
        plan: What it computes, see `pygfuse.program.adjoint.whole_plan`.
    """
    has_score, softmax, of_heads = bound.score is not None, bound.softmax, bound.score_is_of_heads
    extreme, mean, through_score = reduce in ('max', 'min'), reduce == 'mean', plan.of_score(bound)
    of_sources = len(plan.by_end(bound)[0])
    of_message = len(used_by(bound.message, plan.edge_channels)) > 0
    of_score = through_score and len(used_by(bound.score, plan.edge_channels)) > 0
    with_parameters = len(plan.parameters) + len(plan.parameter_heads) > 0
    message_adjoint, score_adjoint, unsummed = adjoints_of(bound, layout, plan, BY_TARGET, extreme)
    score = _list_scorer(bound, layout) if has_score else None
    gradients_buffer, keep_gradient, load_gradients = head_values(layout, unsummed)
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    write_of_message = _edge_row_writer(layout, bound, plan.edge_channels, adds=False)
    write_of_score = _edge_row_writer(layout, bound, plan.edge_channels, adds=of_message)
    with_products, products = len(bound.edge_products) > 0, edge_products_of(layout, bound, plan)
    room, gradient_room, fill, differentiate = (
        products.room, products.gradient_room, products.fill, products.differentiate,
    )  # fmt: skip
    copy_parameters, copy_head_parameters = copies(len(plan.parameters)), copies(len(plan.parameter_heads))
    load_heads, load_row, store_heads = layout.load_heads, layout.load_row, layout.store_heads
    store_edges, add_edges, add_row, add_heads = layout.store_edges, layout.add_edges, layout.add_row, layout.add_heads
    scatter_edges, scatter_scalars, mask_edges = layout.scatter_edges, layout.scatter_scalars, layout.mask_edges
    gather_edges, repeat, buffer, dropout = layout.gather_edges, layout.repeat, layout.buffer, dropout_edges(layout)
    edges_full, row_full, step, heads = layout.edges_full, layout.row_full, layout.step, layout.heads
    element, exp, sum_channels = getattr(np, str(layout.element)), vocabulary.exp, vocabulary.sum_channels

    @LISTED_BACKWARD.of
    def backward(part, few, operands, total_heads, width, seed, threshold, scale, of_targets, grads):
        tile, _, head, channel = piece_of(part, few.tiles)
        num_tiles = len(few.tiles) // 2
        targets, sources, ids, degrees, count = list_edges(few)
        if count < 0:
            return
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = repeat(load_heads(operands.parameter_heads, head))
        parameter_sums, head_parameter_sums = copy_parameters(row_full(0.0)), copy_head_parameters(edges_full(0.0))
        unsettled = 0
        weights, through_buffer, weight_gradients = buffer(), buffer(), gradients_buffer()
        delta = np.empty((few.num_targets + 1) * heads if softmax else 1, element)
        formed, of_formed, chunk_first, chunk_last = room(), gradient_room(), 0, 0
        if softmax:
            for v in range(few.num_targets):
                place = v * width + channel
                product = load_row(of_targets.out, place) * load_row(of_targets.grad_out, place)
                store_heads(delta, v * heads, sum_channels(product))
        for q in range(0, count, step):
            end = min(q + step, count)
            if with_products and end > chunk_last:
                differentiate(
                    of_formed, operands, grads, (), ids, chunk_first, q - chunk_first, width, channel, 0, num_tiles,
                    tile,
                )  # fmt: skip
                chunk_first, chunk_last = q, fill(operands, ids, q, count, width, channel, formed)
            if has_score:
                alpha, own_heads, scored_row, others, on_edges = score(
                    q, count, targets, sources, ids, operands, head_parameters, parameter_rows, total_heads, width,
                    head, channel, formed, chunk_first,
                )  # fmt: skip
                if softmax:
                    top = gather_edges(of_targets.statistics, targets, q, count, 2 * total_heads, head)
                    factor = gather_edges(of_targets.statistics, targets, q, count, 2 * total_heads, total_heads + head)
                    alpha = exp(above(alpha, top)) * factor
                if seed is not None:
                    kept = dropout(seed, threshold, scale, ids, q, count, head)
                    store_edges(weights, 0, alpha * kept)
                else:
                    store_edges(weights, 0, alpha)
            for k in range(q, end):
                here, there = targets[k] * width + channel, sources[k] * width + channel
                own_row, other = load_row(operands.resident_channels, here), load_row(operands.gathered_channels, there)
                row = load_edge_rows(operands, ids[k], width, channel, formed, k - chunk_first)
                grad, reached = load_row(of_targets.of_messages, here), row_full(0.0)
                if mean:
                    grad = grad / degrees[targets[k]]
                if extreme:
                    reached = load_row(of_targets.out, here)
                if has_score:
                    weight = load_heads(weights, (k - q) * heads)
                else:
                    weight = ()
                found = message_adjoint(grad, reached, weight, own_row, other, row, parameter_rows, operands.scalars)
                if through_score:
                    keep_gradient(weight_gradients, k - q, found[0][0])
                add_row(grads.source_channels, there, found[1][:of_sources])
                add_row(grads.target_channels, here, found[1][of_sources:])
                if of_message:
                    write_of_message(grads, ids[k], width, channel, of_formed, k - chunk_first, found[2])
                parameter_sums = add_tuples(parameter_sums, found[3])
            if through_score:
                through = load_gradients(weight_gradients)
                if seed is not None:
                    through = through * kept
                if softmax:
                    through = alpha * (through - gather_edges(delta, targets, q, count, heads, 0))
                through = mask_edges(through, count - q, 0.0)
                if of_heads:
                    flows = score_adjoint(
                        through, own_heads, (), others, (), on_edges, (), head_parameters, (), operands.scalars
                    )
                    add_edges(grads.source_heads, sources, q, count, total_heads, head, flows[0])
                    add_edges(grads.target_heads, targets, q, count, total_heads, head, flows[1])
                    scatter_edges(grads.edge_heads, ids, q, count, total_heads, head, flows[2])
                    scatter_scalars(grads.edge_scalars, ids, q, count, num_tiles, tile, flows[6])
                    head_parameter_sums = add_tuples(head_parameter_sums, flows[7])
                else:
                    store_edges(through_buffer, 0, through)
                    here, there = targets[q] * width + channel, sources[q] * width + channel
                    row = load_edge_rows(operands, ids[q], width, channel, formed, q - chunk_first)
                    flow = score_adjoint(
                        load_heads(through_buffer, 0), (), scored_row, (), load_row(operands.gathered_channels, there),
                        (), row, (), parameter_rows, operands.scalars,
                    )  # fmt: skip
                    add_row(grads.source_channels, there, flow[3][:of_sources])
                    add_row(grads.target_channels, here, flow[3][of_sources:])
                    if of_score:
                        write_of_score(grads, ids[q], width, channel, of_formed, q - chunk_first, flow[4])
                    parameter_sums = add_tuples(parameter_sums, flow[5])
            if with_parameters:
                unsettled += step
                if unsettled >= SETTLED_AFTER or q + step >= count:
                    add_row(grads.parameters, channel, parameter_sums)
                    add_heads(grads.parameter_heads, head, head_parameter_sums)
                    parameter_sums = copy_parameters(row_full(0.0))
                    head_parameter_sums = copy_head_parameters(edges_full(0.0))
                    unsettled = 0
        differentiate(
            of_formed, operands, grads, (), ids, chunk_first, count - chunk_first, width, channel, 0, num_tiles, tile
        )  # fmt: skip

    return backward
