"""How a call is cut for this target: how much of a row a walk holds in registers, and which walks an adjoint needs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection

import torch

from pygfuse.cpu import simd
from pygfuse.cpu.kernel import ELEMENT_TYPES
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.walks.backward import BackwardPlan
from pygfuse.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.trace import CHANNELS, HEADS, SCALAR

# registers that may hold one row: a forward walk keeps one sum, the adjoint the resident row and its sum
FORWARD_REGISTERS = 16
BACKWARD_REGISTERS = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Tiling:
    """A row of heads x channels in tiles that all have one layout.

    Attributes:
        layout: What a walk holds of a row.
        tiles: First head and first channel (of the whole row) of each tile, one after another, int64.
    """

    layout: Layout
    tiles: torch.Tensor

    @property
    def count(self) -> int:
        return len(self.tiles) // 2


@functools.lru_cache(maxsize=256)
def tiling(dtype: torch.dtype, heads: int, channels: int, registers: int, split_channels: bool) -> Tiling:
    """Tiles of whole heads, as many as fit in `registers`; a wider head is split if the program allows it.

    The last of a head's tiles may overlap the one before it: both compute the same values there.
    """
    element = ELEMENT_TYPES[dtype]
    limit = registers * simd.register_bytes() // (element.bitwidth // 8)
    if channels <= limit or not split_channels:
        held = max(d for d in range(1, heads + 1) if heads % d == 0 and (d == 1 or d * channels <= limit))
        starts = [(head, head * channels) for head in range(0, heads, held)]
        layout = Layout(element, held, channels)
    else:
        offsets = [min(start, channels - limit) for start in range(0, channels, limit)]
        starts = [(head, head * channels + offset) for head in range(heads) for offset in offsets]
        layout = Layout(element, 1, limit)
    return Tiling(layout, torch.tensor([number for start in starts for number in start]))


def backward_plans(bound: BoundProgram, needed: Collection[str], adding: bool = False) -> list[BackwardPlan]:
    """The walks that give the gradients of the operands `needed`.

    What belongs to sources needs a walk along the transpose, channels of targets one along the graph; the rest goes
    with the first of them that is made. Values of heads of targets are passed along the transpose and summed
    afterwards, or, if `adding`, summed at once into copies.
    """

    def wanted(side: str, level: str) -> tuple[str, ...]:
        return tuple(name for name in bound.names(side, level) if name in needed)

    edges, parameters = wanted(EDGE, HEADS), wanted(PARAMETER, CHANNELS)
    edge_channels = tuple(
        name
        for name in (*bound.edge_rows, *bound.edge_products)
        if not {name, f'{name}:features', f'{name}:weight'}.isdisjoint(needed)
    )
    features = tuple(name for name in edge_channels if f'{name}:features' in needed)
    edge_scalars, parameter_heads = wanted(EDGE, SCALAR), wanted(PARAMETER, HEADS)
    shared = (parameters, features, edge_scalars, parameter_heads)
    target_heads, target_channels = wanted(TARGET, HEADS), wanted(TARGET, CHANNELS)
    source_heads, source_channels = wanted(SOURCE, HEADS), wanted(SOURCE, CHANNELS)
    plans = []
    if source_heads or source_channels:
        others = () if target_channels else target_heads
        passed, added = ((), others) if adding else (others, ())
        plans.append(BackwardPlan(SOURCE, source_heads, source_channels, edges, edge_channels, passed, added, *shared))
        if target_channels:
            plans.append(BackwardPlan(TARGET, target_heads, target_channels))
    elif needed:
        plans.append(BackwardPlan(TARGET, target_heads, target_channels, edges, edge_channels, (), (), *shared))
    return plans
