"""Clouds of points as kernels that search for neighbours take them."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.panels import pack
from pygfuse.cuda.arguments import KINDS
from pygfuse.cuda.layout import ITEM_BYTES, LOAD_BYTES, Layout
from pygfuse.cuda.walks.clouds import Clouds
from pygfuse.cuda.walks.heap import Heaps

# numbers of points that a heap holds in 32 bits
MOST_POINTS = 2**31


def one_lane(dtype: torch.dtype) -> Layout:
    """A lane by itself, whose rows are as many points as one load brings."""
    element = KINDS[dtype]
    return Layout(element, 1, LOAD_BYTES // ITEM_BYTES[element])


def clouds_of(x: Tensor, y: Tensor, ptr_x: Tensor, ptr_y: Tensor, without_self: bool) -> Clouds:
    """Points and queries as kernels take them.

    Args:
        x: The points, ``[N, F]``.
        y: The queries, ``[M, F]``.
        ptr_x: Where each cloud's points begin, and the end, ``[clouds + 1]``, int64, on the CPU.
        ptr_y: Where each cloud's queries begin, and the end.
        without_self: Whether point i is no neighbour of query i.
    """
    # one transfer
    begins, queries = torch.stack([ptr_x, ptr_y]).to(x.device)
    of_query = torch.arange(len(ptr_y) - 1, device=x.device).repeat_interleave(queries.diff(), output_size=len(y))
    width = one_lane(x.dtype).values
    return Clouds(pack(x, width), y.t().contiguous(), x.shape[1], len(y), of_query, begins, int(without_self))


def lists_of(lengths: Tensor) -> Tensor:
    """Where the list of each query begins, and the end, given their lengths."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def heaps_for(x: Tensor, queries: int, items: int) -> Heaps:
    """Room for the heaps of so many queries."""
    numbers = torch.int32 if len(x) < MOST_POINTS else torch.int64
    return Heaps(x.new_empty(items, queries), x.new_empty(items, queries, dtype=numbers), queries)
