"""k nearest neighbours on a CPU: brute force in chunks, with a running list of the nearest.

Squared distances are sums of squared differences from the first dimension to the last, each operation rounded to the
points' type and none fused with another; of equal distances the lower number comes first. The result is thus a matter
of definition: the same on every processor and for any number of threads. What is no number counts as infinity.

Points are packed in panels: the lanes of a register hold points, not dimensions, so that the order of the sum costs
nothing. A part of the work is a block of queries. For each chunk of its cloud it takes the distances of four queries,
panel by panel, onto the stack, and then lets each query choose: a bound from above for its k-th distance leaves few
candidates, which are put in order by counting, for each, those ahead of it: no list is shifted and no branch guessed.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse.cpu import simd
from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.numbers import ELEMENT_TYPES
from pygfuse.cpu.walks.knn import QUERIES_TOGETHER, nearest_body

# queries of one part of the work
PART_QUERIES = 32
# a chunk's distances to the queries that are taken together lie on the stack, its points in the second-level cache
BUFFER_BYTES = 1 << 14
CHUNK_BYTES = 1 << 18
# candidates beyond twice the length of a list that are collected before they are put in order
SPARE = 128


def lanes_of(dtype: torch.dtype) -> int:
    """Values of a register."""
    return simd.register_bytes() // dtype.itemsize


def panel_width(dtype: torch.dtype) -> int:
    """Points of a panel: as many as fill the registers with sums for `QUERIES_TOGETHER` queries."""
    # AVX-512 has 32 registers, the others 16
    return (4 if simd.register_bytes() == 64 else 2) * lanes_of(dtype)


def chunk_limit(dtype: torch.dtype) -> int:
    """Points of a chunk at most: as many as the stack's buffer has room for."""
    return BUFFER_BYTES // (QUERIES_TOGETHER * dtype.itemsize)


@functools.cache
def _nearest_kernel(dtype: torch.dtype) -> Kernel:
    element = ELEMENT_TYPES[dtype]
    layout, line = Layout(element, 1, panel_width(dtype)), Layout(element, 1, lanes_of(dtype))
    stride = chunk_limit(dtype)
    constants = (repr((layout.row, line.row, stride)),)
    return Kernel(nearest_body(layout, line, stride), f'nearest neighbours, {element}', constants)


def pack(x: Tensor) -> Tensor:
    """Points ``[points, dims]`` in panels ``[panels, dims, points of a panel]``, the last filled with zeros."""
    width = panel_width(x.dtype)
    points, dims = x.shape
    panels = -(-points // width)
    packed = x.new_empty(panels, dims, width)
    whole = points // width
    packed[:whole] = x[: whole * width].view(whole, width, dims).transpose(1, 2)
    if whole < panels:
        packed[whole] = 0
        packed[whole, :, : points - whole * width] = x[whole * width :].t()
    return packed


def _blocks(ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor) -> tuple[Tensor, int]:
    """The blocks of queries as `nearest_body` reads them, and the length of all lists together."""
    queries = ptr_y.diff()
    lists = torch.cat([queries.new_zeros(1), (queries * lengths).cumsum(0)])
    counts = torch.where(lengths > 0, -(-queries // PART_QUERIES), 0)
    cloud = torch.arange(len(counts)).repeat_interleave(counts)
    number = torch.arange(len(cloud)) - (counts.cumsum(0) - counts)[cloud]
    first = ptr_y[cloud] + number * PART_QUERIES
    last = torch.minimum(first + PART_QUERIES, ptr_y[cloud + 1])
    place = lists[cloud] + (first - ptr_y[cloud]) * lengths[cloud]
    return torch.stack([first, last, ptr_x[cloud], ptr_x[cloud + 1], lengths[cloud], place], dim=1), int(lists[-1])


def nearest(
    x: Tensor, y: Tensor, ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor, without_self: bool, queries_first: bool
) -> Tensor:
    """The nearest points of each query, query by query, from near to far.

    Args:
        x: The points, ``[N, F]``, float32 or float64, contiguous.
        y: The queries, ``[M, F]``, of the same type.
        ptr_x: Where each cloud's points begin, and the end, ``[clouds + 1]``, int64.
        ptr_y: Where each cloud's queries begin, and the end.
        lengths: How many neighbours a query of each cloud gets, ``[clouds]``, int64: at most as many as there are.
        without_self: Whether point i is no neighbour of query i.
        queries_first: Which row of the result holds the queries.

    Returns:
        ``[2, sum of the lists' lengths]``, int64: queries and neighbours.
    """
    blocks, total = _blocks(ptr_x, ptr_y, lengths)
    pair = torch.empty(2, total, dtype=torch.int64)
    if total == 0:
        return pair
    queries, neighbours = (pair[0], pair[1]) if queries_first else (pair[1], pair[0])
    dims, width = x.shape[1], panel_width(x.dtype)
    panels = CHUNK_BYTES // (max(dims, 1) * width * x.itemsize)
    chunk = min(max(panels, 1) * width, chunk_limit(x.dtype))
    lanes = lanes_of(x.dtype)
    capacity = -(-(2 * int(lengths.max()) + SPARE) // lanes) * lanes
    room = len(blocks) * capacity
    _nearest_kernel(x.dtype)(
        len(blocks),
        *(blocks, pack(x), y, dims, chunk, int(without_self), capacity),
        *(x.new_empty(room), pair.new_empty(room), x.new_empty(room)),
        *(x.new_empty(total), neighbours, queries),
    )
    return pair
