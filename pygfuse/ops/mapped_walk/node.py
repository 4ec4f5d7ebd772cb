"""The node of autograd: maps, walk and what is added to it, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import head_products_of
from pygfuse._lib.finite import are_finite
from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import nothing_is_said
from pygfuse.graph.listed import Listed
from pygfuse.mapping.few_edges import are_multiplied
from pygfuse.ops.edges import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.listed import as_listed, as_saved
from pygfuse.ops.mapped_walk.form import Form, Weights, by_parts
from pygfuse.ops.mapped_walk.map_lines import Shape
from pygfuse.ops.mapped_walk.shaped import Shaped, Wanted, shaped_of
from pygfuse.ops.nodes.sum_maps import adjoint_of_maps, maps_of_sums
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable
from pygfuse.ops.within_torch.handed_out import HandedOut
from pygfuse.ops.within_torch.intercepted import is_plain_gradient
from pygfuse.program.program import EDGE, SOURCE, TARGET

# arguments of the function that are not differentiated
_BEFORE = 5


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
        rest: The vectors of the form's dots, ``[1, H, C]`` each, the operands that it is given, and what derived ones
            are made of beside rows.
        itself: How many times rows of targets are added to the result, or None.

    Returns:
        ``[num_targets, H * C]``, or ``[num_targets, C]`` where heads are summed.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.

    Example:
        >>> from pygfuse.ops.mapped_walk import Part
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> form = Form(NEIGHBOURS, {'x': (Part(SOURCE, 0),)}, heads=1, channels=1, added=(Part(TARGET),))
        >>> edges = FewEdges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 'source_to_target', 3, 3)
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> walk_of_maps(form, [Weights(torch.tensor([[10.0]]), None)], (x, x), edges).tolist()
        [[1.0], [52.0], [24.0]]
    """
    source, target = x
    same, biased, turned, tensors = target is source, [], [], []
    for weight, bias, is_turned in maps:
        tensors += weight, bias
        biased.append(bias is not None)
        turned.append(is_turned)
    multiplies = features is not None and are_multiplied(*features.shape)
    shaped = shaped_of(form, Shape(same, tuple(biased), tuple(turned), itself is not None, multiplies))
    given = source, None if same else target, features, *tensors, *rest
    num_loops = edges.num_targets if form.loops else None
    listed = as_listed(edges.edge_index, edges.flow, edges.num_sources, edges.num_targets, num_loops)
    if torch.is_grad_enabled():
        return _apply(shaped, edges, listed, itself, edges.edge_index, *given)
    return _forward(shaped, edges, listed, itself, given).out


class _Made(NamedTuple):
    """What forward makes.

    Attributes:
        out: The result.
        summed: The same before it was mapped.
        walked, statistics: That of the walk, and its statistics.
        operands: The operands that are tensors.
    """

    out: Tensor
    summed: Tensor
    walked: Tensor
    statistics: Tensor | None
    operands: list[Tensor]


def _forward(
    shaped: Shaped, edges: FewEdges, listed: Listed, itself: float | None, given: Sequence[Tensor | None]
) -> _Made:
    form, num_mapped = shaped.form, shaped.num_mapped
    mapped, rest = given[:num_mapped], given[num_mapped:]
    operands = [*shaped.make(*mapped)]
    if form.dots:
        operands += _dots(form, operands, rest)
    operands += rest[len(form.dots) : form.given_to_derived]
    if form.derived:
        behind, rows = rest[form.given_to_derived :], _rows_of(given)
        for derived in form.derived:
            operands += derived.compute(rows, behind)
    if shaped.weights is not None:
        operands += shaped.weights(*mapped)
    try:
        taken = operands if shaped.are_fresh else shaped.plan.rows(operands, listed.num_edge_ids)
        walked, statistics = shaped.plan.walks(given[0]).forward(listed, taken, shaped.numbers)
    except IndexError:
        edges.check()
        raise
    out = summed = walked if shaped.add is None else shaped.add(walked, itself, *mapped)
    if form.mapped_by is not None:
        own, weight, bias, root = _maps_of_result(shaped, given)
        out = maps_of_sums(bias is not None, root is not None)(summed, own, weight, bias, root)
    return _Made(out, summed, walked, statistics, operands)


def _maps_of_result(shaped: Shaped, given: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The rows of targets, the weight ``[out, in]`` and the bias of the map of the result, and the weight of theirs."""
    place, root = shaped.form.mapped_by, shaped.form.root
    weight, bias = given[3 + 2 * place : 5 + 2 * place]
    weight = weight.t() if shaped.shape.turned[place] else weight
    return (
        (None, weight, bias, None) if root is None else (given[shaped.place_of_own], weight, bias, given[3 + 2 * root])
    )


def _rows_of(given: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
    """The rows of each side among what is given."""
    source, target, features = given[:3]
    return {SOURCE: source, TARGET: source if target is None else target, EDGE: features}


def _edges_of(form: Form, edges: FewEdges) -> Edges:
    loops = edges.num_targets if form.loops else None
    return Edges(edges.edge_index, edges.num_sources, edges.num_targets, edges.flow, loops)


def _dots(form: Form, made: Sequence[Tensor], rest: Sequence[Tensor]) -> Sequence[Tensor]:
    x = made[form.place_of_dots].view(-1, form.heads, form.channels)
    vectors = [vector.contiguous() for vector in rest[: len(form.dots)]]
    return head_products_of(x.device).products(x, *vectors)


class _MappedWalk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shaped, edges, listed, itself, edge_index, *given):
        out, summed, walked, statistics, operands = _forward(shaped, edges, listed, itself, given)
        ctx.wanted = wanted = shaped.wanted(ctx.needs_input_grad[_BEFORE:])
        for place in wanted.dropped:
            operands[place] = None
        walked = walked if shaped.plan.reads_output else None
        # only the gradient of the weight reads it
        summed = summed if wanted.of_map is not None and wanted.of_map[2] else None
        ctx.save_for_backward(edge_index, summed, walked, statistics, *operands, *given)
        ctx.said = shaped, edges, listed, itself
        ctx.handed_out = HandedOut(out) if out is walked else None
        return out if ctx.handed_out is None else ctx.handed_out.taken()

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        shaped, edges, listed, itself = ctx.said
        edge_index, summed, walked, statistics, *saved = ctx.saved_tensors
        given = saved[len(shaped.plan.tensors) :]
        is_plain = is_plain_gradient(grad) and nothing_is_said()
        was_written = ctx.handed_out is not None and ctx.handed_out.was_written
        found = None
        if is_plain and not (was_written or torch.is_grad_enabled()):
            listed = as_saved(listed, edge_index)
            found = _gradients(ctx.wanted, listed, edges, itself, grad, summed, walked, statistics, saved)
        if found is None:
            compute = functools.partial(_compute, shaped, edges._replace(edge_index=edge_index), itself)
            found = differentiable(compute, given, grad, ctx.needs_input_grad[_BEFORE:])
        return None, None, None, None, None, *found


_apply = untransformed(_MappedWalk)


def _compute(shaped: Shaped, edges: FewEdges, itself: float | None, *given: Tensor | None) -> Tensor:
    """The result by operators of torch and a walk that can be differentiated again."""
    tensors, rows = given[3 : shaped.num_mapped], _rows_of(given)
    maps = [Weights(*parts) for parts in zip(tensors[::2], tensors[1::2], shaped.shape.turned, strict=True)]
    return by_parts(shaped.form, _edges_of(shaped.form, edges), rows, maps, given[shaped.num_mapped :], itself)


def _gradients(
    wanted: Wanted, listed: Listed, edges: FewEdges, itself: float | None, grad: Tensor, summed: Tensor | None,
    walked: Tensor | None, statistics: Tensor | None, saved: list[Tensor | None],
) -> list[Tensor | None] | None:  # fmt: skip
    """The gradients of what was given; None where some are not finite and nodes without edges might be why."""
    if wanted.of_map is None:
        return _gradients_of_sum(wanted, listed, edges, itself, grad, walked, statistics, saved)
    shaped, place, root = wanted.shaped, wanted.shaped.form.mapped_by, wanted.shaped.form.root
    given = saved[len(shaped.plan.tensors) :]
    own, weight, _, of_targets = _maps_of_result(shaped, given)
    grad, of_own, *of_maps = adjoint_of_maps(wanted.of_map, False)(grad, summed, own, weight, of_targets)
    if grad is None:
        found = [None] * len(given)
    else:
        found = _gradients_of_sum(wanted, listed, edges, itself, grad, walked, statistics, saved)
    if found is None:
        return None
    of_weight, of_bias, of_root = of_maps
    if of_weight is not None and shaped.shape.turned[place]:
        of_weight = of_weight.t()
    found[3 + 2 * place : 5 + 2 * place] = of_weight, of_bias
    if root is not None:
        found[3 + 2 * root] = of_root
    if of_own is not None:
        there = found[shaped.place_of_own]
        found[shaped.place_of_own] = of_own if there is None else of_own.add_(there)
    return found


def _gradients_of_sum(
    wanted: Wanted, listed: Listed, edges: FewEdges, itself: float | None, grad: Tensor, walked: Tensor | None,
    statistics: Tensor | None, saved: list[Tensor | None],
) -> list[Tensor | None] | None:  # fmt: skip
    """The same from the gradient of the result before it was mapped."""
    shaped, form, plan = wanted.shaped, wanted.shaped.form, wanted.shaped.plan
    num_operands, num_made, num_dots = len(plan.tensors), len(form.made), len(form.dots)
    operands, given = saved[:num_operands], saved[num_operands:]
    mapped, rest = given[: shaped.num_mapped], given[shaped.num_mapped :]
    found: dict[str, Tensor] = {}
    of_rest: list[Tensor | None] = [None] * len(rest)
    if wanted.adjoint is not None:
        for place, again in enumerate(() if shaped.remake is None else shaped.remake(*mapped)):
            operands[place] = operands[place] if again is None else again
        first = num_made + form.given_to_derived
        operands[num_made + num_dots : first] = rest[num_dots : form.given_to_derived]
        for derived, is_remade in zip(form.derived, form.are_remade, strict=True):
            last = first + len(derived.reads)
            if is_remade:
                operands[first:last] = derived.compute(_rows_of(given), rest[form.given_to_derived :])
            first = last
        if shaped.weights is not None:
            operands[first:] = shaped.weights(*mapped)
        for place in wanted.adjoint.unread:
            operands[place] = None
        of_walked = torch.cat([grad] * form.heads, dim=1) if form.sums_heads else grad.contiguous()
        taken, needed = plan.rows(operands, listed.num_edge_ids), wanted.adjoint.needed
        found = plan.walks(of_walked).backward(
            *(listed, taken, shaped.numbers, of_walked, walked, statistics), *(needed.names, wanted.features)
        )
        edges.walked_back(listed.num_edges)
        if form.dots and next(iter(form.dots)) in found:
            of_rest[:num_dots] = _through_dots(form, found, operands, rest)
        for place, name in enumerate(form.given, num_dots):
            if name in found:
                of_rest[place] = found[name] if rest[place].dim() == 2 else found[name].view(rest[place].shape)
    result = [*wanted.lines(grad, itself, *map(found.get, form.made), *mapped), *of_rest]
    if wanted.of_derived:
        _add_of_derived(wanted, found, operands, given, result)
    if form.of_edges and not are_finite([value for value in result if value is not None and value.dim() == 2]):
        return None
    return result


def _add_of_derived(
    wanted: Wanted, found: dict[str, Tensor], operands: Sequence[Tensor | None], given: list[Tensor | None],
    result: list[Tensor | None],
) -> None:  # fmt: skip
    """Adds what was found of derived operands to the gradients of what they are made of."""
    shaped, form = wanted.shaped, wanted.shaped.form
    places = {SOURCE: 0, TARGET: shaped.place_of_own, EDGE: 2}
    first, rows = shaped.num_mapped + form.given_to_derived, _rows_of(given)
    there = dict(zip(form.derived_names, operands[len(form.made) + form.given_to_derived :], strict=False))
    for derived in form.derived:
        for part, gradient in derived.adjoint(found, there, rows, given[first:]).items():
            place = places[part] if isinstance(part, str) else first + part
            if wanted.needed[place]:
                result[place] = gradient if result[place] is None else result[place] + gradient


def _through_dots(
    form: Form, found: dict[str, Tensor], operands: Sequence[Tensor], rest: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The gradients of the dots' vectors; adds those of features to what was found."""
    name = next(iter(form.dots.values()))
    x, vectors = operands[form.place_of_dots].view(-1, form.heads, form.channels), rest[: len(form.dots)]
    given = x, [vector.contiguous() for vector in vectors], [found[dot] for dot in form.dots]
    begun = found[name].view(x.shape) if name in found else None
    of_x, *of_vectors = head_products_of(x.device).products_adjoint(*given, begun, begun)
    found[name] = of_x.flatten(1)
    return of_vectors
