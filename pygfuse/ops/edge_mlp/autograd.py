"""How networks on edges are differentiated: what forward saves, and how backward takes it up again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.ops.batched import is_batched
from pygfuse.ops.edge_mlp.reference import reference_moments, reference_reduce
from pygfuse.ops.edge_mlp.stages import read
from pygfuse.ops.edges import Edges


def keep(ctx, inputs, output):
    source, target, tensors, text, token, *rest = inputs
    ctx.text, ctx.rest = text, rest
    ctx.count = len(tensors)
    ctx.save_for_backward(source, target, *tensors, token, _kept_of(output, rest))


def _reduce_of(rest: Sequence) -> str | None:
    """How values are reduced, from the arguments behind the edges' token; None for moments."""
    return rest[3] if len(rest) == 4 else None


def _kept_of(output: tuple[Tensor, Tensor], rest: Sequence) -> Tensor:
    """Of a maximum its winners, of moments the mean."""
    return output[0] if _reduce_of(rest) is None else output[1]


def _gradients(ctx, found: Sequence[Tensor | None]) -> tuple:
    of_source, of_target, *of_tensors = found
    return (of_source, of_target, of_tensors, None, None, *[None] * len(ctx.rest))


def backward(ctx, first, second):
    source, target, *tensors, token, kept = ctx.saved_tensors
    operands = (source, target, tensors)
    if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or is_batched(first)):
        return _gradients(ctx, by_reference(ctx, operands, token, kept, first, second))
    if _reduce_of(ctx.rest) is not None:
        found = torch.ops.pygfuse.edge_reduce_backward(*operands, ctx.text, token, *ctx.rest, kept, first)
    else:
        found = torch.ops.pygfuse.edge_moments_backward(*operands, ctx.text, token, *ctx.rest, kept, first, second)
    return _gradients(ctx, found)


def by_reference(ctx, operands, token, kept, first, second) -> list[Tensor | None]:
    """The gradients by the reference, as functions of the operands again if gradients are enabled."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        source, target, *tensors = [t.view_as(t) for t in (operands[0], operands[1], *operands[2])]
        stages, edges = read(ctx.text, tensors), Edges(token, *ctx.rest[:3])
        reduce = _reduce_of(ctx.rest)
        if reduce is not None:
            outputs, grads = reference_reduce(source, target, stages, edges, reduce, kept), first
        else:
            outputs, grads = reference_moments(source, target, stages, edges), (first, second)
        wanted = [t for t in (source, target, *tensors) if t.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=with_graph, allow_unused=True))
    return [next(found) if t.requires_grad else None for t in (source, target, *tensors)]
