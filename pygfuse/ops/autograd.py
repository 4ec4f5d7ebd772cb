"""How an edge program is differentiated, run as an operator or without: what forward saves, and how backward takes it
up again.

Saved for backward are the operands, the output and its statistics: of a softmax its maxima and sums of exponentials, of
a maximum the numbers of edges that attain it; of a sum, only operands that its adjoint reads.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.modes import changed, modes
from pygfuse.call import reference
from pygfuse.call.call import Call
from pygfuse.ops.dropout import factors_of
from pygfuse.ops.plan import call_of, plan_of_arguments
from pygfuse.ops.schema import Arguments, flattened, parted, with_parts
from pygfuse.ops.second_order import by_walks, twice_differentiable
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.differentiable import is_differentiated
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.wanted import taken
from pygfuse.program.products import Product

# what walks ask of a backward pass
_OF_BACKWARD = ('execution_paths', 'mapping', 'group_sizes')


def said_of_backward(is_cuda: bool) -> dict[str, Any]:
    """What is said where a call is and holds for its backward pass, by the names of `Modes`; nothing if that can ask
    itself.

    Autograd's threads for a GPU do not know what is said in the caller's.
    """
    said = modes() if is_cuda else None
    return {} if said is None else {name: getattr(said, name) for name in _OF_BACKWARD}


def save_arguments(ctx, arguments: Arguments, output: Sequence[Tensor | None], unread: Sequence[int] = ()) -> None:
    """Saves the arguments and the output, without the values of the tensors at the places `unread`."""
    tensors = list(arguments.tensors)
    ctx.unread = unread
    ctx.shapes = [(tensors[i].shape, tensors[i].dtype, tensors[i].device) for i in ctx.unread]
    for i in ctx.unread:
        tensors[i] = None
    ctx.save_for_backward(*tensors, arguments.token, arguments.seed, *output)
    ctx.arguments = arguments._replace(tensors=(), token=None, seed=None)
    # what hooks of saved tensors give back may be a copy, for which no graph is kept
    ctx.token = None if torch.compiler.is_compiling() else arguments.token


def kept_arguments(ctx) -> tuple[Arguments, Sequence[Tensor | None]]:
    """What `save_arguments` was given; tensors whose values were not saved hold anything."""
    # once: reading them a second time would compute a checkpoint a second time, which it refuses
    saved, count = ctx.saved_tensors, ctx.arguments.names.count(',') + 1
    token, seed, *output = saved[count:]
    token = token if ctx.token is None else ctx.token
    tensors = list(saved[:count])
    for i, (shape, dtype, device) in zip(ctx.unread, ctx.shapes, strict=True):
        tensors[i] = torch.empty(shape, dtype=dtype, device=device)
    return ctx.arguments._replace(tensors=tensors, token=token, seed=seed), output


def setup_context(ctx, inputs, output):
    arguments, _ = parted(inputs)
    out, *rest = output
    plan, _ = plan_of_arguments(arguments)
    unread = plan.adjoint(tuple([tensor.requires_grad for tensor in arguments.tensors])).unread
    save_arguments(ctx, arguments, (out if plan.reads_output else None, *rest), unread)
    note = modes().note
    ctx.note = weakref.ref(note) if plan.is_noted and note is not None else None
    ctx.said = said_of_backward(out.is_cuda)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*rest)


def backward(ctx, grad_out, *_):
    arguments, (kept, *rest) = kept_arguments(ctx)
    needed = needed_names(ctx, arguments)
    gradients: dict[str, Tensor] = {}
    if grad_out is not None and needed:
        compute = differentiated if is_differentiated(grad_out) else by_operator
        gradients = compute(ctx, arguments, needed, grad_out, kept, rest)
    return structured(arguments, gradients, 1)


def by_operator(
    ctx, arguments: Arguments, needed: Sequence[str], grad_out: Tensor, out: Tensor | None, rest: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The gradients of the tensors `needed` by the operator."""
    with as_in_forward(ctx):
        out = grad_out if out is None else out
        found = torch.ops.pygfuse.aggregate_backward(*arguments, out, *rest, grad_out, ','.join(needed))
    return dict(zip(needed, found, strict=True))


def differentiated(
    ctx, arguments: Arguments, needed: Sequence[str], grad_out: Tensor, out: Tensor | None, rest: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The gradients of the tensors `needed`, as functions of the operands again if gradients are enabled."""
    if is_batched(grad_out) or is_watched([grad_out, *arguments.tensors]) or not by_walks(arguments):
        return by_reference(arguments, needed, grad_out)
    return twice_differentiable(
        arguments,
        needed,
        grad_out,
        lambda: by_operator(ctx, arguments, needed, grad_out, out, rest),
        lambda arguments, grad_out: by_reference(arguments, needed, grad_out),
    )


def as_in_forward(ctx) -> contextlib.AbstractContextManager[None]:
    """A ``with`` block for a backward pass: its layer's note, and what forward was told where nothing is said now."""
    said = modes()
    note = None if ctx.note is None else ctx.note()
    more = {name: value for name, value in ctx.said.items() if value is not None and getattr(said, name) is None}
    return contextlib.nullcontext() if said.note is note and not more else changed(note=note, **more)


def needed_names(ctx, arguments: Arguments) -> list[str]:
    """The names of the tensors that need a gradient."""
    flags = ctx.needs_input_grad[Arguments._fields.index('tensors')]
    if not torch.compiler.is_compiling():
        flags = taken(ctx.next_functions[: len(flags)], flags)
    return [name for name, flag in zip(arguments.names.split(','), flags, strict=True) if flag]


def structured(arguments: Arguments, gradients: Mapping[str, Tensor], more: int) -> tuple:
    """Gradients in the order of an operator's arguments, of which there are `more` after those of a call."""
    none = Arguments(*[None] * len(Arguments._fields))
    # the structure that torch.library expects: an empty list counts as a list, any other as one argument
    of_scalars = None if arguments.scalars else []
    of_tensors = [gradients.get(name) for name in arguments.names.split(',')]
    return *none._replace(tensors=of_tensors, scalars=of_scalars), *[None] * more


def by_reference(
    arguments: Arguments, needed: Sequence[str], grad: Tensor, function: Callable[[Call], Tensor] | None = None
) -> dict[str, Tensor]:
    """The gradients of what the reference computes, as functions of the operands again if gradients are enabled.

    Args:
        arguments: Those of the call.
        needed: The names of the tensors that need a gradient.
        grad: The gradient of what is computed.
        function: What is computed of the call; by default its output.
    """
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        arguments = arguments._replace(tensors=[tensor.view_as(tensor) for tensor in arguments.tensors])
        by_name = dict(zip(arguments.names.split(','), arguments.tensors, strict=True))
        given = [by_name[name] for name in needed]
        for tensor in given:
            if not tensor.requires_grad:
                tensor.requires_grad_()
        computed = (function or _output)(call_of(arguments))
        found = torch.autograd.grad(computed, given, grad, create_graph=with_graph, allow_unused=True)
    return dict(zip(needed, found, strict=True))


def _output(call: Call) -> Tensor:
    return reference.aggregate(call, factors_of(call))


def weights_context(ctx, inputs, output):
    save_arguments(ctx, parted(inputs)[0], ())


def weights_backward(ctx, grad):
    arguments, _ = kept_arguments(ctx)
    gradients = by_reference(arguments, needed_names(ctx, arguments), grad, reference.weights)
    return structured(arguments, gradients, 1)


def flags_of(arguments: Arguments, needed: Collection[str]) -> dict[str, bool | Product]:
    """Which operands, and which of their parts, need a gradient."""
    names = arguments.names.split(',')
    return with_parts(names, [name in needed for name in names])


def in_order(names: Collection[str], gradients: Mapping[str, Tensor | Product]) -> list[Tensor]:
    """The gradients of the tensors `names`."""
    by_name = flattened(gradients)
    return [by_name[name] for name in names]
