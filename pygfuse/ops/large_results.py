"""Products and sums of nodes' features whose results may be many megabytes, on huge pages.

A new tensor costs its page faults, see `pygfuse._lib.pages`. Of features of nodes, a map to few channels and a sum take
less than the pages of 4 KB that torch puts their results on. Products are of a list where a processor's library is
slower, else torch's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse._lib.functions import applied, is_unread
from pygfuse._lib.pages import LEAST_BYTES, on_huge_pages
from pygfuse.ops.batched import is_batched
from pygfuse.ops.intercepted import is_watched
from pygfuse.ops.product_lines import ProductLines, matrix
from pygfuse.ops.sum_maps import is_mapped_by_list


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
    is_plain = not torch.is_grad_enabled() and _is_plain(given)
    if is_plain and is_listed(first, second.t()) and (bias is None or bias.shape == second.shape[1:]):
        return _by_list(first, second, bias)
    if not is_plain or first.shape[0] * second.shape[1] * first.element_size() < LEAST_BYTES:
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
    fits = to.dtype is first.dtype and to.shape == (*first.shape[:1], *second.shape[1:])
    if fits and to.is_contiguous() and is_listed(first, second.t()):
        return _by_list(first, second, to=to)
    return to.addmm_(first, second)


def is_listed(first: Tensor, *weights: Tensor) -> bool:
    """Whether products with the transposes of weights are faster as those of a list, where nothing is recorded.

    Args:
        first: ``[rows, in]``.
        weights: ``[out, in]`` each.
    """
    if torch.is_grad_enabled() or not _is_plain((first, *weights)) or first.dim() != 2 or first.stride(1) != 1:
        return False
    fits = all(weight.dim() == 2 and weight.shape[1] == first.shape[1] for weight in weights)
    return fits and not is_batched(first) and is_mapped_by_list(first, *weights)


def is_adjoint_listed(grad: Tensor, x: Tensor, weight: Tensor, to: Tensor | None = None) -> bool:
    """Whether `pygfuse.ops.sum_maps.adjoint_of_maps` may compute the gradients of a linear map here, and takes less
    than torch's products.

    Args:
        grad: The gradient of the result, ``[rows, out]``.
        x: What was mapped, ``[rows, in]``.
        weight: ``[out, in]``.
        to: What the gradient of `x` is added to, ``[rows, in]``, or None.
    """
    given = (grad, x, weight) if to is None else (grad, x, weight, to)
    if torch.is_grad_enabled() or not _is_plain(given) or is_batched(grad) or grad.shape != (len(x), len(weight)):
        return False
    is_written = to is None or (to.shape == x.shape and to.is_contiguous())
    return is_written and is_mapped_by_list(x, weight)


def _by_list(first: Tensor, second: Tensor, bias: Tensor | None = None, to: Tensor | None = None) -> Tensor:
    """``first @ second``, with a bias or added to a contiguous tensor, which is written to."""
    is_turned = second.t().is_contiguous()
    multiply = _listed_product(is_turned, bias is not None, to is not None)
    second = second if is_turned else second.contiguous()
    return multiply(first, second, None if bias is None else bias.contiguous(), to)


@functools.cache
def _listed_product(is_turned: bool, biased: bool, is_added: bool) -> Callable[..., Tensor]:
    lines = ProductLines('first')
    lines.prepare('(rows, inner), width = first.shape, second.shape[1]')
    lines.prepare(f'out = {"to" if is_added else "on_huge_pages(first.new_empty((rows, width)))"}')
    left, out = matrix('first', 'first.stride(0)'), matrix('out', 'width')
    right = matrix('second', 'inner').turned if is_turned else matrix('second', 'width')
    bias = 'bias.data_ptr()' if biased else 0
    lines.product(('rows', 'inner', 'width'), left, right, out, bias, addend=out if is_added else None)
    return lines.function('first, second, bias, to', 'out', {'on_huge_pages': on_huge_pages})


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
