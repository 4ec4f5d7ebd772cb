"""A row in tiles."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch


@dataclasses.dataclass(frozen=True, eq=False)
class Tiling:
    """A row of heads x channels in tiles that all have one layout.

    Attributes:
        layout: What a walk, or a team of lanes, holds of a row.
        tiles: First head and first channel (of the whole row) of each tile, one after another, int64, on its device.
    """

    layout: Any
    tiles: torch.Tensor

    @functools.cached_property
    def count(self) -> int:
        return len(self.tiles) // 2
