"""Points near one another side by side, with boxes around runs of them: what searches for the nearest walk on a CPU.

The points are cut into slabs of equally many along the first dimension, each slab along the second, and so on until a
piece has as many points as a panel: the boxes around panels are small where points are dense, hardly overlap, and
neither scale nor outliers matter. Groups are runs of panels, with boxes around them.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from pygfuse.cpu.edges.sort import order_of

# dimensions along which points are cut
MOST_CUT = 3
# panels of a group
GROUP = 16


def tiled_order(points: Tensor, panel: int) -> Tensor:
    """The order of points ``[N, F]``, N and F at least 1, in which those of a panel are close together.

    They are cut along the dimensions in which they extend farthest.
    """
    count = len(points)
    axes = (points.amax(dim=0) - points.amin(dim=0)).argsort(descending=True, stable=True)[:MOST_CUT].tolist()
    order, length = torch.arange(count), count
    for left, axis in zip(range(len(axes), 0, -1), axes, strict=True):
        ranks = points[order, axis].argsort(stable=True)
        if length < count:
            ranks = ranks[order_of(ranks // length, -(-count // length))]
        order = order[ranks]
        panels = -(-length // panel)
        pieces = round(panels ** (1 / left)) or 1
        length = -(-panels // pieces) * panel
    return order


@dataclasses.dataclass(frozen=True)
class Boxes:
    """The boxes around runs of points.

    Attributes:
        lows: The least coordinates in each run, ``[runs, F]``.
        highs: The greatest.
    """

    lows: Tensor
    highs: Tensor


def boxes_of(lows: Tensor, highs: Tensor, run: int) -> Boxes:
    """The boxes around each `run` points, or boxes, whose coordinates lie between these ``[N, F]``."""
    count, dims = lows.shape
    whole, left = divmod(count, run)
    least = lows[: whole * run].view(whole, run, dims).amin(dim=1)
    greatest = highs[: whole * run].view(whole, run, dims).amax(dim=1)
    if left:
        least = torch.cat([least, lows[whole * run :].amin(dim=0, keepdim=True)])
        greatest = torch.cat([greatest, highs[whole * run :].amax(dim=0, keepdim=True)])
    return Boxes(least.contiguous(), greatest.contiguous())
