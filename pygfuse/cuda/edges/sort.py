"""Compressed rows on a GPU, by torch's own sorting: done once for a graph. The host waits once, for what edges hold."""

from __future__ import annotations

import torch
from torch import Tensor


def _pointer(rows_of: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """Where each row begins, and the end, from the row of each edge in order."""
    # not by counting, for which the host would wait
    numbers = torch.arange(rows + 1, dtype=rows_of.dtype, device=rows_of.device)
    return torch.searchsorted(rows_of, numbers, out_int32=dtype == torch.int32)


def sort_by_target(
    targets: Tensor, sources: Tensor, rows: int, columns: int, loops: int | None, index_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The edges as compressed rows, one row a target; see `pygfuse.cpu.edges.sort.sort_by_target`.

    Example:
        >>> sort_by_target(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 2]), 2, 3, None, torch.int32)
        (tensor([0, 1, 3], dtype=torch.int32), tensor([1, 0, 2], ...), tensor([1, 0, 2], ...))
        >>> sort_by_target(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 1]), 2, 2, 2, torch.int32)
        (tensor([0, 2, 4], dtype=torch.int32), tensor([1, 0, 0, 1], ...), tensor([1, 3, 0, 4], ...))
    """
    edges = targets.numel()
    outside = (targets < 0) | (targets >= rows) | (sources < 0) | (sources >= columns)
    goes = targets == sources
    # one transfer for all
    is_outside, falls, gone = torch.stack([outside.any(), (targets.diff() < 0).any(), goes.sum()]).tolist()
    if is_outside:
        raise IndexError('an edge names a node that does not exist')
    if loops is None and not falls:
        return _pointer(targets, rows, index_dtype), sources.to(index_dtype, copy=True), None
    if loops is not None:
        nodes = torch.arange(loops, dtype=targets.dtype, device=targets.device)
        # what goes is sorted behind all rows and left there
        targets = torch.cat([targets.masked_fill(goes, rows), nodes])
        sources, edges = torch.cat([sources, nodes]), edges - gone + loops
    ordered, order = (found[:edges] for found in targets.sort(stable=True))
    return _pointer(ordered, rows, index_dtype), sources[order].to(index_dtype), order.to(index_dtype)


def transpose(indptr: Tensor, index: Tensor, columns: int, with_places: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Compressed columns from compressed rows; see `pygfuse.cpu.edges.sort.transpose`.

    Example:
        >>> transpose(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), 2)
        (tensor([0, 1, 3]), tensor([1, 0, 1]), tensor([1, 0, 2]))
    """
    rows = torch.arange(indptr.numel() - 1, dtype=index.dtype, device=index.device)
    rows_of = rows.repeat_interleave(indptr.diff().long(), output_size=index.numel())
    ordered, order = index.sort(stable=True)
    return _pointer(ordered, columns, index.dtype), rows_of[order], order.to(index.dtype)


def inverted(position: Tensor) -> Tensor:
    """The permutation that undoes another; see `pygfuse.cpu.edges.sort.inverted`.

    Example:
        >>> inverted(torch.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    places = torch.empty_like(position)
    places[position] = torch.arange(position.numel(), dtype=position.dtype, device=position.device)
    return places
