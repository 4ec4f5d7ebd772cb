"""Parts of a HAG that need nothing of each other: a batch of graphs can be walked in one go."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.hag.hag import Hag

# parts of whole components: their work, an input counting 1, how many there may be, and the share that one may have
_ROW_WORK, _PART_WORK, _MOST_PARTS, _LEAST_PARTS = 4, 16384, 2048, 16


def component_bounds(hag: Hag) -> Tensor | None:
    """Parts of a HAG that need nothing of each other: runs of components, as in a batch of graphs.

    Returns:
        For each part and each level, targets last, its first row and the end, ``[parts, levels + 1, 2]``; None where
        the components are not runs of rows or one of them makes up too much of the work.
    """
    return hag.memo.get_or_make(('components',), lambda: _component_bounds(hag))


def _component_bounds(hag: Hag) -> Tensor | None:
    num_targets, nodes = hag.num_targets, hag.num_aggregation_nodes
    if not nodes or not num_targets:
        return None
    first, last = hag.users()
    # targets between the first and the last user of a node belong together
    change = torch.zeros(num_targets + 2, dtype=torch.int64)
    change.index_add_(0, first + 1, torch.ones_like(first)).index_add_(0, last + 1, -torch.ones_like(first))
    clean = (change.cumsum(0)[: num_targets + 1] == 0).nonzero().flatten()
    work = hag.targets.indptr.diff().long() + _ROW_WORK
    work.index_add_(0, first, hag.aggregations.indptr.diff().long() + _ROW_WORK)
    before = torch.cat([work.new_zeros(1), work.cumsum(0)])
    total = int(before[-1])
    count = max(1, min(_MOST_PARTS, total // _PART_WORK))
    wanted = torch.searchsorted(before[clean], torch.arange(1, count) * total // count)
    starts = torch.unique(torch.cat([clean[:1], clean[wanted], clean[-1:]]))
    if starts.numel() < 2 or int(before[starts].diff().max()) > max(total // _LEAST_PARTS, 2 * _PART_WORK):
        return None
    num_parts = starts.numel() - 1
    part = torch.searchsorted(starts, first, right=True) - 1
    bounds = torch.empty(num_parts, hag.depth + 1, 2, dtype=torch.int64)
    for level in range(hag.depth):
        begin, end = hag.level_pointer[level], hag.level_pointer[level + 1]
        steps = part[begin:end].diff()
        if bool((steps < 0).any()) and bool((steps > 0).any()):
            return None
        counts = torch.bincount(part[begin:end], minlength=num_parts)
        # rising or falling, as of the reversed HAG
        ends = counts.cumsum(0) if not bool((steps < 0).any()) else counts.flip(0).cumsum(0).flip(0)
        bounds[:, level, 1] = begin + ends
        bounds[:, level, 0] = begin + ends - counts
    bounds[:, -1] = torch.stack([starts[:-1], starts[1:]], dim=1)
    return bounds
