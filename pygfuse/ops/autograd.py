"""How the operators on edges are differentiated: what forward saves, and how backward takes it up again.

Saved for backward are the operands, the output and its statistics: of a softmax its maxima and sums of exponentials, of
a maximum the numbers of edges that attain it; of a sum, only operands that its adjoint reads.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from pygfuse._lib.modes import changed, modes
from pygfuse.call import reference
from pygfuse.call.call import Call
from pygfuse.ops.batched import is_batched
from pygfuse.ops.dropout import factors_of
from pygfuse.ops.schema import Arguments, call_of, parted
from pygfuse.program import products
from pygfuse.program.adjoint import unread_rows
from pygfuse.program.program import PROGRAMS, SOURCE


def _keep(ctx, arguments: Arguments, output: Sequence[Tensor | None], unread: Collection[str] = ()) -> None:
    """Saves the arguments and the output, without the values of the tensors `unread`."""
    by_name = arguments.by_name()
    ctx.unread = {name: (by_name[name].shape, by_name[name].dtype, by_name[name].device) for name in unread}
    tensors = (None if name in unread else tensor for name, tensor in by_name.items())
    ctx.save_for_backward(*tensors, arguments.token, arguments.seed, *output)
    ctx.arguments = arguments._replace(tensors=(), token=None, seed=None)
    # what hooks of saved tensors give back may be a copy, for which no graph is kept
    ctx.token = None if torch.compiler.is_compiling() else arguments.token


def kept_arguments(ctx) -> tuple[Arguments, Sequence[Tensor | None]]:
    """What `_keep` was given; tensors whose values were not saved hold anything."""
    # once: reading them a second time would compute a checkpoint a second time, which it refuses
    saved, names = ctx.saved_tensors, ctx.arguments.names.split(',')
    token, seed, *output = saved[len(names) :]
    token = token if ctx.token is None else ctx.token
    tensors = dict(zip(names, saved, strict=False))
    for name, (shape, dtype, device) in ctx.unread.items():
        tensors[name] = torch.empty(shape, dtype=dtype, device=device)
    return ctx.arguments._replace(tensors=list(tensors.values()), token=token, seed=seed), output


def setup_context(ctx, inputs, output):
    arguments, _ = parted(inputs)
    program, (out, *rest) = PROGRAMS[arguments.program], output
    # a sum's adjoint does not read the sum: its owner may write to it
    is_read = program.softmax or arguments.reduce in ('max', 'min')
    needed = tuple(products.operand_of(name) for name, tensor in arguments.by_name().items() if tensor.requires_grad)
    unread = unread_rows(arguments.bound(), needed, arguments.reduce)
    _keep(ctx, arguments, (out if is_read else None, *rest), unread)
    said, operands = modes(), program.operands.values()
    # a layer's other aggregations (degrees) do not walk along the edges
    is_noted = said.note is not None and any(operand.side == SOURCE for operand in operands)
    ctx.note = weakref.ref(said.note) if is_noted else None
    # autograd's threads for a GPU do not know what is said in the caller's
    ctx.paths = said.execution_paths if arguments.tensors[0].is_cuda else None
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])


def backward(ctx, grad_out, *_):
    arguments, output = kept_arguments(ctx)
    needed = needed_of(ctx, arguments)
    gradients: dict[str, Tensor] = {}
    if grad_out is not None and needed:
        if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or is_batched(grad_out)):
            gradients = by_reference(arguments, needed, grad_out, _reference)
        else:
            with as_in_forward(ctx):
                out, *rest = (grad_out if kept is None else kept for kept in output)
                found = torch.ops.pygfuse.aggregate_backward(*arguments, out, *rest, grad_out, ','.join(needed))
            gradients = dict(zip(needed, found, strict=True))
    return structured(arguments, gradients, 1)


def _reference(call: Call) -> Tensor:
    return reference.aggregate(call, factors_of(call))


def as_in_forward(ctx) -> contextlib.AbstractContextManager[None]:
    """A ``with`` block for a backward pass: its layer's note, and what forward was told where nothing is said now."""
    paths = modes().execution_paths
    return changed(
        note=None if ctx.note is None else ctx.note(),
        execution_paths=ctx.paths if paths is None else paths,
    )


def needed_of(ctx, arguments: Arguments) -> list[str]:
    """The names of the tensors that need a gradient."""
    flags = ctx.needs_input_grad[Arguments._fields.index('tensors')]
    return [name for name, flag in zip(arguments.names.split(','), flags, strict=True) if flag]


def structured(arguments: Arguments, gradients: Mapping[str, Tensor], more: int) -> tuple:
    """Gradients in the order of an operator's arguments, of which there are `more` after those of a call."""
    none = Arguments(*[None] * len(Arguments._fields))
    # the structure that torch.library expects: an empty list counts as a list, any other as one argument
    of_scalars = None if arguments.scalars else []
    of_tensors = [gradients.get(name) for name in arguments.names.split(',')]
    return *none._replace(tensors=of_tensors, scalars=of_scalars), *[None] * more


def by_reference(
    arguments: Arguments, needed: Sequence[str], grad: Tensor, function: Callable[[Call], Tensor]
) -> dict[str, Tensor]:
    """The gradients of what the reference computes, as functions of the operands again if gradients are enabled."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        arguments = arguments._replace(tensors=[tensor.view_as(tensor) for tensor in arguments.tensors])
        by_name = arguments.by_name()
        given = [by_name[name] for name in needed]
        for tensor in given:
            if not tensor.requires_grad:
                tensor.requires_grad_()
        found = torch.autograd.grad(
            function(call_of(arguments)), given, grad, create_graph=with_graph, allow_unused=True
        )
    return dict(zip(needed, found, strict=True))


def weights_context(ctx, inputs, output):
    _keep(ctx, parted(inputs)[0], ())


def weights_backward(ctx, grad):
    arguments, _ = kept_arguments(ctx)
    gradients = by_reference(arguments, needed_of(ctx, arguments), grad, reference.weights)
    return structured(arguments, gradients, 1)
