"""An activation between two products, of rows of edges: the values between never exist as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated
from pygfuse.program.activation import Activation


def activated_product(x: Tensor, first: Tensor, second: Tensor, act: Activation) -> Tensor:
    """``act(x @ first) @ second``, a block of rows at a time; backward computes what lies between again.

    Args:
        x: ``[rows, in]``.
        first: ``[in, between]``.
        second: ``[between, out]``.
        act: The activation.

    Returns:
        ``[rows, out]``.

    Example:
        >>> x, first, second = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0, 2.0]]), torch.ones(2, 1)
        >>> activated_product(x, first, second, Activation('relu'))
        tensor([[3.],
                [0.]])
    """
    return applied(_ActivatedProduct, x, first, second, act)


class _ActivatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, first: Tensor, second: Tensor, act: Activation) -> Tensor:
        ctx.save_for_backward(x, first, second)
        ctx.act = act
        out = x.new_empty(len(x), second.shape[1])
        for places in _blocks(len(x)):
            values = x[places] @ first
            act.into(values, values)
            torch.mm(values, second, out=out[places])
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, first, second = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        if is_differentiated(grad):
            return *differentiable(lambda x, a, b: ctx.act(x @ a) @ b, (x, first, second), grad, needed), None
        of_x = torch.empty_like(x) if needed[0] else None
        of_first, of_second = torch.zeros_like(first), torch.zeros_like(second)
        for places in _blocks(len(x)):
            values = x[places] @ first
            activated = torch.empty_like(values)
            ctx.act.into(values, activated)
            of_second.addmm_(activated.t(), grad[places])
            of_values = grad[places] @ second.t()
            ctx.act.adjoint(of_values, values, activated, of_values)
            of_first.addmm_(x[places].t(), of_values)
            if of_x is not None:
                torch.mm(of_values, first.t(), out=of_x[places])
        return of_x, of_first if needed[1] else None, of_second if needed[2] else None, None


def _blocks(rows: int) -> Iterator[slice]:
    for begin in range(0, rows, ROWS_AT_ONCE):
        yield slice(begin, min(begin + ROWS_AT_ONCE, rows))
