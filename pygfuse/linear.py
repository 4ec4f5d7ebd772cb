"""Linear maps of some of the rows of a tensor, block by block: the rows are never copied all together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

# bytes of the rows that are copied together: they should stay in a core's cache
BLOCK_BYTES = 2**20


def _blocks(x: Tensor, rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The places of some of the rows, and these rows."""
    at_once = max(64, BLOCK_BYTES // max(x.shape[1] * x.element_size(), 1))
    if len(rows) <= at_once:
        yield slice(None), x.index_select(0, rows)
        return
    room = x.new_empty(at_once, x.shape[1])
    for begin in range(0, len(rows), at_once):
        places = slice(begin, begin + at_once)
        block = rows[places]
        yield places, torch.index_select(x, 0, block, out=room[: len(block)])


def weight_gradient(x: Tensor, rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a weight from some rows, ``grad.t() @ x[rows]``.

    Args:
        x: What was mapped, ``[nodes, in]``.
        rows: The rows that count, int64.
        grad: The gradient of their results, ``[rows, out]``.
    """
    result = grad.new_zeros(grad.shape[1], x.shape[1])
    for places, block in _blocks(x, rows):
        result.addmm_(grad[places].t(), block)
    return result


class _LinearOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, rows, weight)
        out = x.new_empty(len(rows), weight.shape[0])
        for places, block in _blocks(x, rows):
            if bias is None:
                torch.mm(block, weight.t(), out=out[places])
            else:
                torch.addmm(bias, block, weight.t(), out=out[places])
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = torch.zeros_like(x).index_copy(0, rows, grad @ weight)
        if ctx.needs_input_grad[2]:
            # this may be differentiated again
            with_graph = torch.is_grad_enabled()
            of_weight = grad.t() @ x.index_select(0, rows) if with_graph else weight_gradient(x, rows, grad)
        if ctx.needs_input_grad[3]:
            of_bias = grad.sum(0)
        return of_x, None, of_weight, of_bias


def linear_of_rows(x: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear(x[rows], weight, bias)``.

    Args:
        x: ``[nodes, in]``.
        rows: Numbers of rows, each at most once, int64.
        weight: ``[out, in]``.
        bias: ``[out]``, or None.

    Example:
        >>> x, weight, rows = torch.randn(9, 4), torch.randn(3, 4), torch.tensor([2, 5])
        >>> torch.allclose(linear_of_rows(x, rows, weight), F.linear(x[rows], weight))
        True
    """
    if x.device.type != 'cpu':
        return F.linear(x.index_select(0, rows), weight, bias)
    return _LinearOfRows.apply(x, rows, weight, bias)
