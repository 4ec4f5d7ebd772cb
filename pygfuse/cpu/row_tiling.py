"""How a call is cut for this target: how much of a row a walk holds in registers."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.program.program import BoundProgram

# registers that may hold one row: a forward walk keeps one sum, the adjoint the resident row and its sum
FORWARD_REGISTERS = 16
BACKWARD_REGISTERS = 12
# bytes of a row that one of two threads takes: two lines of a cache
_SHARE = 128


# edges whose scores are of channels are scored in two phases, each of which waits for the last edge of the one before
_LEAST_OF_CHANNELS = 8


def least_edges(bound: BoundProgram) -> int:
    """The least number of edges that walks of a program score side by side, where a register holds more than one."""
    return 1 if bound.score_is_of_heads else _LEAST_OF_CHANNELS


@functools.lru_cache(maxsize=256)
def tiling(
    dtype: torch.dtype,
    heads: int,
    channels: int,
    registers: int,
    split_channels: bool,
    edge_limit: int | None = None,
    edge_least: int = 1,
) -> Tiling:
    """Tiles of whole heads, as many as fit in `registers`; a wider head is split if the program allows it.

    The last of a head's tiles may overlap the one before it: both write the same values there. A walk that adds to
    what is in memory takes `apart` instead.

    Args:
        dtype: Type of the values.
        heads, channels: Of the whole row.
        registers: How many may hold a row.
        split_channels: Whether channels of a head can be computed apart.
        edge_limit: The most edges that are scored side by side.
        edge_least: The least number of them, see `Layout`.
    """
    element, limit = ELEMENT_TYPES[dtype], _most_values(dtype, registers)
    if channels <= limit or not split_channels:
        held = max(d for d in range(1, heads + 1) if heads % d == 0 and (d == 1 or d * channels <= limit))
        starts = [(head, head * channels) for head in range(0, heads, held)]
        layout = Instructions(element, held, channels, edge_limit, edge_least)
    else:
        offsets = [min(start, channels - limit) for start in range(0, channels, limit)]
        starts = [(head, head * channels + offset) for head in range(heads) for offset in offsets]
        layout = Instructions(element, 1, limit, edge_limit, edge_least)
    return _tiles(layout, starts)


@functools.lru_cache(maxsize=256)
def apart(dtype: torch.dtype, heads: int, channels: int, registers: int, split_channels: bool) -> tuple[Tiling, ...]:
    """As `tiling`, but no two tiles have a value in common: what is left of wide heads has a layout of its own."""
    rest = channels % _most_values(dtype, registers)
    if not split_channels or rest in (0, channels):
        return (tiling(dtype, heads, channels, registers, split_channels),)
    element, limit = ELEMENT_TYPES[dtype], _most_values(dtype, registers)
    whole = channels - rest
    starts = [(head, head * channels + offset) for head in range(heads) for offset in range(0, whole, limit)]
    ends = [(head, head * channels + whole) for head in range(heads)]
    return _tiles(Instructions(element, 1, limit), starts), _tiles(Instructions(element, 1, rest), ends)


@functools.lru_cache(maxsize=256)
def shares(dtype: torch.dtype, channels: int, edge_limit: int | None = None) -> Tiling | None:
    """Tiles of one head of which two threads have as many each; None where a row is not so many of them.

    Two cores that write parts of the same rows must leave each other's lines alone: processors fetch two lines at once,
    and behind more of them in a row the next, which the other core writes.

    Args:
        dtype, channels, edge_limit: As of `tiling`.
    """
    share = _SHARE // dtype.itemsize
    if channels % (2 * share):
        return None
    starts = [(0, start) for start in range(0, channels, share)]
    return _tiles(Instructions(ELEMENT_TYPES[dtype], 1, share, edge_limit), starts)


def overlaps(tiling: Tiling, width: int) -> bool:
    """Whether tiles of a row of so many values have some of them in common."""
    return tiling.count * tiling.layout.heads * tiling.layout.channels != width


def _most_values(dtype: torch.dtype, registers: int) -> int:
    """How many values `registers` hold."""
    return registers * simd.register_bytes() // dtype.itemsize


def _tiles(layout: Instructions, starts: Iterable[tuple[int, int]]) -> Tiling:
    return Tiling(layout, torch.tensor([number for start in starts for number in start]))
