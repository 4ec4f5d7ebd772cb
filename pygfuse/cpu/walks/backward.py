"""The adjoint's walk."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.codegen.combination import writers
from pygfuse.codegen.precision import SETTLED_AFTER
from pygfuse.cpu.random import dropout_edges
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.arguments import BACKWARD
from pygfuse.cpu.walks.edge_products import EdgeProducts
from pygfuse.cpu.walks.inlining import add_tuples, compiled, copies, edge_row_loader, spread
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.parts import piece_of, row_walkers
from pygfuse.cpu.walks.score import (
    above,
    edge_row_fetcher,
    edge_scorer,
    head_fetcher,
    head_values,
    row_fetcher,
    summed_later,
)
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_SOURCE, BY_TARGET, BackwardPlan, used_by
from pygfuse.program.program import TARGET, BoundProgram
from pygfuse.program.trace import Trace


def _message_adjoint(
    bound: BoundProgram, layout: Layout, plan: BackwardPlan, sides: dict[str, str], extreme: bool
) -> Callable:
    """``adjoint(grad, out, weight, ...)``: gradients for the weight, the resident channels, the edge's channels and
    the parameters, as tuples; for an extreme, of the edges that attain it only."""
    channels, edges, parameters = plan.rows_of(bound.message)
    wrt = [['weight'] if plan.of_score(bound) else [], channels, edges, parameters]
    unsummed = ['weight'] if _weight_unsummed(bound, layout) else []
    derive = compiled(bound.adjoint_text(bound.message, 'derive', wrt, sides, unsummed))
    message = compiled(bound.text(bound.message, 'message', sides))
    fill_channels, fill_edges = spread(layout, plan.channels, channels), spread(layout, plan.edge_channels, edges)
    fill_parameters, equal = spread(layout, plan.parameters, parameters), vocabulary.equal

    @inlined
    def adjoint(grad, out, weight, own_row, other, row, parameters, scalars):
        if extreme:
            found = message(weight, (), own_row, (), other, (), row, (), parameters, scalars)
            # as in torch, which multiplies with a mask: NaN for all edges of a NaN
            grad = equal(found, out, grad, equal(out, out, grad - grad, out))
        flows = derive(grad, weight, (), own_row, (), other, (), row, (), parameters, scalars)
        return flows[0], fill_channels(flows[1]), fill_edges(flows[2]), fill_parameters(flows[3])

    return adjoint


def _weight_unsummed(bound: BoundProgram, layout: Layout) -> bool:
    """Whether the gradient for the weight comes as a row, of which the sum over channels is taken later."""
    return summed_later(layout) and bound.score is not None and bound.message.gradient_is_sum('weight')


def _loads_of_weights(bound: BoundProgram, layout: Layout, plan: BackwardPlan) -> tuple[Callable, Callable]:
    """How an edge's weight, and the gradient for its score, are read: spread over a row, where they meet rows only."""
    if bound.score is None or bound.score_is_of_heads:
        through = layout.load_heads
    else:
        through = layout.load_spread if _meets_rows(bound.score, 'grad', plan) else layout.load_heads
    return layout.load_spread if _meets_rows(bound.message, 'weight', plan) else layout.load_heads, through


def _meets_rows(trace: Trace, name: str, plan: BackwardPlan) -> bool:
    wrt = [operand for operands in plan.rows_of(trace) for operand in operands]
    return trace.is_spread(name, [*wrt, *used_by(trace, ['weight'])])


def _score_adjoint(bound: BoundProgram, layout: Layout, plan: BackwardPlan, sides: dict[str, str]) -> Callable:
    """Gradients for the resident heads, what is passed or added, the edge's heads, the resident channels, the edge's
    channels and the parameters, as tuples."""
    channels, edges, parameters = plan.rows_of(bound.score)
    wrt = [
        plan.heads,
        (*plan.passed, *plan.added),
        (*plan.edges, *plan.edge_scalars),
        channels,
        edges,
        parameters,
        plan.parameter_heads,
    ]
    first_scalar = len(plan.edges)
    derive = compiled(bound.adjoint_text(bound.score, 'derive', wrt, sides))
    fill_channels, fill_edges = spread(layout, plan.channels, channels), spread(layout, plan.edge_channels, edges)
    fill_parameters = spread(layout, plan.parameters, parameters)

    @inlined
    def adjoint(grad, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars):
        flows = derive(grad, own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars)
        return (
            flows[0], flows[1], flows[2][:first_scalar],
            fill_channels(flows[3]), fill_edges(flows[4]), fill_parameters(flows[5]),
            flows[2][first_scalar:], flows[6],
        )  # fmt: skip

    return adjoint


def adjoints_of(
    bound: BoundProgram, layout: Layout, plan: BackwardPlan, sides: dict[str, str], extreme: bool
) -> tuple[Callable, Callable | None, bool]:
    """The adjoints of a message and, if anything flows through it, of the score; and whether the former gives the
    gradient for the weight as a row, of which the sum over channels is taken later."""
    through_score = _score_adjoint(bound, layout, plan, sides) if plan.of_score(bound) else None
    return _message_adjoint(bound, layout, plan, sides, extreme), through_score, _weight_unsummed(bound, layout)


def _edge_row_writer(layout: Layout, bound: BoundProgram, plan: BackwardPlan) -> Callable:
    """``write(gradients, ...)``: where the gradients of an edge's channels go, those of products into their chunk."""
    rows = [i for i, name in enumerate(plan.edge_channels) if name in bound.edge_rows]
    products = [i for i, name in enumerate(plan.edge_channels) if name in bound.edge_products]
    lines = [
        *(f'store_row(grads.grad_edge_rows[{j}], edge * width + channel, gradients[{i}])' for j, i in enumerate(rows)),
        *(
            f'store_row(of_formed[{j}], place * {layout.heads * layout.channels}, gradients[{i}])'
            for j, i in enumerate(products)
        ),
    ]
    text = '\n    '.join(['def write(gradients, grads, edge, width, channel, of_formed, place):', *lines, 'return'])
    return compiled(text, store_row=layout.store_row)


def edge_products_of(layout: Layout, bound: BoundProgram, plan: BackwardPlan) -> EdgeProducts:
    """What an adjoint does with products of edges."""
    names = [name for name in plan.edge_channels if name in bound.edge_products]
    derived = [bound.edge_products.index(name) for name in names]
    return EdgeProducts(layout, len(bound.edge_products), derived, [names.index(name) for name in plan.features])


def backward_body(
    bound: BoundProgram,
    layout: Instructions,
    plan: BackwardPlan,
    reduce: str,
    scattered: bool = False,
    carried: bool = False,
) -> Callable:
    """The walk of the adjoint by rows of ``plan.side``: recomputes scores and weights, keeps nothing of edges.

    Only where forward kept the weights of edges, `edge_alpha`, are these read.

    With w the (dropped-out) softmax weight of an edge, dw the gradient that reaches it and delta the row's sum of
    w dw (which is the dot of output and output gradient), the score's gradient is alpha (mask dw - delta).

    Edges that are in no order (`scattered`, see `row_walkers`) are added up in the part's own copy of all rows. Where
    edges are walked block by block (`carried`), each block adds to what is there, and no row lies in several parts.

    `rows` holds the node of each row where some have none, and is empty where row and node are the same.
    """
    by_target = plan.side == TARGET
    sides = BY_TARGET if by_target else BY_SOURCE
    has_score, softmax, of_heads = bound.score is not None, bound.softmax, bound.score_is_of_heads
    extreme, through_score = reduce in ('max', 'min'), plan.of_score(bound)
    # an edge's channels get their gradient where all of it is known: after the score's adjoint, if that adds to it
    edges_by_score = through_score and len(used_by(bound.score, plan.edge_channels)) > 0
    edges_by_both = edges_by_score and len(used_by(bound.message, plan.edge_channels)) > 0
    with_parameters = len(plan.parameters) + len(plan.parameter_heads) > 0
    add_row, add_heads = layout.add_row, layout.add_heads
    edges_by_message = len(plan.edge_channels) > 0 and not edges_by_score
    message_adjoint, score_adjoint, unsummed = adjoints_of(bound, layout, plan, sides, extreme)
    score = edge_scorer(bound, layout, sides) if has_score else None
    gradients_buffer, keep_gradient, load_gradients = head_values(layout, unsummed)
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))
    with_edge_rows, fetch_edge_rows = len(bound.edge_rows) > 0, edge_row_fetcher(bound, layout)
    is_long = bound.message.is_long and not has_score
    with_products, products = len(bound.edge_products) > 0, edge_products_of(layout, bound, plan)
    room, gradient_room, fill, differentiate = (
        products.room, products.gradient_room, products.fill, products.differentiate,
    )  # fmt: skip
    fetch_rows, fetch_heads = row_fetcher(layout), head_fetcher(layout)
    write_edge_rows = _edge_row_writer(layout, bound, plan)
    copy_heads, copy_channels = copies(len(plan.heads)), copies(len(plan.channels))
    copy_parameters, copy_head_parameters = copies(len(plan.parameters)), copies(len(plan.parameter_heads))

    gather_scalars, scatter_scalars, add_edges = layout.gather_scalars, layout.scatter_scalars, layout.add_edges
    adds = len(plan.added) > 0
    step, heads = layout.step, layout.heads
    load_weight, load_through = _loads_of_weights(bound, layout, plan)
    load_heads, load_row, store_edges = layout.load_heads, layout.load_row, layout.store_edges
    store_some_edges, scatter_edges, sum_edges = layout.store_some_edges, layout.scatter_edges, layout.sum_edges
    gather_edges, mask_edges, repeat, buffer = (
        layout.gather_edges, layout.mask_edges, layout.repeat, layout.buffer,
    )  # fmt: skip
    (rows_of, row_at), (write_heads, write_row) = row_walkers(scattered), writers(layout)
    edges_full, row_full, dropout, exp = layout.edges_full, layout.row_full, dropout_edges(layout), vocabulary.exp

    @inlined
    def next_chunk(
        q, last_edge, walked, operands, grads, panels, formed, of_formed, chunk_first, width, channel, piece, tile
    ):  # fmt: skip
        """Takes the gradients of a chunk's edges up to `q`, and makes the products of the chunk that begins there."""
        differentiate(
            of_formed, operands, grads, panels, walked.edge_id, chunk_first, q - chunk_first, width, channel, piece,
            len(walked.tiles) // 2, tile,
        )  # fmt: skip
        return fill(operands, walked.edge_id, q, last_edge, width, channel, formed)

    @BACKWARD.of
    def backward(
        part, walked, operands, total_heads, width, num_rows, num_others, num_walked, seed, threshold, scale,
        of_targets, edge_alpha, grads, grad_added, panels,
    ):  # fmt: skip
        num_tiles = len(walked.tiles) // 2
        tile, piece, head, channel = piece_of(part, walked.tiles)
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = repeat(load_heads(operands.parameter_heads, head))
        parameter_sums, head_parameter_sums = copy_parameters(row_full(0.0)), copy_head_parameters(edges_full(0.0))
        weights, dots, reached, unsettled = buffer(), buffer(), row_full(0.0), 0
        weight_gradients = gradients_buffer()
        of_others = () if by_target else (of_targets.grad_out, of_targets.out) if extreme else (of_targets.grad_out,)
        scored, fetched = operands.gathered_channels, operands.gathered_channels + of_others
        first, last, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
        formed, of_formed, chunk_first, chunk_last = room(), gradient_room(), first_edge, first_edge
        for i in range(first, last):
            v, begin, end, is_whole, slot = row_at(i, walked.rows, piece, walked.indptr, first_edge, last_edge)
            if carried and begin == end:
                continue
            own_heads = repeat(load_heads(operands.resident_heads, v * total_heads + head))
            own_row = load_row(operands.resident_channels, v * width + channel)
            if by_target:
                grad = load_row(of_targets.grad_out, v * width + channel)
                if extreme:
                    reached = load_row(of_targets.out, v * width + channel)
                if softmax:
                    top = repeat(load_heads(of_targets.normalisers, 2 * v * total_heads + head))
                    factor = repeat(load_heads(of_targets.normalisers, (2 * v + 1) * total_heads + head))
                    mean_dot = repeat(load_heads(of_targets.delta, v * total_heads + head))
            head_sums, row_sums = copy_heads(edges_full(0.0)), copy_channels(row_full(0.0))
            settled_heads, settled_rows, settled = head_sums, row_sums, begin
            for q in range(begin, end, step):
                count = min(step, end - q)
                if has_score:
                    if with_products and q + count > chunk_last:
                        chunk_last = next_chunk(
                            q, last_edge, walked, operands, grads, panels, formed, of_formed, chunk_first, width,
                            channel, piece, tile,
                        )  # fmt: skip
                        chunk_first = q
                    if edge_alpha is None:
                        alpha, others, on_edges = score(
                            q, end, walked, operands, own_heads, own_row, head_parameters, parameter_rows,
                            total_heads, width, head, channel, scored, last_edge, formed, chunk_first,
                        )  # fmt: skip
                        if softmax:
                            if not by_target:
                                top = gather_edges(
                                    of_targets.normalisers, walked.gathered, q, end, 2 * total_heads, head
                                )
                                factor = gather_edges(
                                    of_targets.normalisers, walked.gathered, q, end, 2 * total_heads, total_heads + head
                                )
                            alpha = exp(above(alpha, top)) * factor
                    else:
                        alpha = gather_edges(edge_alpha, walked.edge_id, q, end, total_heads, head)
                        if of_heads:
                            others = gather_edges(operands.gathered_heads, walked.gathered, q, end, total_heads, head)
                            with_heads = gather_edges(operands.edge_heads, walked.edge_id, q, end, total_heads, head)
                            on_edges = with_heads + gather_scalars(operands.edge_scalars, walked.edge_id, q, end)
                    if seed is not None:
                        kept = dropout(seed, threshold, scale, walked.edge_id, q, end, head)
                        store_edges(weights, 0, alpha * kept)
                    else:
                        store_edges(weights, 0, alpha)
                for k in range(count):
                    if with_edge_rows:
                        fetch_edge_rows(q + k, last_edge, walked, operands, width, channel)
                    if of_heads or edge_alpha is not None or is_long:
                        fetch_rows(q + k, last_edge, walked, fetched, width, channel)
                    elif has_score:
                        fetch_rows(q + k, last_edge, walked, of_others, width, channel)
                    if has_score:
                        if of_heads:
                            fetch_heads(q + k, last_edge, walked, operands.gathered_heads, total_heads, head)
                        if softmax and not by_target:
                            fetch_heads(q + k, last_edge, walked, of_targets.delta, total_heads, head)
                            fetch_heads(q + k, last_edge, walked, of_targets.normalisers, 2 * total_heads, head)
                        if adds:
                            copy = piece * num_others * total_heads + head
                            fetch_heads(q + k, last_edge, walked, grad_added, total_heads, copy)
                    if with_products and not has_score and q + k >= chunk_last:
                        chunk_last = next_chunk(
                            q + k, last_edge, walked, operands, grads, panels, formed, of_formed, chunk_first, width,
                            channel, piece, tile,
                        )  # fmt: skip
                        chunk_first = q + k
                    at, edge = place_at(walked.gathered, q + k) * width + channel, place_at(walked.edge_id, q + k)
                    other = load_row(operands.gathered_channels, at)
                    row = load_edge_rows(operands, edge, width, channel, formed, q + k - chunk_first)
                    if not by_target:
                        grad = load_row(of_targets.grad_out, at)
                        if extreme:
                            reached = load_row(of_targets.out, at)
                    weight = load_weight(weights, k * heads)
                    found = message_adjoint(
                        grad, reached, weight, own_row, other, row, parameter_rows, operands.scalars
                    )
                    if through_score:
                        keep_gradient(weight_gradients, k, found[0][0])
                    row_sums = add_tuples(row_sums, found[1])
                    parameter_sums = add_tuples(parameter_sums, found[3])
                    if edges_by_message:
                        write_edge_rows(found[2], grads, edge, width, channel, of_formed, q + k - chunk_first)
                if through_score:
                    through = load_gradients(weight_gradients)
                    if seed is not None:
                        through = through * kept
                    if softmax:
                        if not by_target:
                            mean_dot = gather_edges(of_targets.delta, walked.gathered, q, end, total_heads, head)
                        through = alpha * (through - mean_dot)
                    through = mask_edges(through, end - q, 0.0)
                    if of_heads:
                        flows = score_adjoint(
                            through, own_heads, (), others, (), on_edges, (), head_parameters, (), operands.scalars
                        )
                        head_sums = add_tuples(head_sums, flows[0])
                        if adds:
                            copy = piece * num_others * total_heads + head
                            add_edges(grad_added, walked.gathered, q, end, total_heads, copy, flows[1])
                        else:
                            store_some_edges(grads.grad_passed, (tile * num_walked + q) * heads, flows[1], end - q)
                        scatter_edges(grads.grad_edges, walked.edge_id, q, end, total_heads, head, flows[2])
                        scatter_scalars(grads.grad_edge_scalars, walked.edge_id, q, end, num_tiles, tile, flows[6])
                        head_parameter_sums = add_tuples(head_parameter_sums, flows[7])
                    else:
                        store_edges(dots, 0, through)
                        for k in range(count):
                            u, e = place_at(walked.gathered, q + k), place_at(walked.edge_id, q + k)
                            other = load_row(operands.gathered_channels, u * width + channel)
                            row = load_edge_rows(operands, e, width, channel, formed, q + k - chunk_first)
                            flow = score_adjoint(
                                load_through(dots, k * heads),
                                (),
                                own_row,
                                (),
                                other,
                                (),
                                row,
                                (),
                                parameter_rows,
                                operands.scalars,
                            )
                            row_sums = add_tuples(row_sums, flow[3])
                            parameter_sums = add_tuples(parameter_sums, flow[5])
                            if edges_by_score:
                                edge_grads = flow[4]
                                if edges_by_both:
                                    if not by_target:
                                        grad = load_row(of_targets.grad_out, u * width + channel)
                                        if extreme:
                                            reached = load_row(of_targets.out, u * width + channel)
                                    found = message_adjoint(
                                        grad, reached, load_weight(weights, k * heads), own_row, other, row,
                                        parameter_rows, operands.scalars,
                                    )  # fmt: skip
                                    edge_grads = add_tuples(edge_grads, found[2])
                                write_edge_rows(edge_grads, grads, e, width, channel, of_formed, q + k - chunk_first)
                if q + step - settled >= SETTLED_AFTER:
                    settled_heads = add_tuples(settled_heads, head_sums)
                    settled_rows = add_tuples(settled_rows, row_sums)
                    head_sums, row_sums = copy_heads(edges_full(0.0)), copy_channels(row_full(0.0))
                    settled = q + step
                if with_parameters:
                    unsettled += count
                    if unsettled >= SETTLED_AFTER:
                        add_row(grads.grad_parameters, piece * width + channel, parameter_sums)
                        add_heads(grads.grad_parameter_heads, piece * total_heads + head, head_parameter_sums)
                        parameter_sums = copy_parameters(row_full(0.0))
                        head_parameter_sums = copy_head_parameters(edges_full(0.0))
                        unsettled = 0
            if settled > begin:
                head_sums, row_sums = add_tuples(settled_heads, head_sums), add_tuples(settled_rows, row_sums)
            if scattered:
                add_heads(grads.partial_heads, (piece * num_rows + v) * total_heads + head, head_sums)
                add_row(grads.partial_rows, (piece * num_rows + v) * width + channel, row_sums)
            elif carried:
                add_heads(grads.grad_heads, v * total_heads + head, head_sums)
                add_row(grads.grad_channels, v * width + channel, row_sums)
            else:
                write_heads(
                    v, slot, is_whole, head, total_heads, sum_edges(head_sums), grads.grad_heads, grads.partial_heads
                )
                write_row(v, slot, is_whole, channel, width, row_sums, grads.grad_channels, grads.partial_rows)
        differentiate(
            of_formed, operands, grads, panels, walked.edge_id, chunk_first, last_edge - chunk_first, width, channel,
            piece, num_tiles, tile,
        )  # fmt: skip
        if with_parameters:
            add_row(grads.grad_parameters, piece * width + channel, parameter_sums)
            add_heads(grads.grad_parameter_heads, piece * total_heads + head, head_parameter_sums)

    return backward
