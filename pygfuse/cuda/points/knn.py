"""k nearest neighbours on a GPU: brute force, each query by one lane, with a heap of the nearest.

What the result is, `pygfuse.cpu.points.knn` says: distances are sums of squares from the first dimension to the last,
each operation rounded and none fused with another, so that both devices give the same lists. A lane reads four points
of float32 with one load, which is the same for all lanes whose queries are of one cloud.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cuda import kernels
from pygfuse.cuda.points.clouds import clouds_of, heaps_for, lists_of, one_lane


def nearest(
    x: Tensor, y: Tensor, ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor, without_self: bool, queries_first: bool
) -> Tensor:
    """The nearest points of each query, query by query, from near to far; arguments and result are those of
    `pygfuse.cpu.points.knn.nearest`, where `x`, `y` and the result are on a GPU."""
    total = int((ptr_y.diff() * lengths).sum())
    pair = torch.empty(2, total, dtype=torch.int64, device=x.device)
    if not total:
        return pair
    clouds, lengths_there = clouds_of(x, y, ptr_x, ptr_y, without_self), lengths.to(x.device)
    lists = lists_of(lengths_there[clouds.of_query])
    neighbours, beside = (pair[1], pair[0]) if queries_first else (pair[0], pair[1])
    kernel = kernels.nearest_kernel(one_lane(x.dtype))
    heaps = heaps_for(x, len(y), int(lengths.max()))
    kernel(x.device, kernel.blocks(len(y)), 1, len(y), clouds, lengths_there, lists, heaps, neighbours, beside)
    return pair
