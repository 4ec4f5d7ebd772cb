"""A linear map of sums, with one of rows beside it, and the adjoint of both: one launch each, written out once.

The maps of layers along few edges, which sum first, and of many nodes, where a processor's library is slower.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse._lib.pages import on_huge_pages
from pygfuse.ops.nodes.product_lines import ProductLines, contiguous, matrix
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable
from pygfuse.ops.within_torch.intercepted import is_plain_gradient


@functools.cache
def maps_of_sums(biased: bool, rooted: bool) -> Callable[..., Tensor]:
    """``maps(sums, own, weight, bias, root)``: ``sums @ weight.t() + bias + own @ root.t()``.

    Args:
        biased: Whether there is a bias.
        rooted: Whether there are `own` and `root`; they are None else.

    The function raises a ValueError where the shapes of these tensors do not fit one another.
    """
    lines = ProductLines('sums')
    lines.prepare('rows, inner = sums.shape')
    write_maps(lines, biased, rooted, ('rows', 'inner'))
    return lines.function('sums, own, weight, bias, root', 'out')


def write_maps(lines: ProductLines, biased: bool, rooted: bool, size: tuple[str, str | int]) -> None:
    """Writes lines that set ``out`` to what `maps_of_sums` gives.

    Args:
        lines: Where they are written.
        biased, rooted: As of `maps_of_sums`; what they read has the names there.
        size: The numbers of rows and columns of ``sums``, contiguous.
    """
    rows, inner = size
    lines.prepare('weight, width = weight.contiguous(), weight.shape[0]')
    lines.prepare(f'out = {lines.like}.new_empty({rows}, width)')
    turned, out = matrix('weight', inner).turned, matrix('out', 'width')
    sums = [] if lines.is_reserved('sums') else ['sums']
    lines.expect([f'weight.shape[1] == {inner}'], *sums, 'weight')
    if biased:
        lines.prepare(contiguous(['bias']))
        lines.expect(['bias.numel() == width'], 'weight', 'bias')
    lines.product((rows, inner, 'width'), matrix('sums', inner), turned, out, 'bias.data_ptr()' if biased else 0)
    if rooted:
        lines.prepare(contiguous(['own', 'root']))
        lines.prepare('of_own = root.shape[1]')
        lines.expect([f'own.shape == ({rows}, of_own)', 'root.shape[0] == width'], *sums, 'own', 'root')
        turned = matrix('root', 'of_own').turned
        lines.product((rows, 'of_own', 'width'), matrix('own', 'of_own'), turned, out, addend=out)


@functools.cache
def adjoint_of_maps(
    needed: tuple[bool, ...], is_shared: bool, is_added: bool = False, is_large: bool = False
) -> Callable[..., tuple]:
    """``adjoint(grad, sums, own, weight, root, to=None)``: the gradients of the sums, of the rows that `root` maps, of
    the weight, the bias and of `root`; those that are not needed are None.

    Args:
        needed: Which of the gradients of sources, other targets, the weight, the bias and `root` are needed.
        is_shared: Whether `root` maps the sources.
        is_added: Whether the gradient of the sums is added to `to`, a contiguous tensor that is written to.
        is_large: Whether it is new and may be many megabytes.
    """
    lines = ProductLines('grad')
    lines.prepare('rows, inner = grad.shape[0], weight.shape[1]')
    found = write_adjoint(lines, needed, is_shared, ('rows', 'inner'), is_added, is_large)
    return lines.function('grad, sums, own, weight, root, to=None', f'({", ".join(found)})')


def write_adjoint(
    lines: ProductLines,
    needed: tuple[bool, ...],
    is_shared: bool,
    size: tuple[str, str | int],
    is_added: bool = False,
    is_large: bool = False,
    reserves_sums: bool = False,
) -> list[str]:
    """Writes lines that find what `adjoint_of_maps` gives, and returns the names of it.

    Args:
        lines: Where they are written.
        needed, is_shared, is_added, is_large: As of `adjoint_of_maps`; what they read has the names there.
        size: The numbers of rows and columns of ``sums``.
        reserves_sums: Whether launches alone read the gradient of the sums, ``of_sums``.
    """
    for_x, for_target, for_weight, for_bias, for_root = needed
    for_own, (rows, inner) = for_x if is_shared else for_target, size
    lines.prepare(contiguous(['grad', 'weight']))
    lines.prepare('width = grad.shape[1]')
    if for_own or for_root:
        lines.prepare(contiguous(['own', 'root']))
        lines.prepare('of_own = root.shape[1]')
    grad = matrix('grad', 'width')
    if for_x:
        if reserves_sums:
            lines.reserve('of_sums', f'{rows} * {inner}')
        else:
            lines.prepare(f'of_sums = {"to" if is_added else f"grad.new_empty({rows}, {inner})"}')
        if is_large:
            lines.knows('on_huge_pages', on_huge_pages)
            lines.prepare('of_sums = on_huge_pages(of_sums)')
        of_sums = matrix('of_sums', inner)
        addend = of_sums if is_added else None
        lines.product((rows, 'width', inner), grad, matrix('weight', inner), of_sums, addend=addend)
    if for_own:
        lines.prepare('of_rows = empty_like(own)')
        lines.product((rows, 'width', 'of_own'), grad, matrix('root', 'of_own'), matrix('of_rows', 'of_own'))
    if for_weight:
        lines.prepare('of_weight = empty_like(weight)')
        if not lines.is_reserved('sums'):
            lines.prepare('sums = sums.contiguous()')
        lines.product(('width', rows, inner), grad.turned, matrix('sums', inner), matrix('of_weight', inner))
    if for_bias:
        lines.prepare('of_bias = grad.new_empty(width)')
        lines.column_sums(rows, 'width', grad, matrix('of_bias', 'width'))
    if for_root:
        lines.prepare('of_root = empty_like(root)')
        lines.product(('width', rows, 'of_own'), grad.turned, matrix('own', 'of_own'), matrix('of_root', 'of_own'))
    names = 'of_sums', 'of_rows', 'of_weight', 'of_bias', 'of_root'
    there = for_x, for_own, for_weight, for_bias, for_root
    return [name if is_there else 'None' for name, is_there in zip(names, there, strict=True)]


def map_by_list(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, own: Tensor | None = None, root: Tensor | None = None
) -> Tensor:
    """``x @ weight.t() + bias + own @ root.t()``; nobody traces, transforms or intercepts the call.

    Args:
        x: ``[rows, in]``, on a CPU, of float32 or float64 as all others are.
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
        own: ``[rows, other]``, or None.
        root: ``[out, other]``, or None.

    Returns:
        ``[rows, out]``.

    Raises:
        ValueError: If the rows and weights do not fit one another, with the shapes of both.

    Example:
        >>> x, weight = torch.ones(2, 3), torch.ones(1, 3)
        >>> map_by_list(x, weight, torch.ones(1), x, weight).tolist()
        [[7.0], [7.0]]
    """
    if torch.is_grad_enabled():
        return applied(_Maps, x, own, weight, bias, root)
    return maps_of_sums(bias is not None, root is not None)(x.contiguous(), own, weight, bias, root)


class _Maps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, own, weight, bias, root):
        ctx.save_for_backward(x, own, weight, bias, root)
        ctx.reads_result = False
        return maps_of_sums(bias is not None, root is not None)(x.contiguous(), own, weight, bias, root)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        x, own, weight, _, root = given = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if not is_plain_gradient(grad) or torch.is_grad_enabled():
            return tuple(differentiable(_by_torch, given, grad, needed))
        return adjoint_of_maps(needed, False)(grad, x, own, weight, root)


def _by_torch(x: Tensor, own: Tensor | None, weight: Tensor, bias: Tensor | None, root: Tensor | None) -> Tensor:
    out = F.linear(x, weight, bias)
    return out if root is None else out + F.linear(own, root)
