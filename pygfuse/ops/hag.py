"""Aggregation over a HAG as PyTorch operators.

A sum's adjoint is the sum over the reversed HAG, so that it can be differentiated as often as one likes and saves
nothing. A maximum saves its input, its result and the number of edges that attain it; values of aggregation nodes are
computed anew.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import DTYPES, hag_walks_of
from pygfuse.hag.hag import Hag
from pygfuse.ops.aggregation import aggregate
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.compiled_graphs import register_fake
from pygfuse.ops.within_torch.tags import OF_EDGES
from pygfuse.program.library.neighbours import NEIGHBOURS


def hag_aggregate(
    hag: Hag, x: Tensor, reduce: str = 'sum', factors: Tensor | None = None, row_factors: Tensor | None = None
) -> Tensor:
    r"""Aggregates neighbours over a HAG: what `pygfuse.ops.aggregate` computes over the graph that it stands for.

    .. math::
        y_v = r_v \sum_{u \in \mathcal{N}(v)} f_u x_u, \quad \text{or the mean, maximum or minimum of } x_u

    Args:
        hag: The HAG.
        x: ``[sources, channels]``, float32 or float64.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        factors: For a sum, ``f``, ``[sources]``; it has no gradient.
        row_factors: For a sum, ``r``, ``[targets]``; it has no gradient.

    Returns:
        ``[targets, channels]``.

    Raises:
        ValueError: If `x` has not a row for each source, or is of a type or on a device without kernels; if factors are
            given for another reduction than the sum, or do not fit.

    Example:
        >>> from pygfuse.transforms import find_hag
        >>> hag = find_hag(torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]]))
        >>> hag_aggregate(hag, torch.arange(5.0).view(5, 1)).flatten()
        tensor([9., 9., 0., 0., 0.])
    """
    if x.dim() != 2 or x.shape[0] != hag.num_sources:
        raise ValueError(f"Expected 'x' of shape [{hag.num_sources}, channels] (got {list(x.shape)})")
    if x.dtype not in DTYPES.get(x.device.type, ()):
        raise ValueError(f"Expected 'x' of a type and on a device that has kernels (got {x.dtype} on {x.device})")
    for name, given, rows in (('factors', factors, hag.num_sources), ('row_factors', row_factors, hag.num_targets)):
        if given is not None and reduce != 'sum':
            raise ValueError(f'Expected {name!r} for a sum only (got reduce={reduce!r})')
        if given is not None and (given.shape != (rows,) or given.dtype != x.dtype):
            raise ValueError(
                f'Expected {name!r} of shape [{rows}] and {x.dtype} (got {list(given.shape)} and {given.dtype})'
            )
    if reduce in ('max', 'min'):
        return torch.ops.pygfuse.hag_extreme(x, hag.serial, hag.num_targets, reduce == 'min')[0]
    if reduce == 'mean':
        row_factors = _inverse_degrees(hag, x)
    elif reduce != 'sum':
        raise ValueError(f"Expected 'reduce' to be 'sum', 'mean', 'max' or 'min' (got {reduce!r})")
    return torch.ops.pygfuse.hag_sum(x, factors, row_factors, hag.serial, False, hag.num_targets)


def _inverse_degrees(hag: Hag, like: Tensor) -> Tensor:
    return hag.memo.get_or_make(
        ('inverse degrees', like.dtype, like.device),
        lambda: hag.degree.clamp(min=1).to(like.device, like.dtype).reciprocal(),
    )


def _hag(serial: int, backwards: bool = False) -> Hag:
    hag = Hag.of_serial(serial)
    return hag.reversed if backwards else hag


@torch.library.custom_op('pygfuse::hag_sum', mutates_args=(), tags=OF_EDGES)
def _hag_sum(
    x: Tensor, factors: Tensor | None, row_factors: Tensor | None, serial: int, backwards: bool, rows: int
) -> Tensor:
    factors, row_factors = (given if given is None else given.contiguous() for given in (factors, row_factors))
    return hag_walks_of(x.device).sums(_hag(serial, backwards), x.contiguous(), factors, row_factors)


@register_fake(_hag_sum)
def _(x, factors, row_factors, serial, backwards, rows):
    return x.new_empty(rows, x.shape[1])


def _keep_sum(ctx, inputs, output):
    x, factors, row_factors, serial, backwards, _ = inputs
    ctx.save_for_backward(factors, row_factors)
    # the number alone would not keep the HAG alive
    ctx.hag, ctx.backwards, ctx.rows = _hag(serial), backwards, x.shape[0]


def _sum_backward(ctx, grad):
    factors, row_factors = ctx.saved_tensors
    found = torch.ops.pygfuse.hag_sum(grad, row_factors, factors, ctx.hag.serial, not ctx.backwards, ctx.rows)
    return found, None, None, None, None, None


_hag_sum.register_autograd(_sum_backward, setup_context=_keep_sum)


@torch.library.custom_op('pygfuse::hag_extreme', mutates_args=(), tags=OF_EDGES)
def _hag_extreme(x: Tensor, serial: int, rows: int, smallest: bool) -> tuple[Tensor, Tensor]:
    return hag_walks_of(x.device).extremes(_hag(serial), x.contiguous(), smallest)


@register_fake(_hag_extreme)
def _(x, serial, rows, smallest):
    return x.new_empty(rows, x.shape[1]), x.new_empty(rows, x.shape[1])


@torch.library.custom_op('pygfuse::hag_extreme_backward', mutates_args=(), tags=OF_EDGES)
def _hag_extreme_backward(x: Tensor, out: Tensor, ties: Tensor, grad: Tensor, serial: int, smallest: bool) -> Tensor:
    levels = hag_walks_of(x.device)
    return levels.extremes_backward(_hag(serial), x.contiguous(), out, ties, grad.contiguous(), smallest)


@register_fake(_hag_extreme_backward)
def _(x, out, ties, grad, serial, smallest):
    return x.new_empty(x.shape)


def _keep_extreme(ctx, inputs, output):
    x, serial, _, ctx.smallest = inputs
    ctx.save_for_backward(x, *output)
    ctx.hag = _hag(serial)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])


def _extreme_backward(ctx, grad, _):
    found = None
    if grad is not None:
        x, out, ties = ctx.saved_tensors
        if torch.is_grad_enabled():
            # a gradient that is to be differentiated itself: over the graph
            graph, x = ctx.hag.graph().to(x.device), x.view_as(x)
            edges = Edges(graph.token, graph.num_sources, graph.num_targets)
            again = aggregate(NEIGHBOURS, edges, {'x': x}, 1, x.shape[1], 'min' if ctx.smallest else 'max').flatten(1)
            (found,) = torch.autograd.grad(again, x, grad, create_graph=True)
        else:
            found = torch.ops.pygfuse.hag_extreme_backward(x, out, ties, grad, ctx.hag.serial, ctx.smallest)
    return found, None, None, None


_hag_extreme.register_autograd(_extreme_backward, setup_context=_keep_extreme)
