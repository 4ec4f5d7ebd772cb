"""Rows of tables that are combinations of a few: only those that are asked for, a block of the tables at a time."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated

# bytes of a block of all tables: it should stay in a core's cache
BLOCK_BYTES = 2**20


def basis_rows(coefficients: Tensor, bases: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
    """Rows ``(coefficients @ bases)[kinds, places]`` of tables, which never exist as a whole.

    Args:
        coefficients: ``[tables, bases]``.
        bases: ``[bases, nodes, channels]``.
        kinds: The table of each row, ``[rows]``, int64.
        places: The place of each row in its table, ``[rows]``, int64.

    Returns:
        ``[rows, channels]``.

    Example:
        >>> coefficients, bases = torch.tensor([[1.0, 1.0], [0.0, 2.0]]), torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
        >>> basis_rows(coefficients, bases, torch.tensor([0, 1]), torch.tensor([0, 1]))
        tensor([[4.],
                [8.]])
    """
    return applied(_BasisRows, coefficients, bases, kinds, places)


class _BasisRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, coefficients: Tensor, bases: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(coefficients, bases, kinds, places)
        out = bases.new_empty(len(places), bases.shape[2])
        for nodes, which, within in _blocks(coefficients, bases, kinds, places):
            table = (coefficients @ bases[:, nodes].flatten(1)).view(-1, bases.shape[2])
            out.index_copy_(0, which, table.index_select(0, within))
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        coefficients, bases, kinds, places = ctx.saved_tensors
        if is_differentiated(grad):
            compute = functools.partial(_reference, kinds=kinds, places=places)
            return *differentiable(compute, (coefficients, bases), grad, ctx.needs_input_grad[:2]), None, None
        of_coefficients = torch.zeros_like(coefficients) if ctx.needs_input_grad[0] else None
        of_bases = torch.zeros_like(bases) if ctx.needs_input_grad[1] else None
        for nodes, which, within in _blocks(coefficients, bases, kinds, places):
            count = nodes.stop - nodes.start
            table = grad.new_zeros(len(coefficients) * count, bases.shape[2])
            # several rows may be one of the table's
            table.index_add_(0, within, grad.index_select(0, which))
            table = table.view(len(coefficients), -1)
            if of_coefficients is not None:
                of_coefficients.addmm_(table, bases[:, nodes].flatten(1).t())
            if of_bases is not None:
                of_bases[:, nodes] = (coefficients.t() @ table).view(-1, count, bases.shape[2])
        return of_coefficients, of_bases, None, None


def _blocks(
    coefficients: Tensor, bases: Tensor, kinds: Tensor, places: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Blocks of places; which rows are in one, and where in its part of all tables."""
    nodes = bases.shape[1]
    width = max(1, max(coefficients.shape) * bases.shape[2] * bases.element_size())
    size = max(1, BLOCK_BYTES // width)
    ordered, order = places.sort(stable=True)
    starts = torch.arange(0, nodes + size, size, device=places.device)
    bounds = torch.searchsorted(ordered, starts).tolist()
    for k, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if begin < end:
            block = slice(k * size, min((k + 1) * size, nodes))
            which = order[begin:end]
            yield block, which, kinds[which] * (block.stop - block.start) + ordered[begin:end] - block.start


def _reference(coefficients: Tensor, bases: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
    """The same by operators that autograd differentiates, with all tables."""
    return torch.einsum('rb,bnc->rnc', coefficients, bases)[kinds, places]
