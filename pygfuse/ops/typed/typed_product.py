"""Products of rows with a matrix for each type, the rows of a type side by side: never a matrix for each row.

Each type's rows are taken in blocks that stay in a core's cache: they are never gathered all together. Types with few
rows are multiplied in groups (`pygfuse.graph.padded_types`), so that many of them cost as their rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.graph.padded_types import PaddedGroup, PaddedTypes
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated

# blocks of at most so many rows and columns: up to so many of them together, one product with zeros around is faster
_SMALL_BLOCK, _MOST_ROWS = 8, 64


class TypedRows(NamedTuple):
    """Rows of products, ordered by type.

    Attributes:
        bounds: Where each type's rows begin, and the end.
        read: The row of the features that each multiplies, int64; None where it is the same row.
        written: The row of the result to which each is added, int64, for one type at most once; None where it is the
            same row.
        count: The number of rows of the result.
        padded: Types with few rows in groups; None: all are taken one by one.
    """

    bounds: tuple[int, ...]
    read: Tensor | None
    written: Tensor | None
    count: int
    padded: PaddedTypes | None = None

    def reversed(self, count: int) -> TypedRows:
        """The rows of the adjoint, whose result has `count` rows."""
        return TypedRows(self.bounds, self.written, self.read, count, self.padded)

    def blocks(self) -> Iterator[tuple[int, slice]]:
        """Types that are in no group, and places of rows of them that are taken together."""
        for kind in range(len(self.bounds) - 1) if self.padded is None else self.padded.others:
            begin, end = self.bounds[kind], self.bounds[kind + 1]
            for start in range(begin, end, ROWS_AT_ONCE):
                yield kind, slice(start, min(start + ROWS_AT_ONCE, end))

    @property
    def groups(self) -> tuple[PaddedGroup, ...]:
        """Types with few rows in groups."""
        return () if self.padded is None else self.padded.groups


def typed_product(x: Tensor, weight: Tensor, rows: TypedRows, bias: Tensor | None = None) -> Tensor:
    """``out[written[p]] += x[read[p]] @ weight[type of p] + bias[type of p]`` for each of the rows p.

    Args:
        x: Features, ``[nodes, in]``.
        weight: A matrix for each type, ``[types, in, out]``, or the blocks of block-diagonal ones, ``[types, blocks,
            in / blocks, out / blocks]``.
        rows: Which rows.
        bias: A row for each type, ``[types, out]``, or None.

    Returns:
        ``[rows.count, out]``.

    Example:
        >>> x, weight = torch.tensor([[1.0], [2.0]]), torch.tensor([[[1.0]], [[10.0]]])
        >>> typed_product(x, weight, TypedRows((0, 2, 3), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 2))
        tensor([[21.],
                [ 2.]])
    """
    return applied(_TypedProduct, x, _multiplied_out(weight), bias, rows)


def _multiplied_out(weight: Tensor) -> Tensor:
    """Blocks with the zeros around them, where these cost less than products of small blocks."""
    if (
        weight.dim() == 3
        or max(weight.shape[2:]) > _SMALL_BLOCK
        or weight.shape[1] * max(weight.shape[2:]) > _MOST_ROWS
    ):
        return weight
    return torch.diag_embed(weight.permute(0, 2, 3, 1), dim1=1, dim2=3).flatten(3).flatten(1, 2)


class _TypedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None, rows: TypedRows) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.rows = rows
        return _product(x, weight, bias, rows)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        rows, needed = ctx.rows, ctx.needs_input_grad[:3]
        if is_differentiated(grad):
            return *differentiable(functools.partial(_reference, rows=rows), (x, weight, bias), grad, needed), None
        of_x = _product(grad, weight.transpose(-1, -2), None, rows.reversed(len(x))) if needed[0] else None
        of_weight = _gradient_of_weight(x, grad, weight, rows) if needed[1] else None
        return of_x, of_weight, _gradient_of_bias(grad, bias, rows) if needed[2] else None, None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, rows: TypedRows) -> Tensor:
    adds = rows.written is not None
    blocks = weight.shape[1] if weight.dim() == 4 else 1
    make = x.new_zeros if adds else x.new_empty
    out = make(rows.count, blocks * weight.shape[-1])
    for kind, places in rows.blocks():
        block = x[places] if rows.read is None else x.index_select(0, rows.read[places])
        shift = None if bias is None else bias[kind]
        if adds:
            out.index_add_(0, rows.written[places], _times(block, weight[kind], shift))
        else:
            _times(block, weight[kind], shift, out[places])
    for group in rows.groups:
        given, of_types = _by_type(x, rows.read, group, blocks), _of_types(weight, group.kinds)
        if bias is None:
            found = torch.bmm(given, of_types)
        else:
            shift = bias.index_select(0, group.kinds).view(len(given), 1, -1)
            found = torch.baddbmm(shift, given, of_types)
        found = _in_order(found, blocks).index_select(0, group.places)
        if adds:
            out.index_add_(0, rows.written.index_select(0, group.rows), found)
        else:
            out.index_copy_(0, group.rows, found)
    return out


def _by_type(rows: Tensor, which: Tensor | None, group: PaddedGroup, blocks: int, with_zeros: bool = False) -> Tensor:
    """The rows of a group's types, padded, perhaps with zeros, ``[types * blocks, capacity, width of a block]``."""
    found = rows.index_select(0, group.taken if which is None else which.index_select(0, group.taken))
    if with_zeros:
        found.index_fill_(0, group.padding, 0.0)
    width = rows.shape[1] // blocks
    if blocks == 1:
        return found.view(-1, group.capacity, width)
    return found.view(-1, group.capacity, blocks, width).transpose(1, 2).reshape(-1, group.capacity, width)


def _in_order(found: Tensor, blocks: int) -> Tensor:
    """Padded rows of types, blocks side by side again, ``[types * capacity, width]``."""
    if blocks == 1:
        return found.flatten(0, 1)
    return found.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(0, 1).flatten(1)


def _of_types(weight: Tensor, kinds: Tensor) -> Tensor:
    """The matrices of some types, ``[types * blocks, in, out]``; of all types where they are."""
    if len(kinds) == len(weight):
        return weight if weight.dim() == 3 else weight.flatten(0, 1)
    if weight.transpose(-1, -2).is_contiguous():
        return weight.transpose(-1, -2).index_select(0, kinds).view(-1, *weight.shape[:-3:-1]).transpose(-1, -2)
    return weight.index_select(0, kinds).view(-1, *weight.shape[-2:])


def _times(block: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    """A block of rows times a matrix, or a block-diagonal one."""
    if matrix.dim() == 2:
        return torch.mm(block, matrix, out=out) if bias is None else torch.addmm(bias, block, matrix, out=out)
    found = torch.bmm(_by_block(block, matrix.shape[1]).transpose(0, 1), matrix).transpose(0, 1)
    found = found if bias is None else found + bias.view(found.shape[1:])
    return found.flatten(1) if out is None else _by_block(out, matrix.shape[2]).copy_(found)


def _by_block(rows: Tensor, width: int) -> Tensor:
    return rows.reshape(len(rows), rows.shape[1] // width, width)


def _gradient_of_weight(x: Tensor, grad: Tensor, weight: Tensor, rows: TypedRows) -> Tensor:
    # strided as the weight, which may be a transposed one
    is_transposed = weight.transpose(-1, -2).is_contiguous()
    out = torch.zeros_like(weight.transpose(-1, -2) if is_transposed else weight, memory_format=torch.contiguous_format)
    out = out.transpose(-1, -2) if is_transposed else out
    blocks = weight.shape[1] if weight.dim() == 4 else 1
    for kind, places in rows.blocks():
        block = x[places] if rows.read is None else x.index_select(0, rows.read[places])
        of_block = grad[places] if rows.written is None else grad.index_select(0, rows.written[places])
        if weight.dim() == 3:
            out[kind].addmm_(block.t(), of_block)
        else:
            first, second = _by_block(block, weight.shape[2]), _by_block(of_block, weight.shape[3])
            out[kind].baddbmm_(first.permute(1, 2, 0), second.transpose(0, 1))
    for group in rows.groups:
        first = _by_type(x, rows.read, group, blocks)
        second = _by_type(grad, rows.written, group, blocks, with_zeros=True)
        out.index_copy_(0, group.kinds, torch.bmm(first.transpose(1, 2), second).view(-1, *weight.shape[1:]))
    return out


def _gradient_of_bias(grad: Tensor, bias: Tensor, rows: TypedRows) -> Tensor:
    out = torch.zeros_like(bias)
    for kind, places in rows.blocks():
        of_block = grad[places] if rows.written is None else grad.index_select(0, rows.written[places])
        out[kind] += of_block.sum(dim=0)
    for group in rows.groups:
        found = _by_type(grad, rows.written, group, 1, with_zeros=True)
        out.index_copy_(0, group.kinds, found.sum(dim=1))
    return out


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None, rows: TypedRows) -> Tensor:
    """The same by operators that autograd differentiates, with rows gathered all together."""
    x = x if rows.read is None else x.index_select(0, rows.read)
    sizes = torch.tensor(rows.bounds).diff().tolist()
    biases = [None] * len(sizes) if bias is None else bias.unbind()
    out = torch.cat([_times(*given) for given in zip(x.split(sizes), weight.unbind(), biases, strict=True)])
    return out if rows.written is None else out.new_zeros(rows.count, out.shape[1]).index_add(0, rows.written, out)
