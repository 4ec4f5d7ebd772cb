"""k nearest neighbours on a CPU: brute force in chunks, with a running list of the nearest; in large clouds of few
dimensions only what is in boxes that are near (`pygfuse.cpu.points.knn_boxes`), with the same result.

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

from pygfuse._lib.finite import is_finite
from pygfuse._lib.panels import pack
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.points.knn_boxes import nearest_in_boxes
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.vectors.panels import lanes_of, panel_width
from pygfuse.cpu.walks.knn import QUERIES_TOGETHER, nearest_body

# queries of one part of the work
PART_QUERIES = 32
# a chunk's distances to the queries that are taken together lie on the stack, its points in the second-level cache
BUFFER_BYTES = 1 << 14
CHUNK_BYTES = 1 << 18
# dimensions at most -> points of a cloud from which on boxes are faster, by as many queries as pay for making them
LEAST_POINTS = {3: 8192, 8: 32768}
LEAST_QUERIES = 2048
# and so many times as many as a list holds
LEAST_SHARE = 64
# candidates beyond twice the length of a list that are collected before they are put in order
SPARE = 128


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


def _blocks(ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor, lists: Tensor, done: list[int]) -> Tensor:
    """The blocks of queries as `nearest_body` reads them, but for those of clouds that are done."""
    counts = torch.where(lengths > 0, -(-ptr_y.diff() // PART_QUERIES), 0)
    counts[done] = 0
    cloud = torch.arange(len(counts)).repeat_interleave(counts)
    number = torch.arange(len(cloud)) - (counts.cumsum(0) - counts)[cloud]
    first = ptr_y[cloud] + number * PART_QUERIES
    last = torch.minimum(first + PART_QUERIES, ptr_y[cloud + 1])
    place = lists[cloud] + (first - ptr_y[cloud]) * lengths[cloud]
    return torch.stack([first, last, ptr_x[cloud], ptr_x[cloud + 1], lengths[cloud], place], dim=1)


def _with_boxes(dims: int, ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor) -> list[int]:
    """The clouds that are worth putting in boxes."""
    least = next((least for most, least in LEAST_POINTS.items() if 1 <= dims <= most), None)
    if least is None or int(ptr_x[-1]) < least:
        return []
    points, queries = ptr_x.diff(), ptr_y.diff()
    worth = (points >= least) & (queries >= LEAST_QUERIES) & (lengths * LEAST_SHARE <= points)
    return worth.nonzero().flatten().tolist()


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
    lists = torch.cat([ptr_y.new_zeros(1), (ptr_y.diff() * lengths).cumsum(0)])
    pair = torch.empty(2, int(lists[-1]), dtype=torch.int64)
    queries, neighbours = (pair[0], pair[1]) if queries_first else (pair[1], pair[0])
    done = []
    for cloud in _with_boxes(x.shape[1], ptr_x, ptr_y, lengths):
        own_x, own_y, place = (slice(*ptr[cloud : cloud + 2].tolist()) for ptr in (ptr_x, ptr_y, lists))
        own = x[own_x]
        if is_finite(own) and (y is x or is_finite(y[own_y])):
            searched = own if y is x else y[own_y]
            nearest_in_boxes(own, searched, int(lengths[cloud]), without_self, neighbours[place], queries[place])
            neighbours[place] += own_x.start
            queries[place] += own_y.start
            done.append(cloud)
    blocks = _blocks(ptr_x, ptr_y, lengths, lists, done)
    if len(blocks) == 0:
        return pair
    dims, width = x.shape[1], panel_width(x.dtype)
    panels = CHUNK_BYTES // (max(dims, 1) * width * x.itemsize)
    chunk = min(max(panels, 1) * width, chunk_limit(x.dtype))
    lanes = lanes_of(x.dtype)
    capacity = -(-(2 * int(lengths.max()) + SPARE) // lanes) * lanes
    room = len(blocks) * capacity
    _nearest_kernel(x.dtype)(
        len(blocks),
        *(blocks, pack(x, width), y, dims, chunk, int(without_self), capacity),
        *(x.new_empty(room), pair.new_empty(room), x.new_empty(room)),
        *(x.new_empty(len(neighbours)), neighbours, queries),
    )
    return pair
