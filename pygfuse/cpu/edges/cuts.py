"""Cuts of compressed rows into parts, by one kernel: a new graph has two, and each would take a dozen operators."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel


def _cut(part, indptr, count, cut_above, bounds, split_rows, split_indptr, slots, found):
    """Finds where parts begin, and the rows that they cut."""
    num_rows = len(indptr) - 1
    total = indptr[num_rows] + num_rows
    num_split, num_slots, first = 0, 0, 0
    for p in range(count + 1):
        share = p * total // count
        # the row before whose edges, and those of no row behind, that much work is done
        beyond = num_rows + 1
        while beyond - first > 1:
            middle = (first + beyond) // 2
            if indptr[middle] + middle <= share:
                first = middle
            else:
                beyond = middle
        row, edge, end = first, indptr[first], indptr[min(first + 1, num_rows)]
        inside, degree, is_cut = share - edge - first, end - edge, 0
        if p == count:
            row, edge = num_rows, indptr[num_rows]
        elif inside > 0 and degree > cut_above:
            is_cut = int(inside < degree)
            # a share that ends behind a row's last edge begins with the next row
            row, edge = row + 1 - is_cut, edge + min(inside, degree)
        bounds[2 * p] = row
        bounds[2 * p + 1] = edge
        if is_cut:
            if num_split == 0 or split_rows[num_split - 1] != row:
                split_rows[num_split] = row
                split_indptr[num_split] = num_slots
                slots[num_slots] = 2 * p - 1
                num_split += 1
                num_slots += 1
            slots[num_slots] = 2 * p
            num_slots += 1
    split_indptr[num_split] = num_slots
    found[0] = num_split
    found[1] = num_slots


cut_rows = Kernel(_cut, 'the cut of rows into parts')


def cut(indptr: Tensor, count: int, cut_above: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensors of a `pygfuse.mapping.mapping.Cut`.

    Args:
        indptr: Where each row begins, and the end, int32 or int64.
        count: Number of parts.
        cut_above: Rows of more edges may be cut.

    Example:
        >>> cut(torch.tensor([0, 6, 7, 8]), 2, 0)
        (tensor([0, 0, 0, 5, 3, 8]), tensor([0]), tensor([0, 2]), tensor([1, 2]))
    """
    # as many rows at most as there are parts are cut, each into two or more
    sizes = 2 * (count + 1), count, count + 1, 2 * count, 2
    bounds, split_rows, split_indptr, slots, found = indptr.new_empty(sum(sizes), dtype=torch.int64).split(sizes)
    cut_rows(1, indptr, count, cut_above, bounds, split_rows, split_indptr, slots, found, threads=1)
    num_split, num_slots = found.tolist()
    return bounds, split_rows[:num_split], split_indptr[: num_split + 1], slots[:num_slots]
