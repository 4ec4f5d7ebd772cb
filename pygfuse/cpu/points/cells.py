"""Points in the cells of a uniform grid, cell by cell: what searches by distance walk on a CPU.

A cell has a number: the cells along the last axis of the grid one after another, those along the axis before it row
after row, the clouds last. Behind each row lies one cell more, which is always empty, so that a step to a neighbouring
cell is the same difference of numbers everywhere and never leads into another cloud. Only cells with points exist, and
they are found by their numbers, which ascend: memory grows with the points, however small the cells are and however
far the points lie apart.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.sort import CHUNK_MINIMUM, order_of
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.ordered import begin_buckets

# axes of the grid at most: with each, the cells around one are three times as many
MOST_AXES = 3
# cells along an axis at most: places along it are rounded by far less than the margin of a cell
MOST_CELLS = 1 << 20
# cells of all clouds at most, so that their numbers are exact
MOST_NUMBERS = 1 << 60
# a cell's side is longer than what it has to cover by this share of it, which rounding cannot make up for
MARGIN = 1e-6
# below this length, squares of distances vanish
SHORTEST = 1e-150
# bits by which few points are sorted at once
DIGIT = 8
# coordinates of so many points beyond the last are zeros, so that whole registers may be read
PADDING = 64


@dataclasses.dataclass(frozen=True)
class Grid:
    """A uniform grid, the same for all clouds.

    Attributes:
        axes: The dimensions of space that it divides, ``[axes]``, int64.
        lows: The least coordinate along each of them, ``[axes]``, float64.
        scales: Cells a unit of length, ``[axes]``, float64; 0 where one cell holds all.
        sizes: Number of cells along each of them, ``[axes]``, int64.
        reach: How many cells away from its own a point's neighbours may lie.
        clouds: Number of clouds.
    """

    axes: Tensor
    lows: Tensor
    scales: Tensor
    sizes: Tensor
    reach: int
    clouds: int

    @property
    def numbers(self) -> int:
        """One more than the greatest number of a cell."""
        return self.clouds * math.prod(size + self.reach for size in self.sizes.tolist())

    @property
    def columns(self) -> tuple[Tensor, int]:
        """The cells around one, as runs along the last axis: by how much the first number of each differs from the
        cell's own, ``[runs]``, int64, ascending; and by how much a run's last number differs from its first."""
        steps = [range(-self.reach, self.reach + 1) if size > 1 else range(1) for size in self.sizes.tolist()]
        *sizes, _ = self.sizes.tolist()
        found = []
        for place in itertools.product(*steps[:-1]):
            number = 0
            for step, size in zip(place, sizes, strict=True):
                number = number * (size + self.reach) + step
            found.append(number * (int(self.sizes[-1]) + self.reach) + steps[-1][0])
        return torch.tensor(found), steps[-1][-1] - steps[-1][0]


def grid_of(lows: Tensor, highs: Tensor, clouds: int, length: float, reach: int = 1) -> Grid:
    """A grid whose cells are as small as may be, so that what is no farther than `length` is within `reach` cells.

    Args:
        lows: The least coordinates of all points, ``[F]``, float64, F at least 1.
        highs: The greatest.
        clouds: Number of clouds.
        length: A distance, which may be 0 or infinite.
        reach: How many cells it extends over.
    """
    extents = (highs - lows).tolist()
    axes = sorted(sorted(range(len(extents)), key=lambda d: -extents[d])[:MOST_AXES])
    # what is left of all numbers for each axis
    most = int(min(MOST_CELLS, (MOST_NUMBERS / clouds) ** (1 / len(axes)) - reach - 1))
    scales, sizes = [], []
    for extent in (extents[axis] for axis in axes):
        side = max(length / reach, SHORTEST, extent / most) * (1 + MARGIN)
        divided = math.isfinite(side) and extent >= side
        scales.append(1 / side if divided else 0.0)
        sizes.append(int(extent / side) + 1 if divided else 1)
    chosen = torch.tensor(axes)
    return Grid(chosen, lows[chosen], torch.tensor(scales, dtype=torch.float64), torch.tensor(sizes), reach, clouds)


@inlined
def _cell_of(point, points, dims, cloud, axes, lows, scales, sizes, reach):
    """The number of a point's cell."""
    number = 0
    if cloud is not None:
        number = cloud[point]
    for axis in range(len(axes)):
        place = (float(points[point * dims + axes[axis]]) - lows[axis]) * scales[axis]
        cell = 0
        # what is no number, as the difference is infinite, is in the only cell that there is
        if place > 0.0:
            cell = min(np.int64(place), sizes[axis] - 1)
        number = number * (sizes[axis] + reach) + cell
    return number


def _number_cells(part, parts, points, dims, cloud, axes, lows, scales, sizes, reach, numbers):
    """The cell of each of a run of points."""
    count = len(numbers)
    for point in range(part * count // parts, (part + 1) * count // parts):
        numbers[point] = _cell_of(point, points, dims, cloud, axes, lows, scales, sizes, reach)


def _take_points(part, parts, points, dims, order, stride, coordinates):
    """Puts the coordinates of a run of points, in the order of cells, dimension by dimension."""
    count = len(order)
    for place in range(part * count // parts, (part + 1) * count // parts):
        for d in range(dims):
            coordinates[d * stride + place] = float(points[order[place] * dims + d])
        coordinates[dims * stride + place] = float(order[place])


def _sort_points(
    part, points, dims, cloud, axes, lows, scales, sizes, reach, passes, order, other_order, cells, other_cells,
    coordinates, stride, numbers, occupied, starts,
):  # fmt: skip
    """Puts few points in the order of cells: all that `CellPoints` holds, by one thread."""
    count = len(order)
    buckets = np.empty(1 << DIGIT, np.int64)
    # what is sorted ends where it belongs after any number of passes
    from_order, to_order, from_cells, to_cells = order, other_order, cells, other_cells
    if passes % 2 == 1:
        from_order, to_order, from_cells, to_cells = other_order, order, other_cells, cells
    for point in range(count):
        from_order[point] = point
        from_cells[point] = _cell_of(point, points, dims, cloud, axes, lows, scales, sizes, reach)
    for digit in range(passes):
        shift = digit * DIGIT
        begin_buckets(from_cells, count, shift, DIGIT, buckets)
        for i in range(count):
            bucket = (from_cells[i] >> shift) & ((1 << DIGIT) - 1)
            place = buckets[bucket]
            to_order[place] = from_order[i]
            to_cells[place] = from_cells[i]
            buckets[bucket] = place + 1
        from_order, to_order, from_cells, to_cells = to_order, from_order, to_cells, from_cells
    held = 0
    for place in range(count):
        for d in range(dims):
            coordinates[d * stride + place] = float(points[order[place] * dims + d])
        numbers[place] = float(order[place])
        if place == 0 or cells[place] != cells[max(place - 1, 0)]:
            occupied[held] = cells[place]
            starts[held] = place
            held += 1
    starts[held] = count
    starts[count + 1] = held
    for place in range(count, stride):
        for d in range(dims):
            coordinates[d * stride + place] = 0.0
        numbers[place] = 0.0


sort_points = Kernel(_sort_points, 'few points in the order of cells')
number_cells = Kernel(_number_cells, 'the cells of points')
take_points = Kernel(_take_points, 'points in the order of cells')


@dataclasses.dataclass(frozen=True)
class CellPoints:
    """Points in the order of their cells; those of one cell keep theirs.

    Attributes:
        order: The number of each point, ``[N]``, int64.
        cells: The number of each point's cell, ``[N]``, int64, ascending.
        coordinates: float64, ``[F, N + PADDING]``.
        numbers: `order` as float64, ``[N + PADDING]``.
        occupied: The cells with points, ascending.
        starts: Where the points of each begin, and the end of the last.
    """

    order: Tensor
    cells: Tensor
    coordinates: Tensor
    numbers: Tensor
    occupied: Tensor
    starts: Tensor


def in_cells(grid: Grid, points: Tensor, cloud: Tensor | None) -> CellPoints:
    """Points in the order of cells.

    Args:
        grid: Which holds them all.
        points: ``[N, F]``, float32 or float64, contiguous, N at least 1.
        cloud: The cloud of each point, ``[N]``, int64; None for one cloud.
    """
    count, dims = points.shape
    placing = (grid.axes, grid.lows, grid.scales, grid.sizes, grid.reach)
    stride = count + PADDING
    if count < CHUNK_MINIMUM:
        order, other_order, cells, other_cells, occupied = torch.empty(5, count, dtype=torch.int64)
        starts = torch.empty(count + 2, dtype=torch.int64)
        coordinates = torch.empty(dims + 1, stride, dtype=torch.float64)
        numbers = coordinates[dims]
        passes = -(-(grid.numbers - 1).bit_length() // DIGIT)
        sort_points(
            1, points, dims, cloud, *placing, passes, order, other_order, cells, other_cells, coordinates, stride,
            numbers, occupied, starts, threads=1,
        )  # fmt: skip
        held = int(starts[-1])
        return CellPoints(order, cells, coordinates[:dims], numbers, occupied[:held], starts[: held + 1])
    parts = max(1, min(torch.get_num_threads(), count // CHUNK_MINIMUM))
    numbered = torch.empty(count, dtype=torch.int64)
    number_cells(parts, parts, points, dims, cloud, *placing, numbered)
    order = order_of(numbered, grid.numbers)
    cells = numbered[order]
    coordinates = torch.zeros(dims + 1, stride, dtype=torch.float64)
    take_points(parts, parts, points, dims, order, stride, coordinates)
    first = cells.new_zeros(1)
    begins = torch.cat([first, cells.diff().nonzero().flatten() + 1])
    starts = torch.cat([begins, first + count])
    return CellPoints(order, cells, coordinates[:dims], coordinates[dims], cells[begins], starts)
