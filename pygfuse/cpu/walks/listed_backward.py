"""The walk along few edges as they come that gives the whole adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments, Whole
from pygfuse.codegen.precision import SETTLED_AFTER
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.walks.arguments import Panels
from pygfuse.cpu.walks.backward import adjoints_of, edge_products_of
from pygfuse.cpu.walks.inlining import add_tuples, compiled, copies, edge_row_loader
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.listed import FEW, OPERANDS, list_edges, list_scorer
from pygfuse.cpu.walks.parts import piece_of
from pygfuse.cpu.walks.score import above, head_values
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET, BackwardPlan, used_by
from pygfuse.program.program import BoundProgram


class OfTargets(NamedTuple):
    """What the adjoint reads of targets: the gradients of what messages are reduced to (before means are divided) and
    of the output, the output, and statistics as forward left them."""

    of_messages: Tensor
    grad_out: Tensor
    out: Tensor
    statistics: Tensor | None


class Gradients(NamedTuple):
    """Where the adjoint adds, or of edges writes, what it finds for the operands of each kind.

    Of products of edges that is the gradient of their weights, and of features where it is wanted.
    """

    source_heads: tuple[Tensor, ...]
    source_channels: tuple[Tensor, ...]
    target_heads: tuple[Tensor, ...]
    target_channels: tuple[Tensor, ...]
    edge_heads: tuple[Tensor, ...]
    edge_rows: tuple[Tensor, ...]
    edge_scalars: tuple[Tensor, ...]
    grad_weights: tuple[Tensor, ...]
    grad_features: tuple[tuple[Tensor, Tensor], ...]
    parameters: tuple[Tensor, ...]
    parameter_heads: tuple[Tensor, ...]


LISTED_BACKWARD = Arguments(
    *('part', FEW, OPERANDS, shared.Row, shared.Draws),
    *(Whole('of_targets', OfTargets), Whole('grads', Gradients), Panels),
)


def _edge_row_writer(layout: Instructions, bound: BoundProgram, names: Sequence[str], adds: bool) -> Function:
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
    score = list_scorer(bound, layout) if has_score else None
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
    def backward(part, few, operands, total_heads, width, seed, threshold, scale, of_targets, grads, panels):
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
                    of_formed, operands, grads, panels, ids, chunk_first, q - chunk_first, width, channel, 0, num_tiles,
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
            of_formed, operands, grads, panels, ids, chunk_first, count - chunk_first, width, channel, 0, num_tiles,
            tile,
        )  # fmt: skip

    return backward
