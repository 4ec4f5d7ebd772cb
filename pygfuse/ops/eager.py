"""Edge programs where nothing traces: one ``autograd.Function`` over a graph that is at hand.

It runs the kernels of the operator and saves what the operator saves, without a schema and a look-up of the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from pygfuse.graph.graph import Graph
from pygfuse.ops.autograd import as_in_forward, by_operator, by_reference, is_differentiated, keep_modes
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import Given
from pygfuse.ops.plan import Plan
from pygfuse.ops.schema import flattened, with_parts
from pygfuse.ops.walks import walk, walk_back

_PLAIN = (Tensor, Parameter)


def is_watched(tensors: Collection[Tensor]) -> bool:
    """Whether operators have to be operators here: somebody traces, transforms or intercepts them."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or any(type(tensor) not in _PLAIN for tensor in tensors)
    )


def of_no_own_class(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors without classes that only intercept functions of torch, as which they were taken before.

    torch leaves such a class out in backward, so that a checkpoint would not compute again what it has computed.
    """
    if all(type(tensor) in _PLAIN for tensor in tensors):
        return tensors
    dispatch = Tensor.__torch_dispatch__
    return [tensor.as_subclass(Tensor) if type(tensor).__torch_dispatch__ is dispatch else tensor for tensor in tensors]


def aggregate_eagerly(
    plan: Plan,
    edges: Edges,
    given: Given,
    dropout: float,
    seed: Tensor | None,
    stash: bool,
) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]``, and its statistics.

    Args:
        plan: What is known of such calls.
        edges: The edges.
        given: The operands, of one type and device.
        dropout: Probability of dropping a weight.
        seed: What decides it, or None.
        stash: Whether the weights of edges are kept for backward.
    """
    graph = edges.graph()
    if torch.is_grad_enabled():
        for tensor in given.tensors:
            if tensor.requires_grad:
                made = _Made(plan, edges, graph, given.numbers, dropout, stash)
                out = _Aggregation.apply(made, seed, *given.tensors)
                # autograd, which keeps the rest of it, has them among what is saved
                statistics, made.statistics = made.statistics, None
                return out, statistics
    return walk(plan.call(graph, given.tensors, given.numbers, dropout, seed), False)[:2]


@dataclasses.dataclass
class _Made:
    """A call but for its tensors, and the statistics of its output."""

    plan: Plan
    edges: Edges
    graph: Graph
    numbers: Mapping[str, float]
    dropout: float
    stash: bool
    statistics: Tensor | None = None


_BEFORE_TENSORS = 2


class _Aggregation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made, seed, *tensors):
        plan = made.plan
        out, statistics, weights = walk(plan.call(made.graph, tensors, made.numbers, made.dropout, seed), made.stash)
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
        keep_modes(ctx, plan.is_noted, token.is_cuda)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        made, adjoint = ctx.made, ctx.adjoint
        plan = made.plan
        # once: reading them a second time would compute a checkpoint a second time, which it refuses
        *tensors, seed, _, out, statistics, weights = ctx.saved_tensors
        for place, shape, dtype in ctx.unread:
            tensors[place] = torch.empty(shape, dtype=dtype, device=grad_out.device)
        given = tensors, made.numbers, made.dropout, seed
        if is_differentiated(grad_out):
            gradients = by_reference(plan.arguments(made.edges, *given), adjoint.tensors, grad_out)
        elif is_watched((grad_out, *tensors)):
            empty = grad_out.new_empty(0)
            rest = [empty if tensor is None else tensor for tensor in (statistics, weights)]
            gradients = by_operator(ctx, plan.arguments(made.edges, *given), adjoint.tensors, grad_out, out, rest)
        else:
            call = plan.call(made.graph, *given, weights)
            operands = with_parts(plan.tensors, tensors) if plan.products else call.tensors
            with as_in_forward(ctx):
                found = walk_back(
                    call, made.edges.token, operands, grad_out if out is None else out, statistics, grad_out,
                    adjoint.needed,
                )  # fmt: skip
            gradients = flattened(found) if plan.products else found
        return (
            None,
            None,
            *(_shaped(gradients.get(name), tensor) for name, tensor in zip(plan.tensors, tensors, strict=True)),
        )


def _shaped(grad: Tensor | None, tensor: Tensor) -> Tensor | None:
    """A gradient in the shape of its tensor."""
    return grad if grad is None or grad.dim() == tensor.dim() else grad.view(tensor.shape)
