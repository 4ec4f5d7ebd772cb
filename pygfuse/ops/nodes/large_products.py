"""Products of nodes' features whose results may be many megabytes, on huge pages.

A new tensor costs its page faults, see `pygfuse._lib.pages`. Of features of nodes, a map to few channels takes less
than the pages of 4 KB that torch puts its result on. Products are of a list where a processor's library is slower, else
torch's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse._lib.pages import LEAST_BYTES, on_huge_pages
from pygfuse._lib.row_products import sum_over_rows
from pygfuse.ops.nodes.product_lines import ProductLines, is_mapped_by_list, matrix
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import are_plain_on_cpu, is_watched


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
    is_plain = not torch.is_grad_enabled() and are_plain_on_cpu(given)
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


def product_over_rows(first: Tensor, second: Tensor) -> Tensor:
    """``first.t() @ second``: a sum over many rows.

    Args:
        first: ``[rows, M]``.
        second: ``[rows, N]``.

    Example:
        >>> product_over_rows(torch.ones(5, 1), torch.ones(5, 2))
        tensor([[5., 5.]])
    """
    is_plain = first.dim() == 2 == second.dim() and len(first) == len(second) and second.stride(1) == 1
    if is_plain and is_listed(first, first.new_empty((second.shape[1], first.shape[1]))):
        return _listed_sum()(first, second)
    return sum_over_rows(first, second)


def is_listed(first: Tensor, *weights: Tensor) -> bool:
    """Whether products with the transposes of weights are faster as those of a list, where nothing is recorded.

    Args:
        first: ``[rows, in]``.
        weights: ``[out, in]`` each.
    """
    if torch.is_grad_enabled() or not are_plain_on_cpu((first, *weights)) or first.dim() != 2 or first.stride(1) != 1:
        return False
    fits = all(weight.dim() == 2 and weight.shape[1] == first.shape[1] for weight in weights)
    return fits and not is_batched(first) and is_mapped_by_list(first, *weights)


def is_adjoint_listed(grad: Tensor, x: Tensor, weight: Tensor, to: Tensor | None = None) -> bool:
    """Whether `pygfuse.ops.nodes.sum_maps.adjoint_of_maps` may compute the gradients of a linear map here, and takes
    less than torch's products.

    Args:
        grad: The gradient of the result, ``[rows, out]``.
        x: What was mapped, ``[rows, in]``.
        weight: ``[out, in]``.
        to: What the gradient of `x` is added to, ``[rows, in]``, or None.
    """
    given = (grad, x, weight) if to is None else (grad, x, weight, to)
    if torch.is_grad_enabled() or not are_plain_on_cpu(given) or is_batched(grad):
        return False
    if grad.shape != (len(x), len(weight)):
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
    lines.prepare(f'out = {"to" if is_added else "on_huge_pages(first.new_empty(rows, width))"}')
    left, out = matrix('first', 'first.stride(0)'), matrix('out', 'width')
    right = matrix('second', 'inner').turned if is_turned else matrix('second', 'width')
    bias = 'bias.data_ptr()' if biased else 0
    lines.product(('rows', 'inner', 'width'), left, right, out, bias, addend=out if is_added else None)
    return lines.function('first, second, bias, to', 'out', {'on_huge_pages': on_huge_pages})


@functools.cache
def _listed_sum() -> Callable[[Tensor, Tensor], Tensor]:
    lines = ProductLines('first')
    lines.prepare('(rows, height), width = first.shape, second.shape[1]')
    lines.prepare('out = first.new_empty(height, width)')
    left, right = matrix('first', 'first.stride(0)').turned, matrix('second', 'second.stride(0)')
    lines.product(('height', 'rows', 'width'), left, right, matrix('out', 'width'))
    return lines.function('first, second', 'out')
