"""All points within a distance on a CPU: cells of a grid, and two walks over them.

Squared distances are sums of squared differences in float64 from the first dimension to the last, each operation
rounded and none fused with another, and so is the square of the radius: the result is a matter of definition, the
same on every processor and for any number of threads, and where scipy's ``cKDTree`` computes a distance, it is that.

Points and queries are put in the order of their cells. The cells around one are runs of points: along the last axis
they lie side by side. A part of the work is a run of queries, and as their cells ascend, so do those around them: each
run is found from where it was for the cell before. The first walk counts the points of each query, the second writes
them to places that are then known.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.points.cells import CellPoints, Grid, grid_of, in_cells
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.vectors.panels import lanes_of
from pygfuse.cpu.walks.radius import DIGIT, PART_QUERIES, SPARE, TOGETHER, count_body, write_body
from pygfuse.graph.within import Within

# dimensions for which kernels of their own are compiled
MOST_KNOWN = 3
# queries that one thread serves
FEW_QUERIES = 2048


def _line() -> Layout:
    return Layout(ELEMENT_TYPES[torch.float64], 1, lanes_of(torch.float64))


@functools.cache
def _count_kernel(dims: int | None) -> Kernel:
    line = _line()
    return Kernel(count_body(line, dims), f'points within a radius, counted, {dims}', (repr((line.row, dims)),))


@functools.cache
def _write_kernel(dims: int | None, limited: bool) -> Kernel:
    line = _line()
    constants = (repr((line.row, dims, limited)),)
    return Kernel(write_body(line, dims, limited), f'points within a radius, {dims}, {limited}', constants)


def _clouds_of(ptr: Tensor) -> Tensor | None:
    """The cloud of each point; None if there is but one."""
    return None if len(ptr) == 2 else torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())


def _grid(x: Tensor, y: Tensor, clouds: int, r: float) -> Grid:
    lows, highs = x.aminmax(dim=0)
    if y is not x:
        other_lows, other_highs = y.aminmax(dim=0)
        lows, highs = torch.minimum(lows, other_lows), torch.maximum(highs, other_highs)
    return grid_of(lows.double(), highs.double(), clouds, r)


def within(search: Within) -> Tensor:
    """The edges that a search finds: ``[2, edges]``, int64, queries and neighbours."""
    x, y = search.x, search.y
    if len(x) == 0 or len(y) == 0:
        return torch.empty(2, 0, dtype=torch.int64)
    if x.shape[1] == 0:
        x, y = x.new_zeros(len(x), 1), y.new_zeros(len(y), 1)
    grid = _grid(x, y, len(search.ptr_x) - 1, search.r)
    points = in_cells(grid, x, _clouds_of(search.ptr_x))
    queries = points if search.y is search.x else in_cells(grid, y, _clouds_of(search.ptr_y))
    return _walked(grid, points, queries, search)


def _walked(grid: Grid, points: CellPoints, queries: CellPoints, search: Within) -> Tensor:
    dims, count = len(points.coordinates), len(queries.order)
    known = dims if dims <= MOST_KNOWN else None
    parts = -(-count // PART_QUERIES)
    cells = (points.occupied, points.starts, *grid.columns)
    around = (points.coordinates, points.coordinates.shape[1])
    asked = (queries.cells, queries.order, queries.coordinates, queries.coordinates.shape[1], dims, search.r * search.r)
    counts = torch.empty(count, dtype=torch.int64)
    # waking others takes longer than few queries do
    threads = 1 if count < FEW_QUERIES else None
    _count_kernel(known)(parts, *cells, *around, *asked, int(search.without_self), counts, threads=threads)
    most = int(counts.max())
    limited = search.wanted is not None and most > search.wanted
    room = most + TOGETHER + lanes_of(torch.float64)
    if limited:
        counts.clamp_(max=search.wanted)
        room = min(room, 2 * search.wanted + SPARE)
    offsets = torch.zeros(count + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    pair = on_huge_pages(torch.empty(2, int(offsets[-1]), dtype=torch.int64))
    targets, sources = (pair[0], pair[1]) if search.queries_first else (pair[1], pair[0])
    passes = -(-len(points.order).bit_length() // DIGIT)
    _write_kernel(known, limited)(
        parts, *cells, *around, points.numbers, *asked, int(search.without_self),
        *(search.wanted or 0, room, len(points.order), passes, offsets, sources, targets),
        threads=threads,
    )  # fmt: skip
    return pair
