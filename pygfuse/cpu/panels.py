"""Points in panels: the lanes of registers hold points, so that sums over dimensions run from the first to the last."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu import simd


def lanes_of(dtype: torch.dtype) -> int:
    """Values of a register."""
    return simd.register_bytes() // dtype.itemsize


def panel_width(dtype: torch.dtype) -> int:
    """Points of a panel: as many as fill the registers with sums for `QUERIES_TOGETHER` queries."""
    # AVX-512 has 32 registers, the others 16
    return (4 if simd.register_bytes() == 64 else 2) * lanes_of(dtype)


def pack(x: Tensor, width: int) -> Tensor:
    """Points ``[points, dims]`` in panels ``[panels, dims, width]``, the last filled with zeros."""
    points, dims = x.shape
    panels = -(-points // width)
    packed = x.new_empty(panels, dims, width)
    whole = points // width
    packed[:whole] = x[: whole * width].view(whole, width, dims).transpose(1, 2)
    if whole < panels:
        packed[whole] = 0
        packed[whole, :, : points - whole * width] = x[whole * width :].t()
    return packed
