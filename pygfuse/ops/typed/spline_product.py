"""Products of edges' rows with the weights of a few splines each (Fey et al., "SplineCNN", section 3).

An edge has a few coefficients that are not zero, each of one of the kernel's weights. Ordered by weight they are rows
of products as those of types are: never a matrix, or a row of features, for each edge and coefficient at once.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse.ops.typed.spline_rows import SplineRows
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated
from pygfuse.ops.within_torch.intercepted import is_intercepted


class SplineEdges(NamedTuple):
    """What products along edges take.

    Attributes:
        rows: The coefficients by weight.
        read: The row of the features of each edge, or None where it is the edge's own.
        written: The row of the result of each edge, or None where it is the edge's own.
        count: The number of rows of the result.
        given: The edges as a call brings them, whose memory these may be: nobody may write into it before backward.
    """

    rows: SplineRows
    read: Tensor | None
    written: Tensor | None
    count: int
    given: Tensor | None = None


def spline_product(x: Tensor, weight: Tensor, coefficients: Tensor, edges: SplineEdges) -> Tensor:
    """``out[written[e]] += sum over s of coefficients[e, s] * x[read[e]] @ weight[index[e, s]]`` for each edge.

    Args:
        x: Features, ``[nodes, in]``.
        weight: ``[weights, in, out]``.
        coefficients: ``[edges, s]``.
        edges: The edges.

    Returns:
        ``[edges.count, out]``.

    Example:
        >>> rows = SplineRows.of(torch.tensor([[0, 1], [1, 0]]), 2)
        >>> edges = SplineEdges(rows, torch.tensor([0, 1]), torch.tensor([0, 0]), 1)
        >>> x, weight = torch.tensor([[1.0], [2.0]]), torch.tensor([[[1.0]], [[10.0]]])
        >>> spline_product(x, weight, torch.tensor([[0.5, 0.5], [1.0, 0.0]]), edges)
        tensor([[25.5000]])
    """
    if is_intercepted():
        return _reference(x, weight, coefficients, edges)
    return applied(_SplineProduct, x, weight, coefficients, edges.given, edges)


class _SplineProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x: Tensor, weight: Tensor, coefficients: Tensor, given: Tensor | None, edges: SplineEdges
    ) -> Tensor:
        ctx.save_for_backward(x, weight, coefficients, given)
        ctx.edges = edges
        return _times(x, weight, coefficients, edges.rows, edges.read, edges.written, edges.count)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, coefficients, _ = ctx.saved_tensors
        edges, needed, given = ctx.edges, ctx.needs_input_grad[:3], (x, weight, coefficients)
        if is_differentiated(grad):
            return *differentiable(functools.partial(_reference, edges=edges), given, grad, needed), None, None
        rows, read, written, *_ = edges
        of_x = _times(grad, weight.transpose(1, 2), coefficients, rows, written, read, len(x)) if needed[0] else None
        if not (needed[1] or needed[2]):
            return of_x, None, None, None, None
        of_weight, of_coefficients = torch.zeros_like(weight), torch.zeros_like(coefficients)
        factors, found = coefficients.reshape(-1, 1), of_coefficients.view(-1)
        for k, places in rows.blocks():
            edge = places.div(rows.count, rounding_mode='floor')
            block, of_block = _rows_of(x, read, edge), _rows_of(grad, written, edge)
            if needed[2]:
                found.index_copy_(0, places.long(), (block @ weight[k]).mul_(of_block).sum(1))
            if needed[1]:
                of_weight[k].addmm_((block * factors.index_select(0, places)).t(), of_block)
        return of_x, of_weight if needed[1] else None, of_coefficients if needed[2] else None, None, None


def _rows_of(x: Tensor, which: Tensor | None, edges: Tensor) -> Tensor:
    return x.index_select(0, edges if which is None else which.index_select(0, edges))


def _times(
    x: Tensor, weight: Tensor, coefficients: Tensor, rows: SplineRows, read: Tensor | None, written: Tensor | None,
    count: int,
) -> Tensor:  # fmt: skip
    out, factors = x.new_zeros(count, weight.shape[2]), coefficients.reshape(-1, 1)
    for k, places in rows.blocks():
        edge = places.div(rows.count, rounding_mode='floor')
        block = _rows_of(x, read, edge).mul_(factors.index_select(0, places))
        out.index_add_(0, edge if written is None else written.index_select(0, edge), block @ weight[k])
    return out


def _reference(x: Tensor, weight: Tensor, coefficients: Tensor, edges: SplineEdges) -> Tensor:
    """The same by operators that autograd differentiates, with all rows at once."""
    rows, read, written, count, _ = edges
    edge = rows.order.div(rows.count, rounding_mode='floor')
    block = _rows_of(x, read, edge) * coefficients.reshape(-1, 1).index_select(0, rows.order)
    sizes = torch.tensor(rows.bounds).diff().tolist()
    out = torch.cat([part @ one for part, one in zip(block.split(sizes), weight.unbind(), strict=True)])
    where = edge if written is None else written.index_select(0, edge)
    return out.new_zeros(count, out.shape[1]).index_add(0, where, out)
