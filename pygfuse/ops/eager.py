"""Edge programs where nothing traces: one ``autograd.Function`` over a graph that is at hand.

It runs the kernels of the operator and saves what the operator saves, without a schema and a look-up of the graph.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import backend_of
from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import nothing_is_said
from pygfuse._lib.note import Note
from pygfuse.graph.graph import Graph
from pygfuse.graph.listed import Listed
from pygfuse.ops.autograd import as_in_forward, by_operator, differentiated, said_of_backward
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import Given
from pygfuse.ops.listed import as_saved, forward_of, listed_of, say_which
from pygfuse.ops.plan import Adjoint, Plan
from pygfuse.ops.schema import flattened
from pygfuse.ops.walks import walk_back, walk_few_back
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import is_differentiated
from pygfuse.ops.within_torch.handed_out import HandedOut
from pygfuse.ops.within_torch.intercepted import are_plain, is_intercepted
from pygfuse.ops.within_torch.wanted import taken
from pygfuse.partial.paths.policy import note_whole


def aggregate_eagerly(
    plan: Plan,
    edges: Edges,
    given: Given,
    dropout: float,
    seed: Tensor | None,
    stash: bool,
    note: Note | None,
) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]``, and its statistics.

    Args:
        plan: What is known of such calls.
        edges: The edges.
        given: The operands, of one type and device.
        dropout: Probability of dropping a weight.
        seed: What decides it, or None.
        stash: Whether the weights of edges are kept for backward.
        note: Where the layer learns how its backward pass runs, or None.
    """
    graph = None if stash else listed_of(plan, edges, given.tensors[0].element_size())
    if graph is None:
        graph = edges.walked or edges.graph()
    else:
        plan = plan.formed
    if torch.is_grad_enabled():
        for tensor in given.tensors:
            if tensor.requires_grad:
                note = weakref.ref(note) if note is not None and plan.is_noted else None
                made = _Made(plan, edges, graph, given.numbers, dropout, stash, note)
                out = _apply(made, seed, *given.tensors)
                # autograd, which keeps the rest of it, has them among what is saved
                statistics, made.statistics = made.statistics, None
                return out, statistics
    return _forward(plan, edges, graph, given.tensors, given.numbers, dropout, seed)


def _forward(
    plan: Plan, edges: Edges, graph: Graph | Listed, tensors: Sequence[Tensor], numbers: Mapping[str, float],
    dropout: float, seed: Tensor | None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The output and its statistics."""
    if not _is_walk_alone(plan, graph, seed):
        return forward_of(plan.call(graph, tensors, numbers, dropout, seed), edges)
    rows = plan.rows(tensors, graph.num_edge_ids)
    try:
        return plan.walks(rows[0]).forward(graph, rows, numbers.values())
    except IndexError:
        say_which(edges)
        raise


def _is_walk_alone(plan: Plan, graph: Graph | Listed, seed: Tensor | None) -> bool:
    """Whether a call is a walk along few edges that takes its tensors as they are."""
    return type(graph) is Listed and seed is None and not plan.has_products


class _Made:
    """A call but for its tensors, and the statistics of its output."""

    __slots__ = ('dropout', 'edges', 'graph', 'note', 'numbers', 'plan', 'stash', 'statistics')

    def __init__(
        self,
        plan: Plan,
        edges: Edges,
        graph: Graph | Listed,
        numbers: Mapping[str, float],
        dropout: float,
        stash: bool,
        note: weakref.ref | None,
    ) -> None:
        self.plan, self.edges, self.graph, self.numbers = plan, edges, graph, numbers
        self.dropout, self.stash, self.note = dropout, stash, note
        self.statistics: Tensor | None = None


_BEFORE_TENSORS = 2
_NO_FEATURES: frozenset[str] = frozenset()


class _Aggregation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made, seed, *tensors):
        plan = made.plan
        given, weights = (tensors, made.numbers, made.dropout, seed), None
        if made.stash:
            call = plan.call(made.graph, *given)
            out, statistics = forward_of(call, made.edges)
            weights = backend_of(out.device).weights(call, statistics)
        else:
            out, statistics = _forward(plan, made.edges, made.graph, *given)
        ctx.adjoint = adjoint = plan.adjoint(ctx.needs_input_grad[_BEFORE_TENSORS:])
        ctx.unread = ()
        if adjoint.unread:
            tensors = list(tensors)
            ctx.unread = [(place, tensors[place].shape, tensors[place].dtype) for place in adjoint.unread]
            for place in adjoint.unread:
                tensors[place] = None
        # the token is what the user may write to; what hooks of saved tensors give for it may be a copy without a graph
        token = made.edges.token
        ctx.save_for_backward(*tensors, seed, token, out if plan.reads_output else None, statistics, weights)
        ctx.made, made.statistics = made, statistics
        ctx.reads_result = plan.reads_output
        ctx.note, ctx.said = made.note, said_of_backward(out.is_cuda)
        ctx.handed_out = HandedOut(out) if plan.reads_output and not ctx.unread else None
        if plan.reads_output:
            # what was not saved is needed to compute the result again
            return out.clone() if ctx.handed_out is None else ctx.handed_out.taken()
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad_out):
        made, adjoint = ctx.made, ctx.adjoint
        plan, graph = made.plan, made.graph
        flags = ctx.needs_input_grad[_BEFORE_TENSORS:]
        wanted = taken(ctx.next_functions[-len(flags) :], flags)
        if wanted != flags:
            adjoint = plan.adjoint(wanted)
        # once: reading them a second time would compute a checkpoint a second time, which it refuses
        *tensors, seed, token, out, statistics, weights = ctx.saved_tensors
        is_plain = type(grad_out) is Tensor and not is_intercepted() and not is_differentiated(grad_out)
        is_listed = type(graph) is Listed
        graph = as_saved(graph, token) if is_listed else graph
        if ctx.handed_out is not None and ctx.handed_out.was_written:
            out, _ = _forward(plan, made.edges, graph, tensors, made.numbers, made.dropout, seed)
        if is_listed:
            if is_plain and nothing_is_said():
                if _is_walk_alone(plan, graph, seed) and are_plain([t for t in tensors if t is not None]):
                    shapes = {place: shape for place, shape, _ in ctx.unread}
                    return None, None, *_of_walk_alone(made, adjoint, graph, tensors, shapes, grad_out, out, statistics)
            else:
                # what is said by a ``with`` block is of sorted edges
                graph = dataclasses.replace(made.edges, token=graph.edge_index, walked=None).graph()
                is_listed = False
        if is_plain and adjoint.is_sum and nothing_is_said() and not is_listed:
            found = backend_of(grad_out.device).sum_of_few(
                plan.bound, plan.heads, plan.channels, plan.reduce, graph, grad_out
            )
            if found is not None:
                note_whole(made.note, graph)
                return None, None, found.view(ctx.unread[0][1])
        for place, shape, dtype in ctx.unread:
            # one number stands for all, as nobody reads them
            tensors[place] = torch.empty((), dtype=dtype, device=grad_out.device).expand(shape)
        given = tensors, made.numbers, made.dropout, seed
        if is_plain and are_plain(tensors):
            call = plan.call(graph, *given, weights, adjoint.unread)
            operands = {**call.tensors, **plan.products(tensors)} if plan.has_products else call.tensors
            out = grad_out if out is None else out
            found = None
            if nothing_is_said():
                found = walk_few_back(call, operands, out, statistics, grad_out, adjoint.needed)
                note_whole(made.note if found is not None else None, graph)
            if found is None:
                with as_in_forward(ctx):
                    found = walk_back(call, made.edges.token, operands, out, statistics, grad_out, adjoint.needed)
            gradients = flattened(found) if plan.has_products else found
        else:
            compute = differentiated if is_differentiated(grad_out) else by_operator
            empty = grad_out.new_empty(0)
            rest = [empty if tensor is None else tensor for tensor in (statistics, weights)]
            gradients = compute(ctx, plan.arguments(made.edges, *given), adjoint.tensors, grad_out, out, rest)
        pairs = zip(plan.tensors, tensors, strict=True)
        return None, None, *[_shaped(gradients.get(name), tensor) for name, tensor in pairs]


_apply = untransformed(_Aggregation)


def _of_walk_alone(
    made: _Made, adjoint: Adjoint, listed: Listed, tensors: Sequence[Tensor | None],
    shapes: Mapping[int, torch.Size], grad: Tensor, out: Tensor | None, statistics: Tensor | None,
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of a walk's tensors, of which some were not kept and have these shapes."""
    plan, rows = made.plan, made.plan.rows(tensors, listed.num_edge_ids)
    given = listed, rows, made.numbers.values(), grad.contiguous(), out, statistics
    found = plan.walks(grad).backward(*given, adjoint.needed.names, _NO_FEATURES)
    note_whole(made.note, listed)
    gradients = []
    for place, name in enumerate(plan.tensors):
        gradient, tensor = found.get(name), tensors[place]
        if gradient is not None:
            shape = shapes[place] if tensor is None else tensor.shape
            gradient = gradient if len(shape) == 2 else gradient.view(shape)
        gradients.append(gradient)
    return gradients


def _shaped(grad: Tensor | None, tensor: Tensor) -> Tensor | None:
    """A gradient in the shape of its tensor."""
    return grad if grad is None or grad.dim() == tensor.dim() else grad.view(tensor.shape)
