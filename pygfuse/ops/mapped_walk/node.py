"""The node of autograd: maps, walk and what is added to it, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import nothing_is_said
from pygfuse.graph.adjacency import target_row_of
from pygfuse.mapping.few_edges import are_multiplied
from pygfuse.ops.edges import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.listed import list_of
from pygfuse.ops.mapped_walk.form import Form, Weights, by_parts
from pygfuse.ops.mapped_walk.map_lines import Shape
from pygfuse.ops.mapped_walk.shaped import Shaped
from pygfuse.ops.mapped_walk.step import Step, step_of
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable
from pygfuse.ops.within_torch.handed_out import HandedOut
from pygfuse.ops.within_torch.intercepted import is_plain_gradient
from pygfuse.program.program import EDGE, SOURCE, TARGET

# arguments of the function that are not differentiated
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
        >>> walk_of_maps(form, [(torch.tensor([[10.0]]), None)], (x, x), edges).tolist()
        [[1.0], [52.0], [24.0]]
    """
    source, target = x
    same, tensors, there = target is source, [], []
    for weight, bias in maps:
        tensors += weight, bias
        there.append(bias is not None)
    is_once = itself == 1.0
    multiplies = features is not None and are_multiplied(*features.shape)
    key = same, is_once, itself is None, multiplies, *there
    shaped = form.shapes.get(key)
    if shaped is None:
        turned = tuple([place in form.turned for place in range(len(maps))])
        shape = Shape(same, tuple(there), turned, is_once, not (is_once or itself is None), multiplies)
        shaped = form.shapes[key] = Shaped(form, shape, len(rest))
    given = source, None if same else target, features, *tensors, *rest
    if torch.is_grad_enabled():
        return _apply(shaped, edges, itself, edges.edge_index, *given)
    step = step_of(shaped, source, edges.edge_index.shape[1], None)
    return _forward(shaped, step, edges, itself, edges.edge_index, given)[0]


def _ends_of(shaped: Shaped, edges: FewEdges, edge_index: Tensor) -> tuple[Tensor, int, int, int, int]:
    loops = edges.num_targets if shaped.form.loops else -1
    return edge_index, target_row_of(edges.flow), edges.num_sources, edges.num_targets, loops


def _forward(
    shaped: Shaped, step: Step, edges: FewEdges, itself: float | None, edge_index: Tensor,
    given: Sequence[Tensor | None],
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """The result, and what is kept."""
    try:
        return step.forward(*_ends_of(shaped, edges, edge_index), itself, *given)
    except IndexError:
        edges.check()
        raise


class _MappedWalk(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shaped, edges, itself, edge_index, *given):
        step = step_of(shaped, given[0], edge_index.shape[1], ctx.needs_input_grad[_BEFORE:])
        out, kept = _forward(shaped, step, edges, itself, edge_index, given)
        ctx.save_for_backward(edge_index, *kept, *given)
        ctx.said = shaped, step, edges, itself
        ctx.handed_out = HandedOut(out) if step.hands_out else None
        return out if ctx.handed_out is None else ctx.handed_out.taken()

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        shaped, step, edges, itself = ctx.said
        edge_index, *saved = ctx.saved_tensors
        is_plain = is_plain_gradient(grad) and nothing_is_said()
        was_written = ctx.handed_out is not None and ctx.handed_out.was_written
        found = None
        if is_plain and not (was_written or torch.is_grad_enabled()):
            walked = edge_index if edge_index is edges.edge_index else list_of(edge_index)
            found, num_walked = step.backward(*_ends_of(shaped, edges, walked), itself, grad, *saved)
            if num_walked is not None:
                edges.walked_back(num_walked)
        if found is None:
            compute = functools.partial(_compute, shaped, edges._replace(edge_index=edge_index), itself)
            given = saved[len(saved) - shaped.num_mapped - shaped.num_rest :]
            found = differentiable(compute, given, grad, ctx.needs_input_grad[_BEFORE:])
        return None, None, None, None, *found


_apply = untransformed(_MappedWalk)


def _compute(shaped: Shaped, edges: FewEdges, itself: float | None, *given: Tensor | None) -> Tensor:
    """The result by operators of torch and a walk that can be differentiated again."""
    source, target, features, *tensors = given[: shaped.num_mapped]
    rows = {SOURCE: source, TARGET: source if target is None else target, EDGE: features}
    maps = [*zip(tensors[::2], tensors[1::2], strict=True)]
    loops = edges.num_targets if shaped.form.loops else None
    listed = Edges(edges.edge_index, edges.num_sources, edges.num_targets, edges.flow, loops)
    return by_parts(shaped.form, listed, rows, maps, given[shaped.num_mapped :], itself)
