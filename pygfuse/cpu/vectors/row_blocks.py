"""Blocks of channels, as many as registers hold, by which kernels take rows of any width."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES


@functools.lru_cache(maxsize=256)
def blocks(dtype: torch.dtype, width: int, registers: int) -> tuple[tuple[Layout, Tensor], ...]:
    """A row's channels in blocks of one layout, and the rest in another: each with the blocks' first channels."""
    element = ELEMENT_TYPES[dtype]
    held = registers * simd.register_bytes() // (element.bitwidth // 8)
    whole = width // held * held
    found = [(Layout(element, 1, held), torch.arange(0, whole, held))] if whole else []
    if whole < width:
        found.append((Layout(element, 1, width - whole), torch.tensor([whole])))
    return tuple(found)
