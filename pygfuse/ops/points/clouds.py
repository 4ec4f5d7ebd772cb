"""Clouds of points as searches for neighbours take them: checked arguments, and where each cloud begins."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.finite import is_finite
from pygfuse.graph.adjacency import FLOWS


def check_flow(flow: str) -> None:
    """Raises a ValueError for a flow that there is not."""
    if flow not in FLOWS:
        raise ValueError(f"Expected 'flow' to be one of {FLOWS} (got {flow!r})")


def check_batch_size(batch_size: int | None, points: Tensor, queries: Tensor) -> None:
    """Raises a ValueError for what is no number of these clouds."""
    if batch_size is None:
        return
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 0:
        raise ValueError(f"Expected 'batch_size' to be None or a positive integer (got {batch_size!r})")
    if batch_size == 0 and (len(points) or len(queries)):
        raise ValueError("Expected 'batch_size' to be positive where there are points (got 0)")


def prepared(name: str, points: Tensor) -> Tensor:
    """Points as a search takes them: ``[N, F]``, float32 or float64, contiguous."""
    if points.dim() == 1:
        points = points.unsqueeze(1)
    if points.dim() != 2:
        raise ValueError(
            f"Expected '{name}' to be two-dimensional, [points, features] (got shape {list(points.shape)})"
        )
    if points.is_complex():
        raise ValueError(f"Expected '{name}' to be real (got {points.dtype})")
    if not points.is_floating_point():
        points = points.double()
    elif points.dtype not in (torch.float32, torch.float64):
        points = points.float()
    return points.contiguous()


def check_finite(name: str, points: Tensor) -> None:
    """Raises a ValueError if a coordinate is infinite or no number."""
    if not is_finite(points):
        point, dimension = (~points.isfinite()).nonzero()[0].tolist()
        found = points[point, dimension].item()
        raise ValueError(f"Expected '{name}' to be finite (got {found} at point {point}, dimension {dimension})")


def check_alike(x: Tensor, y: Tensor, name_x: str, name_y: str) -> None:
    """Raises a ValueError if points and queries differ in width, type or device."""
    if y.shape[1] != x.shape[1]:
        raise ValueError(
            f"Expected '{name_y}' to have as many features as '{name_x}', {x.shape[1]} (got shape {list(y.shape)})"
        )
    if y.dtype != x.dtype:
        raise ValueError(f"Expected '{name_y}' to be of the type of '{name_x}', {x.dtype} (got {y.dtype})")
    if y.device != x.device:
        raise ValueError(f"Expected '{name_y}' to be on the device of '{name_x}', {x.device} (got {y.device})")


def checked_batch(name: str, batch: Tensor | None, points: Tensor, batch_size: int | None) -> Tensor | None:
    """The cloud of each point on the CPU, int64, or None."""
    if batch is None:
        return None
    if batch.dim() != 1 or len(batch) != len(points):
        raise ValueError(
            f"Expected '{name}' to hold one number for each of {len(points)} points (got shape {list(batch.shape)})"
        )
    if batch.is_floating_point() or batch.is_complex() or batch.dtype == torch.bool:
        raise ValueError(f"Expected '{name}' to be of an integer type (got {batch.dtype})")
    batch = batch.to('cpu', torch.int64)
    if len(batch) and int(batch[0]) < 0:
        raise ValueError(f"Expected '{name}' to ascend from 0 or more (got {int(batch[0])} first)")
    falls = (batch.diff() < 0).nonzero()
    if len(falls):
        place = int(falls[0]) + 1
        raise ValueError(
            f"Expected '{name}' to ascend from 0 or more, points of one cloud side by side (got {int(batch[place])} "
            f'after {int(batch[place - 1])} at position {place})'
        )
    if len(batch) and batch_size is not None and int(batch[-1]) >= batch_size:
        raise ValueError(f"Expected '{name}' to hold numbers below batch_size, {batch_size} (got {int(batch[-1])})")
    return batch


def pointers(
    batch_x: Tensor | None, batch_y: Tensor | None, x: Tensor, y: Tensor, batch_size: int | None
) -> tuple[Tensor, Tensor]:
    """Where each cloud's points and queries begin, and the ends."""
    clouds = batch_size or 1
    if batch_x is None and batch_y is None and clouds == 1:
        return torch.tensor([0, len(x)]), torch.tensor([0, len(y)])
    for batch in (batch_x, batch_y):
        if batch_size is None and batch is not None and len(batch):
            clouds = max(clouds, int(batch[-1]) + 1)
    found = []
    for batch, points in ((batch_x, x), (batch_y, y)):
        ends = torch.full((clouds,), len(points))
        if batch is not None:
            ends = torch.searchsorted(batch, torch.arange(clouds), right=True)
        found.append(torch.cat([ends.new_zeros(1), ends]))
    return found[0], found[1]
