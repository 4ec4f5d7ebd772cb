"""How many points registers hold side by side, see `pygfuse._lib.panels`."""

from __future__ import annotations

import torch

from pygfuse.cpu.vectors import simd


def lanes_of(dtype: torch.dtype) -> int:
    """Values of a register."""
    return simd.register_bytes() // dtype.itemsize


def panel_width(dtype: torch.dtype) -> int:
    """Points of a panel: as many as fill the registers with sums for `QUERIES_TOGETHER` queries."""
    # AVX-512 has 32 registers, the others 16
    return (4 if simd.register_bytes() == 64 else 2) * lanes_of(dtype)
