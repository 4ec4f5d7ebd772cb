"""The vertex-balanced walk: a thread owns rows of the graph and all their edges.

One skeleton walks the graph by target rows (forward, and the adjoint of what belongs to the target) or its transpose
by source rows (the adjoint of what belongs to the source). The node of the row is *resident*: its operands and the
sums for it stay in registers. The node at the other end of an edge is *gathered*. A group of edges is scored side by
side where scores need no channels; their weights pass through a few bytes of stack to the loop over the group's edges,
which is where rows of channels are read, each once.

Work is dealt in parts: ranges of rows of about equal numbers of edges, times tiles of the row where a row is wider
than the registers. No part writes what another part writes, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np

from pygfuse import vocabulary
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.random import dropout_edges
from pygfuse.program import SOURCE, TARGET, BoundProgram

FORWARD_SIDES = {TARGET: 'resident', SOURCE: 'gathered'}
TRANSPOSED_SIDES = {SOURCE: 'resident', TARGET: 'gathered'}

LOWEST = -3.0e38
# the running maximum is only raised when a score exceeds it by this much: exp(8) is far from overflow
SLACK = 8.0


def compiled(text: str) -> Callable:
    """The function of a program's text, to be inlined into a walk."""
    scope: dict = dict(vocabulary.WORDS)
    exec(text, scope)
    return numba.njit(scope[text.split('(')[0].removeprefix('def ')], error_model='numpy')


def tuple_sum(length: int) -> Callable:
    """A function that adds two tuples of `length` tiles item by item."""
    items = ''.join(f'a[{i}] + b[{i}], ' for i in range(length))
    return compiled(f'def add(a, b):\n    return ({items})')


def copies(length: int) -> Callable:
    """A function that repeats a value `length` times, as a tuple."""
    return compiled(f'def copy(value):\n    return ({"value, " * length})')


def forward_body(bound: BoundProgram, layout: Layout, mean: bool) -> Callable:
    """The walk that computes the output, and for softmax the log-sum-exp of each row and head.

    One pass with a running maximum: where a score exceeds it by more than a slack (hardly ever after a row's first
    group), the sums so far are scaled down.
    """
    has_score, softmax, of_heads = bound.score is not None, bound.softmax, bound.score_is_of_heads
    score = compiled(bound.text(bound.score, 'score', FORWARD_SIDES)) if has_score else None
    message = compiled(bound.text(bound.message, 'message', FORWARD_SIDES))
    group, heads = layout.group, layout.heads
    load_heads, load_row = layout.load_heads, layout.load_row
    store_heads, store_row, store_edges = layout.store_heads, layout.store_row, layout.store_edges
    gather_edges, mask_edges, repeat, buffer = (
        layout.gather_edges,
        layout.mask_edges,
        layout.repeat,
        layout.buffer,
    )
    any_above, max_edges, sum_edges = layout.any_above, layout.max_edges, layout.sum_edges
    heads_full, edges_full, row_zeros = layout.heads_full, layout.edges_full, layout.row_zeros
    dropout, exp, log, maximum = dropout_edges(layout), vocabulary.exp, vocabulary.log, vocabulary.maximum

    def forward(
        part, tiles, parts, indptr, index, edge_id,
        resident_heads, resident_channels, gathered_heads, gathered_channels, edge_heads, parameters, scalars,
        total_heads, width, seed, threshold, scale, out, logsumexp,
    ):  # fmt: skip
        num_tiles = len(tiles) // 2
        tile, piece = part % num_tiles, part // num_tiles
        head, channel = tiles[2 * tile], tiles[2 * tile + 1]
        parameter_rows = load_row(parameters, channel)
        weights = buffer()
        for v in range(parts[piece], parts[piece + 1]):
            begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
            own_heads = repeat(load_heads(resident_heads, v * total_heads + head))
            own_row = load_row(resident_channels, v * width + channel)
            top, total, result = heads_full(LOWEST), edges_full(0.0), row_zeros()
            for q in range(begin, end, group):
                if has_score:
                    other_heads = gather_edges(gathered_heads, index, q, end, total_heads, head)
                    on_edge = gather_edges(edge_heads, edge_id, q, end, total_heads, head)
                    if of_heads:
                        s = score(own_heads, (), other_heads, (), on_edge, (), (), scalars)
                    else:
                        other = load_row(gathered_channels, np.int64(index[q]) * width + channel)
                        s = score(own_heads, own_row, other_heads, other, on_edge, (), parameter_rows, scalars)
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
                    other = load_row(gathered_channels, np.int64(index[q + k]) * width + channel)
                    if has_score:
                        weight = load_heads(weights, k * heads)
                        result = result + message(weight, (), own_row, (), other, (), (), parameter_rows, scalars)
                    else:
                        result = result + message((), own_row, (), other, (), (), parameter_rows, scalars)
            if end > begin:
                if softmax:
                    sums = sum_edges(total)
                    result = result * (1.0 / sums)
                    store_heads(logsumexp, v * total_heads + head, top + log(sums))
                if mean:
                    result = result * (1.0 / (end - begin))
            store_row(out, v * width + channel, result)

    return forward


class BackwardPlan:
    """What one walk of the adjoint computes.

    Attributes:
        side: ``'source'`` or ``'target'``: whose rows are walked.
        heads: Operands of that side with a value a head, whose gradient is summed over the row.
        channels: The same with values for channels.
        edges: Operands of edges: their gradient is written at the edge's id.
        passed: Operands of the other side with a value a head: their gradient on each edge is written in the order of
            this walk, to be summed over the other side's rows afterwards.
        parameters: Parameters with values for channels: their gradient is summed over each part of the work.
    """

    def __init__(
        self,
        side: str,
        heads: Sequence[str] = (),
        channels: Sequence[str] = (),
        edges: Sequence[str] = (),
        passed: Sequence[str] = (),
        parameters: Sequence[str] = (),
    ) -> None:
        self.side = side
        self.heads, self.channels = tuple(heads), tuple(channels)
        self.edges, self.passed, self.parameters = tuple(edges), tuple(passed), tuple(parameters)

    def key(self) -> str:
        """A text that names the plan."""
        return repr((self.side, self.heads, self.channels, self.edges, self.passed, self.parameters))

    def of_score(self, bound: BoundProgram) -> bool:
        """Whether any of it flows through the score."""
        if bound.score is None:
            return False
        wanted = {*self.heads, *self.channels, *self.edges, *self.passed, *self.parameters}
        return any(operand.name in wanted for operand in bound.score.operands)


def _used_by(trace, names: Sequence[str]) -> list[str]:
    available = set() if trace is None else set(trace.names())
    return [name for name in names if name in available]


def _spread(names: Sequence[str], used: Sequence[str]) -> str:
    """The text of a function that fills a tuple of gradients of `used` with zeros up to `names`."""
    items = ''.join(f'found[{used.index(name)}], ' if name in used else '0.0, ' for name in names)
    return f'def spread(found):\n    return ({items})'


def backward_body(bound: BoundProgram, layout: Layout, plan: BackwardPlan) -> Callable:
    """The walk of the adjoint by rows of ``plan.side``: recomputes scores and weights, keeps nothing of edges.

    With w the (dropped-out) softmax weight of an edge, dw the gradient that reaches it and delta the row's sum of
    w dw (which is the dot of output and output gradient), the score's gradient is alpha (mask dw - delta).
    """
    by_target = plan.side == TARGET
    sides = FORWARD_SIDES if by_target else TRANSPOSED_SIDES
    has_score, softmax, of_heads = bound.score is not None, bound.softmax, bound.score_is_of_heads
    through_score = plan.of_score(bound)

    message_channels = _used_by(bound.message, plan.channels)
    message_parameters = _used_by(bound.message, plan.parameters)
    wrt = [['weight'] if through_score else [], message_channels, message_parameters]
    message_adjoint = compiled(bound.adjoint_text(bound.message, 'message_adjoint', wrt, sides))
    fill_channels = compiled(_spread(plan.channels, message_channels))
    fill_parameters = compiled(_spread(plan.parameters, message_parameters))
    score = compiled(bound.text(bound.score, 'score', sides)) if has_score else None
    score_channels = _used_by(bound.score, plan.channels)
    score_parameters = _used_by(bound.score, plan.parameters)
    wrt = [plan.heads, plan.passed, plan.edges, score_channels, score_parameters]
    score_adjoint = compiled(bound.adjoint_text(bound.score, 'score_adjoint', wrt, sides)) if through_score else None
    fill_score_channels = compiled(_spread(plan.channels, score_channels))
    fill_score_parameters = compiled(_spread(plan.parameters, score_parameters))
    add_heads, add_channels = tuple_sum(len(plan.heads)), tuple_sum(len(plan.channels))
    add_parameters = tuple_sum(len(plan.parameters))
    copy_heads, copy_channels = copies(len(plan.heads)), copies(len(plan.channels))
    copy_parameters = copies(len(plan.parameters))

    group, heads = layout.group, layout.heads
    load_heads, load_row, load_edges = layout.load_heads, layout.load_row, layout.load_edges
    store_heads, store_row, store_edges = layout.store_heads, layout.store_row, layout.store_edges
    store_some_edges, scatter_edges, sum_edges = (
        layout.store_some_edges,
        layout.scatter_edges,
        layout.sum_edges,
    )
    gather_edges, mask_edges, repeat, buffer = (
        layout.gather_edges,
        layout.mask_edges,
        layout.repeat,
        layout.buffer,
    )
    edges_full, row_zeros = layout.edges_full, layout.row_zeros
    dropout, exp = dropout_edges(layout), vocabulary.exp

    def backward(
        part, tiles, parts, indptr, index, edge_id,
        resident_heads, resident_channels, gathered_heads, gathered_channels, edge_heads, parameters, scalars,
        total_heads, width, num_walked, seed, threshold, scale, grad_out, logsumexp, delta,
        grad_heads, grad_channels, grad_edges, grad_passed, grad_parameters,
    ):  # fmt: skip
        num_tiles = len(tiles) // 2
        tile, piece = part % num_tiles, part // num_tiles
        head, channel = tiles[2 * tile], tiles[2 * tile + 1]
        parameter_rows = load_row(parameters, channel)
        parameter_sums = copy_parameters(row_zeros())
        weights, dots = buffer(), buffer()
        for v in range(parts[piece], parts[piece + 1]):
            begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
            own_heads = repeat(load_heads(resident_heads, v * total_heads + head))
            own_row = load_row(resident_channels, v * width + channel)
            if by_target:
                grad = load_row(grad_out, v * width + channel)
                if softmax:
                    normaliser = repeat(load_heads(logsumexp, v * total_heads + head))
                    mean_dot = repeat(load_heads(delta, v * total_heads + head))
            head_sums, row_sums = copy_heads(edges_full(0.0)), copy_channels(row_zeros())
            for q in range(begin, end, group):
                if has_score:
                    other_heads = gather_edges(gathered_heads, index, q, end, total_heads, head)
                    on_edge = gather_edges(edge_heads, edge_id, q, end, total_heads, head)
                    if of_heads:
                        alpha = score(own_heads, (), other_heads, (), on_edge, (), (), scalars)
                    else:
                        other = load_row(gathered_channels, np.int64(index[q]) * width + channel)
                        alpha = score(own_heads, own_row, other_heads, other, on_edge, (), parameter_rows, scalars)
                    if softmax:
                        if not by_target:
                            normaliser = gather_edges(logsumexp, index, q, end, total_heads, head)
                        alpha = exp(alpha - normaliser)
                    if seed is not None:
                        kept = dropout(seed, threshold, scale, edge_id, q, end, head)
                        store_edges(weights, 0, alpha * kept)
                    else:
                        store_edges(weights, 0, alpha)
                for k in range(min(group, end - q)):
                    at = np.int64(index[q + k]) * width + channel
                    other = load_row(gathered_channels, at)
                    if not by_target:
                        grad = load_row(grad_out, at)
                    if has_score:
                        weight = load_heads(weights, k * heads)
                        found = message_adjoint(grad, weight, (), own_row, (), other, (), (), parameter_rows, scalars)
                    else:
                        found = message_adjoint(grad, (), own_row, (), other, (), (), parameter_rows, scalars)
                    if through_score:
                        store_heads(dots, k * heads, found[0][0])
                    row_sums = add_channels(row_sums, fill_channels(found[1]))
                    parameter_sums = add_parameters(parameter_sums, fill_parameters(found[2]))
                if through_score:
                    through = load_edges(dots, 0)
                    if seed is not None:
                        through = through * kept
                    if softmax:
                        if not by_target:
                            mean_dot = gather_edges(delta, index, q, end, total_heads, head)
                        through = alpha * (through - mean_dot)
                    through = mask_edges(through, end - q, 0.0)
                    if of_heads:
                        flows = score_adjoint(through, own_heads, (), other_heads, (), on_edge, (), (), scalars)
                    else:
                        other = load_row(gathered_channels, np.int64(index[q]) * width + channel)
                        flows = score_adjoint(
                            through,
                            own_heads,
                            own_row,
                            other_heads,
                            other,
                            on_edge,
                            (),
                            parameter_rows,
                            scalars,
                        )
                        row_sums = add_channels(row_sums, fill_score_channels(flows[3]))
                        parameter_sums = add_parameters(parameter_sums, fill_score_parameters(flows[4]))
                    head_sums = add_heads(head_sums, flows[0])
                    store_some_edges(grad_passed, (tile * num_walked + q) * heads, flows[1], end - q)
                    scatter_edges(grad_edges, edge_id, q, end, total_heads, head, flows[2])
            store_heads(grad_heads, v * total_heads + head, sum_edges(head_sums))
            store_row(grad_channels, v * width + channel, row_sums)
        store_row(grad_parameters, piece * width + channel, parameter_sums)

    return backward


def passed_sum_body(layout: Layout) -> Callable:
    """Sums what a walk passed along its edges over the rows of the other side.

    `position` holds, for each edge in this side's order, where the walk wrote it.
    """
    group, heads = layout.group, layout.heads
    gather_edges, mask_edges, edges_full = layout.gather_edges, layout.mask_edges, layout.edges_full
    sum_edges, store_heads = layout.sum_edges, layout.store_heads

    def passed_sum(part, tiles, parts, indptr, position, total_heads, num_walked, passed, grad_heads):
        num_tiles = len(tiles) // 2
        tile, piece = part % num_tiles, part // num_tiles
        for v in range(parts[piece], parts[piece + 1]):
            begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
            total = edges_full(0.0)
            for q in range(begin, end, group):
                found = gather_edges(passed, position, q, end, heads, tile * num_walked * heads)
                total = total + mask_edges(found, end - q, 0.0)
            store_heads(grad_heads, v * total_heads + tiles[2 * tile], sum_edges(total))

    return passed_sum
