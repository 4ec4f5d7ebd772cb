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

from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.sort import CHUNK_MINIMUM, order_of

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


def _number_cells(part, parts, points, dims, cloud, axes, lows, scales, sizes, reach, numbers):
    """The cell of each of a run of points."""
    count = len(numbers)
    for point in range(part * count // parts, (part + 1) * count // parts):
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
        numbers[point] = number


def _take_points(part, parts, points, dims, order, stride, coordinates):
    """Puts the coordinates of a run of points, in the order of cells, dimension by dimension."""
    count = len(order)
    for place in range(part * count // parts, (part + 1) * count // parts):
        for d in range(dims):
            coordinates[d * stride + place] = float(points[order[place] * dims + d])


number_cells = Kernel(_number_cells, 'the cells of points')
take_points = Kernel(_take_points, 'points in the order of cells')


@dataclasses.dataclass(frozen=True)
class CellPoints:
    """Points in the order of their cells; those of one cell keep theirs.

    Attributes:
        order: The number of each point, ``[N]``, int64.
        cells: The number of each point's cell, ``[N]``, int64, ascending.
        coordinates: float64, ``[F, N + PADDING]``.
    """

    order: Tensor
    cells: Tensor
    coordinates: Tensor

    @property
    def occupied(self) -> tuple[Tensor, Tensor]:
        """The cells with points, and where the points of each begin, and their end."""
        first = self.cells.new_zeros(1)
        begins = torch.cat([first, self.cells.diff().nonzero().flatten() + 1])
        return self.cells[begins], torch.cat([begins, first + len(self.cells)])


def in_cells(grid: Grid, points: Tensor, cloud: Tensor | None) -> CellPoints:
    """Points in the order of cells.

    Args:
        grid: Which holds them all.
        points: ``[N, F]``, float32 or float64, contiguous, N at least 1.
        cloud: The cloud of each point, ``[N]``, int64; None for one cloud.
    """
    count, dims = points.shape
    parts = max(1, min(torch.get_num_threads(), count // CHUNK_MINIMUM))
    cells = torch.empty(count, dtype=torch.int64)
    number_cells(parts, parts, points, dims, cloud, grid.axes, grid.lows, grid.scales, grid.sizes, grid.reach, cells)
    order = order_of(cells, grid.numbers)
    coordinates = torch.zeros(dims, count + PADDING, dtype=torch.float64)
    take_points(parts, parts, points, dims, order, count + PADDING, coordinates)
    return CellPoints(order, cells[order], coordinates)
