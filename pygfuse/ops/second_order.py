"""The gradient of a gradient of an edge program by walks.

The gradients of a program's operands are a function of these and of the gradient of its output. Its own gradient, along
tangents of the operands, is that of ``<grad, change of the output>``, and the change is computed by programs derived
from the same trace (`pygfuse.program.tangent`): so derivatives of any order are walks, and save operands only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from pygfuse.ops.edges import Edges
from pygfuse.ops.given import given_of
from pygfuse.ops.plan import Plan, plan_of_arguments
from pygfuse.ops.schema import Arguments, with_parts
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.lazy_values import given_values
from pygfuse.program.products import OperandValue, Product
from pygfuse.program.tangent import change_of, changes


def by_walks(arguments: Arguments) -> bool:
    """Whether gradients of a call are differentiated by walks."""
    plan, _ = plan_of_arguments(arguments)
    return changes(plan.bound, plan.reduce)


def twice_differentiable(
    arguments: Arguments,
    needed: Sequence[str],
    grad_out: Tensor,
    compute: Callable[[], Mapping[str, Tensor]],
    by_operators: Callable[[Arguments, Tensor], Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """The gradients of the tensors `needed`, as functions of a call's tensors and of the gradient of its output.

    Args:
        arguments: The call, one that goes `by_walks`.
        needed: The names of the tensors.
        grad_out: The gradient of its output.
        compute: Gives the gradients.
        by_operators: The same by PyTorch's operators, of a call and the gradient of its output: for batches of them.
    """
    found = _Gradients.apply(arguments, needed, compute, by_operators, grad_out, *arguments.tensors)
    return dict(zip(needed, found, strict=True))


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, arguments, needed, compute, by_operators, grad_out, *tensors):
        gradients = compute()
        ctx.plan, _ = plan_of_arguments(arguments)
        ctx.needed, ctx.by_operators, ctx.shapes = needed, by_operators, [tensor.shape for tensor in tensors]
        change = change_of(ctx.plan.bound, _operands_of(needed))
        # what is linear is not read, but for the parts of a product, each of which the other's tangent meets
        read = [':' in name or change.reads(name) for name in arguments.names.split(',')]
        kept = [tensor if is_read else None for tensor, is_read in zip(tensors, read, strict=True)]
        ctx.save_for_backward(arguments.token, arguments.seed, grad_out, *kept)
        # what hooks of saved tensors give for the token may be a copy, for which no graph is kept
        ctx.arguments = arguments._replace(tensors=(), seed=None)
        ctx.set_materialize_grads(False)
        return tuple(gradients[name] for name in needed)

    @staticmethod
    @given_values
    def backward(ctx, *tangents):
        given = {name: tangent for name, tangent in zip(ctx.needed, tangents, strict=True) if tangent is not None}
        needs = ctx.needs_input_grad[4:]
        found = _gradients(ctx, given, needs) if given else [None] * len(needs)
        return None, None, None, None, *found


def _operands_of(names: Iterable[str]) -> tuple[str, ...]:
    """The operands that tensors are, or are parts of."""
    return tuple(dict.fromkeys(name.partition(':')[0] for name in names))


def _gradients(ctx, tangents: Mapping[str, Tensor], needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of that of the output and of the tensors, given tangents of some of these by name."""
    _, seed, grad_out, *kept = ctx.saved_tensors
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # one may be computed from another: views of their own keep their gradients apart
        grad_out, *kept = (None if tensor is None else tensor.view_as(tensor) for tensor in (grad_out, *kept))
        for tensor, is_needed in zip((grad_out, *kept), needs, strict=True):
            if is_needed and tensor is not None and not tensor.requires_grad:
                tensor.requires_grad_()
        arguments = ctx.arguments._replace(seed=seed, tensors=kept)
        wanted = [t for t, is_needed in zip((grad_out, *kept), needs, strict=True) if is_needed and t is not None]
        if any(map(is_batched, (grad_out, *tangents.values()))):
            results, along = _by_operators(ctx, arguments, grad_out, tangents)
            found = torch.autograd.grad(results, wanted, along, create_graph=with_graph, allow_unused=True)
        else:
            changed = _changed(arguments, ctx.plan, tangents)
            found = _of_change(changed, grad_out, wanted, with_graph)
    found = iter(found)
    pairs = zip((grad_out, *kept), needs, strict=True)
    return [next(found) if is_needed and tensor is not None else None for tensor, is_needed in pairs]


def _of_change(
    changed: Tensor | None, grad_out: Tensor, wanted: Sequence[Tensor], with_graph: bool
) -> Sequence[Tensor | None]:
    """The gradients of ``<grad_out, changed>``."""
    if changed is None:
        return [None] * len(wanted)
    others = [tensor for tensor in wanted if tensor is not grad_out]
    found = iter([None] * len(others))
    if others and changed.requires_grad:
        found = iter(torch.autograd.grad(changed, others, grad_out, create_graph=with_graph, allow_unused=True))
    return [(changed if with_graph else changed.detach()) if t is grad_out else next(found) for t in wanted]


def _by_operators(
    ctx, arguments: Arguments, grad_out: Tensor, tangents: Mapping[str, Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients by PyTorch's operators, and their tangents."""
    # what was not kept is not read, but has a shape
    pairs = zip(arguments.tensors, ctx.shapes, strict=True)
    tensors = [grad_out.new_zeros(shape) if tensor is None else tensor for tensor, shape in pairs]
    gradients = ctx.by_operators(arguments._replace(tensors=tensors), grad_out)
    names = [name for name in tangents if gradients[name] is not None and gradients[name].requires_grad]
    return [gradients[name] for name in names], [tangents[name] for name in names]


def _changed(arguments: Arguments, plan: Plan, tangents: Mapping[str, Tensor]) -> Tensor | None:
    """How the output changes along tangents; None where it does not."""
    change = change_of(plan.bound, tuple(name for name in plan.bound.present if name in _operands_of(tangents)))
    names = arguments.names.split(',')
    operands = with_parts(names, arguments.tensors)
    moved = with_parts(list(tangents), list(tangents.values()))
    values: dict[str, OperandValue] = {**operands, **arguments.numbers()}
    for name, of in change.tangents.items():
        value = operands[name]
        values[of] = _of_product(value, moved[name]) if isinstance(value, Product) else moved[name]
    edges = Edges(arguments.token, arguments.num_sources, arguments.num_targets, arguments.flow, arguments.loops)
    form = arguments.heads, arguments.channels, arguments.reduce, arguments.dropout, arguments.seed
    outs = []
    for program in change.programs:
        given = given_of(program, {name: values[name] for name in program.operands})
        outs.append(torch.ops.pygfuse.aggregate(*given.arguments(edges, *form), False)[0])
    return sum(outs[1:], outs[0]) if outs else None


def _of_product(product: Product, tangent: Product) -> Product:
    """The tangent of a product, one product again."""
    if tangent.features is None and tangent.loops is None:
        return product._replace(weight=tangent.weight)
    features, loops = (
        torch.zeros_like(part) if part is not None and moved is None else moved
        for part, moved in ((product.features, tangent.features), (product.loops, tangent.loops))
    )
    if tangent.weight is None:
        return Product(features, product.weight, loops)
    return Product(
        torch.cat([features, product.features], dim=1),
        torch.cat([product.weight, tangent.weight]),
        None if loops is None else torch.cat([loops, product.loops], dim=1),
    )
