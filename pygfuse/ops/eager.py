"""Edge programs where nothing traces: one ``autograd.Function`` over a graph that is at hand.

It runs the kernels of the operator and saves what the operator saves, without a schema and a look-up of the graph.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from pygfuse.graph.graph import Graph
from pygfuse.ops.autograd import as_in_forward, by_operator, by_reference, is_differentiated, kept_arguments
from pygfuse.ops.autograd import keep_for_adjoint as keep
from pygfuse.ops.binding import call_of_operands
from pygfuse.ops.schema import Arguments, flattened, with_parts
from pygfuse.ops.walks import walk, walk_back
from pygfuse.program.program import BoundProgram

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


def aggregate_eagerly(
    arguments: Arguments, bound: BoundProgram, graph: Graph, stash: bool
) -> tuple[Tensor, Tensor | None]:
    """The output and its statistics.

    Args:
        arguments: Those of the operator.
        bound: The program with the operands that are given.
        graph: The graph.
        stash: Whether the weights of edges are kept for backward.
    """
    tensors = arguments.tensors
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Aggregation.apply(arguments, bound, graph, stash, *tensors)
    return walk(_call(arguments, bound, graph), False)[:2]


def _call(arguments: Arguments, bound: BoundProgram, graph: Graph, weights: Tensor | None = None):
    return call_of_operands(
        *(bound, graph, arguments.operands(), arguments.numbers(), arguments.heads, arguments.channels),
        *(arguments.reduce, arguments.dropout, arguments.seed, weights),
    )


_BEFORE_TENSORS = 4


class _Aggregation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, arguments, bound, graph, stash, *tensors):
        arguments = arguments._replace(tensors=tensors)
        out, statistics, weights = walk(_call(arguments, bound, graph), stash)
        flags = ctx.needs_input_grad[_BEFORE_TENSORS:]
        keep(ctx, arguments, bound, flags, out, (statistics, weights))
        ctx.bound, ctx.graph = bound, graph
        if statistics is not None:
            ctx.mark_non_differentiable(statistics)
        return out, statistics

    @staticmethod
    def backward(ctx, grad_out, _):
        arguments, (out, statistics, weights) = kept_arguments(ctx)
        names, flags = arguments.names.split(','), ctx.needs_input_grad[_BEFORE_TENSORS:]
        needed = [name for name, flag in zip(names, flags, strict=True) if flag]
        if grad_out is None or not needed:
            gradients = {}
        elif is_differentiated(grad_out):
            gradients = by_reference(arguments, needed, grad_out)
        elif is_watched((grad_out, *(tensor for tensor in arguments.tensors if tensor is not None))):
            empty = grad_out.new_empty(0)
            rest = [empty if tensor is None else tensor for tensor in (statistics, weights)]
            gradients = by_operator(ctx, arguments, needed, grad_out, out, rest)
        else:
            operands, call = arguments.operands(), _call(arguments, ctx.bound, ctx.graph, weights)
            out = grad_out if out is None else out
            with as_in_forward(ctx):
                found = walk_back(call, arguments.token, operands, out, statistics, grad_out, with_parts(names, flags))
            gradients = flattened(found)
        return *[None] * _BEFORE_TENSORS, *(gradients.get(name) for name in names)
