"""The adjoint's walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.codegen.arguments import Draws
from pygfuse.codegen.combination import writers
from pygfuse.codegen.parts import row_reader, rows_reader
from pygfuse.codegen.precision import SETTLED_AFTER
from pygfuse.cuda.walks.arguments import BACKWARD
from pygfuse.cuda.walks.edges import EDGE_ARGUMENTS, RESIDENT, Batch, edge_loader, edge_scorer, tile_reader
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_SOURCE, BY_TARGET, BackwardPlan
from pygfuse.program.program import TARGET, BoundProgram


def _message_adjoint(
    bound: BoundProgram, lanes: Any, plan: BackwardPlan, sides: dict[str, str], extreme: bool
) -> Callable:
    """``adjoint(grad, reached, weight, ...)``: gradients for the weight, the resident channels, the edge's channels and
    the parameters, as tuples; for an extreme, of the edges that attain it only."""
    channels, edges, parameters = plan.rows_of(bound.message)
    through = ['weight'] if plan.of_score(bound) else []
    text = bound.adjoint_text(bound.message, 'derive', [through, channels, edges, parameters], sides)
    derive, message = lanes.compiled(text), lanes.compiled(bound.text(bound.message, 'message', sides))
    fill_channels, fill_edges = lanes.spread(plan.channels, channels), lanes.spread(plan.edge_channels, edges)
    fill_parameters, fill_weight = lanes.spread(plan.parameters, parameters), lanes.spread_heads(through, through)
    equal, rounded, row_full = vocabulary.equal, lanes.rounded, lanes.row_full

    @lanes.inlined
    def adjoint(grad, reached, weight, own_row, other, row, parameters, scalars):
        if extreme:
            found = message(weight, (), own_row, (), other, (), row, (), parameters, scalars)
            # as in torch, which multiplies with a mask: NaN for all edges of a NaN
            other_edges = equal(reached, reached, grad - grad, reached)
            grad = equal(rounded(row_full(0.0) + found), reached, grad, other_edges)
        flows = derive(grad, weight, (), own_row, (), other, (), row, (), parameters, scalars)
        return fill_weight(flows[0]), fill_channels(flows[1]), fill_edges(flows[2]), fill_parameters(flows[3])

    return adjoint


def _score_adjoint(bound: BoundProgram, lanes: Any, plan: BackwardPlan, sides: dict[str, str]) -> Callable:
    """Gradients for the resident channels, the edge's channels, the parameters, the resident heads, what is passed, the
    edge's heads, its scalars and the parameters' heads, as tuples."""
    rows = (plan.channels, plan.edge_channels, plan.parameters)
    used = plan.rows_of(bound.score)
    heads = (plan.heads, plan.passed, plan.edges, plan.edge_scalars, plan.parameter_heads)
    derive = lanes.compiled(bound.adjoint_text(bound.score, 'derive', [*used, *heads], sides))
    scope = {'derive': derive}
    scope |= {f'fill{i}': lanes.spread(names, some) for i, (names, some) in enumerate(zip(rows, used, strict=True))}
    scope |= {f'fill{i}': lanes.spread_heads(names, names) for i, names in enumerate(heads, len(rows))}
    filled = ''.join(f'fill{i}(flows[{i}]), ' for i in range(len(rows) + len(heads)))
    arguments = 'grad, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars'
    return lanes.compiled(f'def adjoint({arguments}):\n    flows = derive({arguments})\n    return ({filled})', **scope)


def _no_score_adjoint(bound: BoundProgram, lanes: Any, plan: BackwardPlan) -> Callable:
    """Stands for `_score_adjoint` where nothing flows through the score: zeros."""
    rows = (plan.channels, plan.edge_channels, plan.parameters)
    heads = (plan.heads, plan.passed, plan.edges, plan.edge_scalars, plan.parameter_heads)
    fills = [lanes.spread(names, ()) for names in rows] + [lanes.spread_heads(names, ()) for names in heads]
    filled = ''.join(f'fill{i}(()), ' for i in range(len(fills)))
    arguments = 'grad, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars'
    scope = {f'fill{i}': fill for i, fill in enumerate(fills)}
    return lanes.compiled(f'def adjoint({arguments}):\n    return ({filled})', **scope)


def _target_loader(lanes: Any, softmax: bool, extreme: bool) -> Callable:
    """``load_target(v, ...)``: what the adjoint reads of a target, as tuples that are empty where it needs nothing."""
    load_heads, load_row = lanes.load_heads, lanes.load_row

    @lanes.inlined
    def load_target(v, of_targets, total_heads, width, head, channel):
        reached, normaliser, mean_dot = (), (), ()
        grad = load_row((of_targets.grad_out,), v * width + channel)
        if extreme:
            reached = load_row((of_targets.out,), v * width + channel)
        if softmax:
            normaliser = (
                load_heads(of_targets.normalisers, 2 * v * total_heads + head),
                load_heads(of_targets.normalisers, (2 * v + 1) * total_heads + head),
            )
            mean_dot = load_heads((of_targets.delta,), v * total_heads + head)
        return grad, reached, normaliser, mean_dot

    return load_target


def _loader(lanes: Any, bound: BoundProgram, load_target: Callable, by_target: bool, keeps: bool) -> Callable:
    """``load(q, ...)``: the edge at a place, its place, what belongs to its target where that is gathered, and the
    weight that was kept of it, if one was."""
    load_edge, place_at, load_heads = edge_loader(lanes, bound), lanes.place_at, lanes.load_heads

    @lanes.inlined
    def load(q, end, walked, operands, sizes, total_heads, width, head, channel, of_targets, edge_alpha):
        edge = load_edge(q, end, walked, operands, sizes, total_heads, width, head, channel)
        grad, reached, normaliser, mean_dot, alpha = (), (), (), (), ()
        if not by_target:
            grad, reached, normaliser, mean_dot = load_target(
                place_at(walked.gathered, min(q, end - 1)), of_targets, total_heads, width, head, channel
            )
        if keeps:
            alpha = load_heads((edge_alpha,), edge[1] * total_heads + head)
        return edge, q, grad, reached, normaliser, mean_dot, alpha

    return load


def _flow(
    bound: BoundProgram, lanes: Any, plan: BackwardPlan, sides: dict[str, str], extreme: bool, keeps: bool
) -> Callable:
    """``flow(loaded, ...)``: all gradients on one edge.

    With w the (dropped-out) softmax weight of an edge, dw the gradient that reaches it and delta the row's sum of
    w dw (which is the dot of output and output gradient), the score's gradient is alpha (mask dw - delta).
    """
    has_score, softmax, through_score, by_target = (
        bound.score is not None, bound.softmax, plan.of_score(bound), plan.side == TARGET,
    )  # fmt: skip
    message_adjoint = _message_adjoint(bound, lanes, plan, sides, extreme)
    score = edge_scorer(lanes, bound, sides) if has_score else None
    score_adjoint = (
        _score_adjoint(bound, lanes, plan, sides) if through_score else _no_score_adjoint(bound, lanes, plan)
    )
    heads_full, dropout, add_tuples, exp, above = (
        lanes.heads_full, lanes.dropout, lanes.add_tuples, vocabulary.exp, lanes.above,
    )  # fmt: skip

    @lanes.inlined
    def flow(
        loaded, own_heads, own_row, head_parameters, parameters, scalars,
        own_grad, own_reached, own_normaliser, own_mean_dot, seed, threshold, scale, head,
    ):  # fmt: skip
        edge, q, grad, reached, normaliser, mean_dot, kept_alpha = loaded
        if by_target:
            grad, reached, normaliser, mean_dot = own_grad, own_reached, own_normaliser, own_mean_dot
        there, e, other_heads, other, on_edge, row = edge
        weight, through = heads_full(1.0), heads_full(0.0)
        if has_score:
            if keeps:
                alpha = kept_alpha[0]
            else:
                alpha = score(edge, own_heads, own_row, head_parameters, parameters, scalars)
                if softmax:
                    alpha = exp(above(alpha, normaliser[0])) * normaliser[1]
            weight = alpha
            if seed is not None:
                kept = dropout(seed, threshold, scale, e, head)
                weight = alpha * kept
        first = grad[0]
        if extreme:
            first = reached[0]
        found = message_adjoint(grad[0], first, weight, own_row, other, row, parameters, scalars)
        if through_score:
            through = found[0][0]
            if seed is not None:
                through = through * kept
            if softmax:
                through = alpha * (through - mean_dot[0])
        more = score_adjoint(
            through, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars
        )
        rows = (add_tuples(found[1], more[0]), add_tuples(found[2], more[1]), add_tuples(found[3], more[2]))
        return there, e, q, rows[0], rows[1], rows[2], more[3], more[4], more[5], more[6], more[7]

    return flow


def _adder(lanes: Any) -> Callable:
    """``add(sums, flow)``: the sums of a row's channels and heads and of the parameters', with those of an edge."""
    add_tuples, kept = lanes.add_tuples, lanes.kept

    @lanes.inlined
    def add(sums, flow):
        there = flow[0]
        return (
            add_tuples(sums[0], kept(there, flow[3])), add_tuples(sums[1], kept(there, flow[6])),
            add_tuples(sums[2], kept(there, flow[5])), add_tuples(sums[3], kept(there, flow[10])),
        )  # fmt: skip

    return add


def _product_writer(lanes: Any, bound: BoundProgram, plan: BackwardPlan) -> tuple[str, dict[str, Callable]]:
    """Lines that write the gradients of an edge's products, and the functions they call.

    The outer product of the edge's features and its gradient joins the sums of this worker; the gradient of the
    features is that of this tile's channels.
    """
    load_row, reload_row, store_row, load_number, store_number = (
        lanes.load_row, lanes.reload_row, lanes.store_row, lanes.load_number, lanes.store_number,
    )  # fmt: skip
    own_values, sum_lanes = lanes.own_values, lanes.sum_lanes

    @lanes.inlined
    def outer(gradient, features, sums, size, edge, width, channel, worker, there):
        for d in range(size):
            place = (worker * size + d) * width + channel
            store_row(sums, place, reload_row(sums, place) + load_number(features, edge * size + d) * gradient, there)

    @lanes.inlined
    def inner(gradient, weight, result, size, edge, width, channel, num_tiles, tile, there):
        for d in range(size):
            number = sum_lanes(own_values(gradient * load_row(weight, d * width + channel)))
            store_number(result, (edge * num_tiles + tile) * size + d, number, there)

    products = [name for name in plan.edge_channels if name in bound.edge_products]
    lines = []
    for i, name in enumerate(products):
        at, place = bound.edge_products.index(name), plan.edge_channels.index(name)
        lines.append(
            f'    outer(flow[4][{place}], operands.edge_features[{at}], grads.grad_weights[{i}], sizes[{at}], '
            f'flow[1], width, channel, worker, flow[0])'
        )
        if name in plan.features:
            j = plan.features.index(name)
            lines.append(
                f'    inner(flow[4][{place}], operands.edge_weights[{at}], grads.grad_features[{j}], sizes[{at}], '
                f'flow[1], width, channel, num_tiles, tile, flow[0])'
            )
    return '\n'.join(lines), {'outer': outer, 'inner': inner}


_WRITTEN = ('operands', 'sizes', 'grads', 'total_heads', 'width', 'num_tiles', 'head', 'channel', 'tile', 'worker')


def _writer(lanes: Any, bound: BoundProgram, plan: BackwardPlan) -> Callable:
    """``write(flow, ...)``: writes what belongs to one edge alone."""
    store_row, store_heads = lanes.store_row, lanes.store_heads
    store_number, sum_lanes, own_heads = lanes.store_number, lanes.sum_lanes, lanes.own_heads
    rows = [name for name in plan.edge_channels if name in bound.edge_rows]
    at = [plan.edge_channels.index(name) for name in rows]
    lines = [
        f'    store_row(grads.grad_edge_rows[{i}], flow[1] * width + channel, flow[4][{place}], flow[0])'
        for i, place in enumerate(at)
    ]
    if plan.passed:
        lines.append('    store_heads(grads.grad_passed, flow[2] * total_heads + head, flow[7], flow[0])')
    if plan.edges:
        lines.append('    store_heads(grads.grad_edges, flow[1] * total_heads + head, flow[8], flow[0])')
    lines += [
        f'    number = sum_lanes(own_heads(flow[9][{i}]))\n'
        f'    store_number(grads.grad_edge_scalars[{i}], flow[1] * num_tiles + tile, number, flow[0])'
        for i in range(len(plan.edge_scalars))
    ]
    products, functions = _product_writer(lanes, bound, plan)
    text = '\n'.join([f'def write(state, flow, {", ".join(_WRITTEN)}):', *lines, products, '    return state'])
    return lanes.compiled(
        text,
        store_row=store_row,
        store_heads=store_heads,
        store_number=store_number,
        sum_lanes=sum_lanes,
        own_heads=own_heads,
        **functions,
    )


def backward_body(bound: BoundProgram, lanes: Any, plan: BackwardPlan, reduce: str, keeps: bool) -> Callable:
    """The walk of the adjoint by rows of ``plan.side``: recomputes scores and weights, keeps nothing of edges.

    Only where forward kept the weights of edges, `edge_alpha`, are these read.

    Args:
        bound: The program.
        lanes: The instructions of a lane.
        plan: What the walk computes.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        keeps: Whether forward kept the weights of edges.
    """
    by_target, softmax, extreme = plan.side == TARGET, bound.softmax, reduce in ('max', 'min')
    sides, batch, subteams = BY_TARGET if by_target else BY_SOURCE, Batch(lanes, bound), lanes.layout.subteams
    step, places, load_target = batch.step, batch.places(), _target_loader(lanes, softmax, extreme)
    loader = _loader(lanes, bound, load_target, by_target, keeps)
    load_edges = batch.mapped(loader, ['places'], [*EDGE_ARGUMENTS, 'of_targets', 'edge_alpha'])
    own_target = ('own_grad', 'own_reached', 'own_normaliser', 'own_mean_dot')
    flow_all = batch.mapped(
        _flow(bound, lanes, plan, sides, extreme, keeps), ['loaded'], [*RESIDENT, *own_target, *Draws._fields, 'head']
    )  # fmt: skip
    add_all = batch.folded(_adder(lanes), ['flows'])
    write_all = batch.folded(_writer(lanes, bound, plan), ['flows'], _WRITTEN)
    with_parameters = len(plan.parameters) + len(plan.parameter_heads) > 0
    add_row, add_heads = lanes.add_row, lanes.add_heads
    copy_heads, copy_channels = lanes.copies(len(plan.heads)), lanes.copies(len(plan.channels))
    copy_parameters, copy_head_parameters = (
        lanes.copies(len(plan.parameters)), lanes.copies(len(plan.parameter_heads)),
    )  # fmt: skip
    sum_heads, sum_channels = lanes.sum_subteams_of(len(plan.heads)), lanes.sum_subteams_of(len(plan.channels))
    load_heads, load_row, rows_of, row_at = lanes.load_heads, lanes.load_row, rows_reader(lanes), row_reader(lanes)
    heads_full, row_full, place_at, (write_heads, write_row) = (
        lanes.heads_full, lanes.row_full, lanes.place_at, writers(lanes),
    )  # fmt: skip
    team_number, team_count, subteam_number, tile_of = (
        lanes.team_number, lanes.team_count, lanes.subteam_number, tile_reader(lanes),
    )  # fmt: skip

    @BACKWARD.of
    def backward(
        parts, walked, operands, sizes, total_heads, width, num_tiles, seed, threshold, scale, of_targets,
        edge_alpha, grads,
    ):  # fmt: skip
        subteam, (tile, head, channel) = subteam_number(), tile_of(walked.tiles)
        worker = team_number() * subteams + subteam
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = load_heads(operands.parameter_heads, head)
        drawn = None
        if seed is not None:
            drawn = place_at(seed, 0)
        parameter_sums, head_parameter_sums = copy_parameters(row_full(0.0)), copy_head_parameters(heads_full(0.0))
        unsettled = 0
        for piece in range(team_number(), parts, team_count()):
            first_row, end_row, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
            for v in range(first_row, end_row):
                begin, end, is_whole, slot = row_at(v, piece, walked.indptr, first_edge, last_edge)
                own_heads = load_heads(operands.resident_heads, v * total_heads + head)
                own_row = load_row(operands.resident_channels, v * width + channel)
                grad, reached, normaliser, mean_dot = (), (), (), ()
                if by_target:
                    grad, reached, normaliser, mean_dot = load_target(
                        v, of_targets, total_heads, width, head, channel
                    )  # fmt: skip
                sums = (
                    copy_channels(row_full(0.0)), copy_heads(heads_full(0.0)), parameter_sums, head_parameter_sums,
                )  # fmt: skip
                for q in range(begin, end, step):
                    edges = load_edges(
                        places(q + subteam), end, walked, operands, sizes, total_heads, width, head, channel,
                        of_targets, edge_alpha,
                    )  # fmt: skip
                    flows = flow_all(
                        edges, own_heads, own_row, head_parameters, parameter_rows, operands.scalars,
                        grad, reached, normaliser, mean_dot, drawn, threshold, scale, head,
                    )  # fmt: skip
                    sums = add_all(sums, flows)
                    write_all(
                        0, flows, operands, sizes, grads, total_heads, width, num_tiles, head, channel, tile, worker,
                    )  # fmt: skip
                    if with_parameters:
                        unsettled += step
                        if unsettled >= SETTLED_AFTER:
                            add_row(grads.grad_parameters, worker * width + channel, sums[2])
                            add_heads(grads.grad_parameter_heads, worker * total_heads + head, sums[3])
                            sums = (
                                sums[0], sums[1],
                                copy_parameters(row_full(0.0)), copy_head_parameters(heads_full(0.0)),
                            )  # fmt: skip
                            unsettled = 0
                parameter_sums, head_parameter_sums = sums[2], sums[3]
                row_sums, head_sums = sum_channels(sums[0]), sum_heads(sums[1])
                write_heads(v, slot, is_whole, head, total_heads, head_sums, grads.grad_heads, grads.partial_heads)
                write_row(v, slot, is_whole, channel, width, row_sums, grads.grad_channels, grads.partial_rows)
        if with_parameters:
            add_row(grads.grad_parameters, worker * width + channel, parameter_sums)
            add_heads(grads.grad_parameter_heads, worker * total_heads + head, head_parameter_sums)

    return backward
