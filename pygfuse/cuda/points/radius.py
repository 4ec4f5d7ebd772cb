"""All points within a distance on a GPU: brute force, each query by one lane, once to count and once to write.

What the result is, `pygfuse.cpu.points.radius` says: distances are in float64, sums of squares from the first dimension
to the last, each operation rounded and none fused with another, so that both devices give the same lists.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cuda import kernels
from pygfuse.cuda.points.clouds import clouds_of, heaps_for, lists_of, one_lane
from pygfuse.graph.within import Within


def within(search: Within) -> Tensor:
    """The edges that a search finds: ``[2, edges]``, int64, queries and neighbours."""
    x, y, queries = search.x.double(), search.y.double(), len(search.y)
    if not len(x) or not queries:
        return torch.empty(2, 0, dtype=torch.int64, device=x.device)
    clouds, limit = clouds_of(x, y, search.ptr_x, search.ptr_y, search.without_self), search.r * search.r
    layout = one_lane(x.dtype)
    counts = torch.empty(queries, dtype=torch.int64, device=x.device)
    count = kernels.count_kernel(layout)
    count(x.device, count.blocks(queries), 1, queries, clouds, limit, counts)
    lists = lists_of(counts if search.wanted is None else counts.clamp(max=search.wanted))
    # one transfer for both
    total, most = torch.stack([lists[-1], counts.max()]).tolist()
    pair = torch.empty(2, total, dtype=torch.int64, device=x.device)
    neighbours, beside = (pair[1], pair[0]) if search.queries_first else (pair[0], pair[1])
    is_limited = search.wanted is not None and most > search.wanted
    heaps = heaps_for(x, queries, search.wanted if is_limited else 0)
    write = kernels.write_kernel(layout)
    write(x.device, write.blocks(queries), 1, queries, clouds, limit, counts, lists, heaps, neighbours, beside)
    return pair
