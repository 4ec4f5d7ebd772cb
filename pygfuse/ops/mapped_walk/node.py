"""The node of autograd: maps, walk and what is added to it, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import head_products_of
from pygfuse._lib.finite import is_finite
from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import nothing_is_said
from pygfuse.call.call import Call
from pygfuse.graph.adjacency import target_row_of
from pygfuse.graph.listed import Listed
from pygfuse.ops.autograd import differentiable
from pygfuse.ops.batched import is_batched
from pygfuse.ops.edges import Edges
from pygfuse.ops.few_edges import FewEdges
from pygfuse.ops.intercepted import is_intercepted
from pygfuse.ops.listed import as_saved, forward_of
from pygfuse.ops.mapped_walk.form import Form, Part, Weights, by_parts
from pygfuse.ops.mapped_walk.written import SIDES, Shape, is_remade, written, written_adjoint
from pygfuse.ops.plan import Adjoint
from pygfuse.ops.walks import walk_few_back
from pygfuse.program.program import EDGE, SOURCE, TARGET

# arguments of the function that are no tensors
_BEFORE = 4


def walk_of_maps(
    form: Form,
    maps: Sequence[Weights],
    x: tuple[Tensor, Tensor],
    edges: FewEdges,
    features: Tensor | None = None,
    rest: Sequence[Tensor] = (),
    itself: float | None = None,
) -> Tensor:
    """A program over few edges, its operands made as a form says; all tensors are torch's own, of one type and device.

    Args:
        form: The program, and what its operands are made of.
        maps: The linear maps.
        x: Rows of sources, ``[num_sources, in]``, and of targets, ``[num_targets, in]``, which may be the same tensor.
        edges: The edges.
        features: Rows of edges, ``[edges, D]``, or None.
        rest: The vectors of the form's dots, ``[1, H, C]`` each, and the operands that it is given.
        itself: How many times rows of targets are added to the result, or None.

    Returns:
        ``[num_targets, H * C]``.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.

    Example:
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> form = Form(NEIGHBOURS, (('x', (Part(SOURCE, 0),)),), heads=1, channels=1, added=(Part(TARGET),))
        >>> edges = FewEdges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 'source_to_target', 3, 3)
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> walk_of_maps(form, [Weights(torch.tensor([[10.0]]), None)], (x, x), edges).tolist()
        [[1.0], [52.0], [24.0]]
    """
    source, target = x
    same, biased, tensors = target is source, [], []
    for weight, bias in maps:
        tensors += weight, bias
        biased.append(bias is not None)
    shape = Shape(same, tuple(biased), itself is not None)
    given = source, None if same else target, features, *tensors, *rest
    if torch.is_grad_enabled():
        return _apply(form, shape, edges, itself, edges.edge_index, *given)
    return _forward(form, shape, edges, itself, edges.edge_index, given).out


class _Found(NamedTuple):
    """What forward gives: the result, that of the walk, its statistics, and the operands that are tensors."""

    out: Tensor
    walked: Tensor
    statistics: Tensor | None
    operands: list[Tensor]


def _forward(
    form: Form, shape: Shape, edges: FewEdges, itself: float | None, edge_index: Tensor, given: Sequence[Tensor | None]
) -> _Found:
    lines, plan, num_dots = written(form, shape), form.plan(), len(form.dots)
    mapped, rest = given[: shape.num_mapped], given[shape.num_mapped :]
    operands = [*lines.make(*mapped)]
    if num_dots:
        x = operands[form.place_of_dots].view(-1, form.heads, form.channels)
        operands += head_products_of(x.device).products(x, *[vector.contiguous() for vector in rest[:num_dots]])
    operands += rest[num_dots:]
    call = plan.call(_listed_of(form, edges, edge_index), operands, form.scalars, 0.0, None)
    walked, statistics = forward_of(call, _edges_of(form, edges))
    out = walked
    if lines.add is not None:
        out = lines.add(walked, itself, *mapped)
    return _Found(out, walked, statistics, operands)


def _edges_of(form: Form, edges: FewEdges) -> Edges:
    loops = edges.num_targets if form.loops else None
    return Edges(edges.edge_index, edges.num_sources, edges.num_targets, edges.flow, loops)


def _listed_of(form: Form, edges: FewEdges, edge_index: Tensor) -> Listed:
    loops, found = edges.num_targets if form.loops else None, torch.empty(1, dtype=torch.int64)
    return Listed(edge_index, target_row_of(edges.flow), edges.num_sources, edges.num_targets, loops, found)


class _Wanted(NamedTuple):
    """What follows from which tensors need a gradient.

    Attributes:
        flags: Whether each operand needs one.
        adjoint: What the walk's adjoint gives and reads; None where no operand needs one.
        kept: Whether each operand is kept for it beside the tensors.
    """

    flags: tuple[bool, ...]
    adjoint: Adjoint | None
    kept: tuple[bool, ...]


@functools.lru_cache(maxsize=1024)
def _wanted_of(form: Form, shape: Shape, needed: tuple[bool, ...]) -> _Wanted:
    mapped, rest = needed[: shape.num_mapped], needed[shape.num_mapped :]
    of_sides = dict(zip(SIDES, mapped, strict=False))
    of_sides[TARGET] = of_sides[SOURCE] if shape.same else of_sides[TARGET]

    def is_needed(part: Part) -> bool:
        # a bias alone is in no operand
        weights = () if part.linear is None else mapped[3 + 2 * part.linear : 5 + 2 * part.linear]
        return of_sides[part.side] or any(weights)

    of_made = [any(map(is_needed, parts)) for _, parts in form.made]
    of_dots = [of_made[form.place_of_dots] or flag for _, flag in zip(form.dots, rest, strict=False)]
    flags = *of_made, *of_dots, *rest[len(form.dots) :]
    adjoint = form.plan().adjoint(flags) if any(flags) else None
    # what is given is kept already
    num_new = len(form.made) + len(form.dots)
    kept = tuple(
        place < num_new
        and (place >= len(form.made) or not is_remade(form, place))
        and (adjoint is None or place not in adjoint.unread or place in form.places_of_dots)
        for place in range(len(flags))
    )
    return _Wanted(flags, adjoint, kept)


class _MappedWalk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, form, shape, edges, itself, edge_index, *given):
        found = _forward(form, shape, edges, itself, edge_index, given)
        ctx.form, ctx.shape, ctx.edges, ctx.itself = form, shape, edges, itself
        ctx.wanted = wanted = _wanted_of(form, shape, ctx.needs_input_grad[_BEFORE + 1 :])
        operands = [value if is_kept else None for value, is_kept in zip(found.operands, wanted.kept, strict=True)]
        walked = found.walked if form.plan().reads_output else None
        ctx.save_for_backward(edge_index, walked, found.statistics, *operands, *given)
        return found.out

    @staticmethod
    def backward(ctx, grad):
        form, num_operands = ctx.form, len(ctx.wanted.flags)
        edge_index, walked, statistics, *saved = ctx.saved_tensors
        operands, given = saved[:num_operands], saved[num_operands:]
        needed = ctx.needs_input_grad[_BEFORE + 1 :]
        is_plain = type(grad) is Tensor and not is_intercepted() and not is_batched(grad) and nothing_is_said()
        found = None
        if is_plain and not torch.is_grad_enabled() and not torch.is_autocast_enabled(grad.device.type):
            found = _gradients(ctx, edge_index, walked, statistics, operands, given, grad, needed)
        if found is None:
            edges = ctx.edges._replace(edge_index=edge_index)
            compute = functools.partial(_compute, form, ctx.shape, _edges_of(form, edges), ctx.itself)
            found = differentiable(compute, given, grad, needed)
        return None, None, None, None, None, *found


_apply = untransformed(_MappedWalk)


def _compute(form: Form, shape: Shape, edges: Edges, itself: float | None, *given: Tensor | None) -> Tensor:
    """The result by operators of torch and a walk that can be differentiated again."""
    source, target, features, *tensors = given[: shape.num_mapped]
    rows = {SOURCE: source, TARGET: source if target is None else target, EDGE: features}
    maps = [Weights(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
    return by_parts(form, edges, rows, maps, given[shape.num_mapped :], itself)


def _gradients(
    ctx, edge_index: Tensor, walked: Tensor | None, statistics: Tensor | None, operands: list[Tensor | None],
    given: Sequence[Tensor | None], grad: Tensor, needed: Sequence[bool],
) -> list[Tensor | None] | None:  # fmt: skip
    """The gradients of what was given; None where some are not finite and nodes without edges might be why."""
    form, shape, wanted = ctx.form, ctx.shape, ctx.wanted
    mapped, rest = given[: shape.num_mapped], given[shape.num_mapped :]
    found: dict[str, Tensor] = {}
    of_rest: list[Tensor | None] = [None] * len(rest)
    if wanted.adjoint is not None:
        call = _call_again(ctx, edge_index, operands, mapped, rest, grad)
        read = grad if walked is None else walked
        found = walk_few_back(call, call.tensors, read, statistics, grad, wanted.adjoint.needed)
        ctx.edges.walked_back(call.graph.num_edges)
        if form.dots:
            of_rest[: len(form.dots)] = _through_dots(form, found, operands, rest)
        for place, name in enumerate(form.given, len(form.dots)):
            if name in found:
                of_rest[place] = found[name].view(rest[place].shape)
    of_made = [found.get(name) for name, _ in form.made]
    lines = written_adjoint(form, shape, tuple([g is not None for g in of_made]), tuple(needed[: shape.num_mapped]))
    result = [*lines(grad, ctx.itself, *of_made, *mapped), *of_rest]
    if form.of_edges and not all(value is None or is_finite(value) for value in result):
        return None
    return result


def _call_again(
    ctx, edge_index: Tensor, operands: list[Tensor | None], mapped: Sequence[Tensor | None], rest: Sequence[Tensor],
    like: Tensor,
) -> Call:  # fmt: skip
    """The call of forward, of which some operands are made again and some have a shape only."""
    form, unread = ctx.form, ctx.wanted.adjoint.unread
    remade = written(form, ctx.shape).remake(*mapped)
    num_dots, num_made = len(form.dots), len(form.made)
    operands[:num_made] = [value if again is None else again for value, again in zip(operands, remade, strict=False)]
    operands[num_made + num_dots :] = rest[num_dots:]
    for place in unread:
        if operands[place] is None:
            operands[place] = like.new_empty(()).expand(_shape_of(ctx, place))
    listed = as_saved(_listed_of(form, ctx.edges, ctx.edges.edge_index), edge_index)
    return form.plan().call(listed, operands, form.scalars, 0.0, None, None, unread)


def _shape_of(ctx, place: int) -> tuple[int, int]:
    """The shape of an operand of nodes."""
    form, edges, of_dots = ctx.form, ctx.edges, place - len(ctx.form.made)
    name = form.made[place][0] if of_dots < 0 else form.dots[of_dots][0]
    rows = edges.num_sources if form.program.operands[name].side == SOURCE else edges.num_targets
    return rows, form.heads * (form.channels if of_dots < 0 else 1)


def _through_dots(
    form: Form, found: dict[str, Tensor], operands: Sequence[Tensor], rest: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The gradients of the dots' vectors; adds those of features to what was found."""
    name = form.dots[0][1]
    x, vectors = operands[form.place_of_dots].view(-1, form.heads, form.channels), rest[: len(form.dots)]
    given = x, *[vector.contiguous() for vector in vectors], *[found[dot] for dot, _ in form.dots]
    of_x, *of_vectors = head_products_of(x.device).products_adjoint(*given)
    found[name] = found[name].add_(of_x.view(found[name].shape)) if name in found else of_x.flatten(1)
    return of_vectors
