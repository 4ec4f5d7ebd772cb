"""How networks on edges are differentiated: what forward saves, and how backward takes it up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pygfuse.ops.edge_mlp.reference import reference_moments, reference_network
from pygfuse.ops.edge_mlp.second_order import Network, twice_differentiable
from pygfuse.ops.edge_mlp.stages import read
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.wanted import taken


def keep(ctx, inputs, output):
    tensors, text, token, *rest = inputs
    ctx.text, ctx.rest = text, rest
    ctx.count = len(tensors)
    ctx.save_for_backward(*tensors, token, _kept_of(output, rest))
    if _reduce_of(rest) is not None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)


def _reduce_of(rest: Sequence) -> str | None:
    """How values are reduced, from the arguments behind the edges' token; None for moments."""
    return rest[3] if len(rest) > 3 else None


def _kept_of(output: Sequence[Tensor], rest: Sequence) -> Tensor:
    """Of a maximum its winners, of moments the mean."""
    return output[0] if _reduce_of(rest) is None else output[1]


def backward_of_operator(ctx, *grads):
    """The gradients in the order of an operator's arguments."""
    needed = ctx.needs_input_grad[0]
    found = gradients_of(ctx, needed, ctx.next_functions[: len(needed)], grads, torch.ops.pygfuse.edge_network_backward)
    return (found, None, None, *[None] * len(ctx.rest))


def gradients_of(
    ctx, needed: Sequence[bool], functions: Sequence, grads: Sequence[Tensor | None], compute: Callable
) -> Sequence[Tensor | None]:
    """The gradients of the tensors.

    Args:
        ctx: What `keep` has written to.
        needed: Which tensors need a gradient.
        functions: Of the context's ``next_functions`` those of the tensors.
        grads: Those of the results.
        compute: Computes the gradients of a network, as `pygfuse.ops.edge_mlp.reduction.network_gradients`.
    """
    *tensors, token, kept = ctx.saved_tensors
    reduce = _reduce_of(ctx.rest)
    wanted = list(needed) if torch.compiler.is_compiling() else [*taken(functions, needed)]
    if reduce is not None:
        if all(grad is None for grad in grads):
            # autograd asks also where what follows gives none
            return [None] * len(tensors)
        grads = _of_network(ctx.rest, tensors, kept, grads)

    def by_chunks() -> list[Tensor | None]:
        found = compute(tensors, ctx.text, token, *ctx.rest[:4], wanted, kept, *grads)
        return [grad if is_wanted else None for grad, is_wanted in zip(found, wanted, strict=True)]

    if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or any(map(_is_batched, grads))):
        if not _is_by_chunks(reduce, [t for t in (*tensors, *grads) if t is not None]):
            return by_reference(ctx, tensors, token, kept, grads)
        network = Network(ctx.text, *ctx.rest[:4])
        return twice_differentiable(
            *(network, token, tensors, grads, by_chunks),
            lambda operands, grads: by_reference(ctx, operands, token, kept, grads),
        )
    if reduce is None:
        return torch.ops.pygfuse.edge_moments_backward(tensors, ctx.text, token, *ctx.rest, kept, *grads)
    return by_chunks()


def _is_by_chunks(reduce: str | None, given: Sequence[Tensor]) -> bool:
    """Whether gradients that are to be differentiated are computed on chunks, now and then."""
    return reduce in ('sum', 'none') and not is_watched(given) and not any(map(is_batched, given))


def _is_batched(grad: Tensor | None) -> bool:
    return grad is not None and is_batched(grad)


def _of_network(
    rest: Sequence, tensors: Sequence[Tensor], kept: Tensor, grads: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the reduced values and of those of edges, the latter None where nobody reads them."""
    of_out, _, of_state = grads
    num_targets, reduce, with_state = rest[1], rest[3], rest[4]
    if of_out is None:
        # of a result that nobody read; without a reduction the operator reads none
        rows = num_targets if reduce != 'none' else 0
        of_out = tensors[0].new_zeros(rows, kept.shape[1])
    return of_out, of_state if with_state else None


def by_reference(ctx, operands, token, kept, grads) -> list[Tensor | None]:
    """The gradients by the reference, as functions of the operands again if gradients are enabled."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        tensors = [t.view_as(t) for t in operands]
        stages, edges = read(ctx.text, tensors), Edges(token, *ctx.rest[:3])
        reduce = _reduce_of(ctx.rest)
        if reduce is not None:
            outputs = reference_network(stages, edges, reduce, kept)
        else:
            outputs = reference_moments(stages, edges)
        pairs = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
        wanted = [t for t in tensors if t.requires_grad]
        outputs, grads = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=with_graph, allow_unused=True))
    return [next(found) if t.requires_grad else None for t in tensors]
