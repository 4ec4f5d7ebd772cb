"""Products and sums of nodes' features whose results are many megabytes: torch's own operators, on huge pages.

A new tensor costs its page faults, see `pygfuse._lib.pages`. Of features of nodes, a map to few channels and a sum take
less than the pages of 4 KB that torch puts their results on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.functions import applied, is_unread
from pygfuse._lib.pages import LEAST_BYTES, on_huge_pages
from pygfuse.ops.intercepted import is_watched


def product(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """``first @ second``, and `bias` added to each row: where nothing is recorded, of matrices.

    Args:
        first: ``[rows, in]``.
        second: ``[in, out]``.
        bias: ``[out]``, or None.

    Example:
        >>> with torch.no_grad():
        ...     product(torch.ones(2, 3), torch.ones(3, 1), torch.ones(1))
        tensor([[4.],
                [4.]])
    """
    given = (first, second) if bias is None else (first, second, bias)
    size = first.shape[0] * second.shape[1] * first.element_size()
    if size < LEAST_BYTES or torch.is_grad_enabled() or not _is_plain(given):
        return first @ second if bias is None else torch.addmm(bias, first, second)
    out = on_huge_pages(first.new_empty(first.shape[0], second.shape[1]))
    return torch.mm(first, second, out=out) if bias is None else torch.addmm(bias, first, second, out=out)


def added_product(to: Tensor | None, first: Tensor, second: Tensor) -> Tensor:
    """``to + first @ second``: written over `to` where nothing is recorded, a new product where that is None.

    Args:
        to: ``[rows, out]``, a result that nobody else reads, or None.
        first: ``[rows, in]``.
        second: ``[in, out]``.

    Example:
        >>> with torch.no_grad():
        ...     added_product(torch.ones(2, 1), torch.ones(2, 3), torch.ones(3, 1))
        tensor([[4.],
                [4.]])
    """
    if to is None:
        return product(first, second)
    if torch.is_grad_enabled() or is_watched((to, first, second)):
        return to + first @ second
    return to.addmm_(first, second)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first: Tensor, second: Tensor) -> Tensor:
        ctx.reads_result = False
        return torch.add(first, second, out=on_huge_pages(torch.empty_like(first)))

    @staticmethod
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


def added_to(result: Tensor, second: Tensor) -> Tensor:
    """`added`, written over a result that nobody else has, where no backward pass reads it.

    Args:
        result: ``[rows, channels]``, of an aggregation, a linear map or a sum.
        second: ``[rows, channels]`` or ``[channels]``.

    Example:
        >>> added_to(torch.ones(2, 1), torch.ones(1))
        tensor([[2.],
                [2.]])
    """
    if _is_large_sum(result, second) and is_unread(result):
        return result.add_(second)
    return added(result, second)


def _is_large_sum(first: Tensor, second: Tensor) -> bool:
    # numbers of rows may be symbols, which a comparison would bind
    if torch.compiler.is_compiling() or type(first) is not Tensor or first.nbytes < LEAST_BYTES:
        return False
    fits = first.dim() == 2 and second.shape in (first.shape, first.shape[1:])
    return fits and _is_plain((first, second))


def _is_plain(tensors: tuple[Tensor, ...]) -> bool:
    """Whether tensors are torch's own, of one type and on a CPU, and nobody intercepts what is done with them."""
    first = tensors[0]
    if first.device.type != 'cpu' or any(tensor.dtype is not first.dtype for tensor in tensors):
        return False
    return all(tensor.layout is torch.strided for tensor in tensors) and not is_watched(tensors)
