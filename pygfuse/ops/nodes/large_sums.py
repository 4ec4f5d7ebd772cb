"""Sums of nodes' features whose results may be many megabytes, on huge pages.

A new tensor costs its page faults, see `pygfuse._lib.pages`: of many megabytes more than what is done with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.functions import applied, is_unread
from pygfuse._lib.pages import LEAST_BYTES, on_huge_pages
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import are_plain_on_cpu
from pygfuse.ops.within_torch.lazy_values import given_values


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first: Tensor, second: Tensor) -> Tensor:
        ctx.reads_result = False
        return torch.add(first, second, out=on_huge_pages(torch.empty_like(first)))

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
        # that of a row autograd sums over all rows
        return grad, grad


def added(first: Tensor, second: Tensor) -> Tensor:
    """``first + second``, of matrices or a matrix and a row; whatever else torch adds is added by torch.

    Args:
        first: ``[rows, channels]``.
        second: ``[rows, channels]`` or ``[channels]``.

    Example:
        >>> added(torch.ones(2, 1), torch.ones(1))
        tensor([[2.],
                [2.]])
    """
    return applied(_Sum, first, second) if _is_large_sum(first, second) else first + second


def total(*terms: Tensor | None) -> Tensor:
    """The sum of the terms that are there, one at least, in their order; of shapes as `added` takes."""
    first, *others = (term for term in terms if term is not None)
    for term in others:
        first = added(first, term)
    return first


def added_to(result: Tensor, second: Tensor, times: float = 1.0) -> Tensor:
    """`added`, written over a result that nobody else has, where no backward pass reads it.

    Args:
        result: ``[rows, channels]``, of an aggregation, a linear map or a sum.
        second: ``[rows, channels]`` or ``[channels]``.
        times: How many times it is added.

    Example:
        >>> added_to(torch.ones(2, 1), torch.ones(1), times=3.0)
        tensor([[4.],
                [4.]])
    """
    if _is_large_sum(result, second) and is_unread(result):
        return result.add_(second, alpha=times)
    return added(result, second if times == 1.0 else times * second)


class _Difference(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return torch.sub(first, second, out=on_huge_pages(torch.empty_like(first))), second.view_as(second)

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor | None, of_second: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if grad is None or of_second is None:
            return grad, of_second if grad is None else -grad
        if not _is_large_sum(of_second, grad) or torch.is_grad_enabled() or is_batched(grad) or is_batched(of_second):
            return grad, of_second - grad
        return grad, torch.sub(of_second, grad, out=on_huge_pages(torch.empty_like(of_second)))


def difference(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """``first - second``, and `second` for whatever else reads it: its gradients are added up as one is computed.

    Args:
        first, second: ``[rows, channels]``.

    Example:
        >>> difference(torch.tensor([[3.0]]), torch.tensor([[1.0]]))
        (tensor([[2.]]), tensor([[1.]]))
    """
    if not _is_large_sum(first, second) or second.shape != first.shape:
        return first - second, second
    return applied(_Difference, first, second)


class _OfHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, divisor: int) -> Tensor:
        ctx.of, ctx.reads_result = (x.shape[1], divisor), False
        out = on_huge_pages(x.new_empty(x.shape[0], x.shape[2]))
        return torch.sum(x, dim=1, out=out) if divisor == 1 else torch.mean(x, dim=1, out=out)

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        heads, divisor = ctx.of
        of_heads = grad.unsqueeze(1).expand(-1, heads, -1)
        if torch.is_grad_enabled() or is_batched(grad) or not are_plain_on_cpu((grad,)):
            return of_heads / divisor, None
        return torch.div(of_heads, divisor, out=on_huge_pages(grad.new_empty(of_heads.shape))), None


def sum_of_heads(x: Tensor) -> Tensor:
    """``x.sum(dim=1)``.

    Args:
        x: ``[rows, heads, channels]``.

    Example:
        >>> sum_of_heads(torch.ones(1, 2, 3))
        tensor([[2., 2., 2.]])
    """
    return applied(_OfHeads, x, 1) if _are_large_heads(x) else x.sum(dim=1)


def mean_of_heads(x: Tensor) -> Tensor:
    """``x.mean(dim=1)``.

    Args:
        x: ``[rows, heads, channels]``.

    Example:
        >>> mean_of_heads(torch.ones(1, 2, 3))
        tensor([[1., 1., 1.]])
    """
    return applied(_OfHeads, x, x.shape[1]) if _are_large_heads(x) else x.mean(dim=1)


def _are_large_heads(x: Tensor) -> bool:
    is_large = not torch.compiler.is_compiling() and type(x) is Tensor and x.nbytes >= LEAST_BYTES
    return is_large and x.dtype.is_floating_point and are_plain_on_cpu((x,))


def _is_large_sum(first: Tensor, second: Tensor) -> bool:
    # numbers of rows may be symbols, which a comparison would bind
    if torch.compiler.is_compiling() or type(first) is not Tensor or first.nbytes < LEAST_BYTES:
        return False
    fits = first.dim() == 2 and second.shape in (first.shape, first.shape[1:])
    return fits and are_plain_on_cpu((first, second))
