"""Explicit SIMD for Numba: the values of an edge program as LLVM vectors.

Two Numba types hold them. `HeadVector` has one lane per head, for one edge or for several edges side by side, so that
the arithmetic on scores fills the registers whatever the number of heads. `ChannelRow` has one lane per head and
channel, as a list of register-sized blocks; a block never splits a head that fits into one. Both take Python's
operators and the words of `pygfuse.program.vocabulary` (`pygfuse.cpu.vectors.elementwise`,
`pygfuse.cpu.vectors.channel_sums`); a head vector meets a channel row by being spread over it, a shuffle.

What reads and writes memory is in `pygfuse.cpu.vectors.layout`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.registry import cpu_target
from numba.extending import register_model

from pygfuse.codegen.llvm import power_of_two_at_least, shuffle, splat
from pygfuse.cpu.vectors import numbers


@functools.cache
def register_bytes() -> int:
    """Bytes of the widest vector register of the processor that Numba compiles for."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(',')
    if '+avx512f' in features:
        return 64
    return 32 if '+avx2' in features else 16


def llvm_element(element: types.Float) -> ir.Type:
    return ir.FloatType() if element == types.float32 else ir.DoubleType()


@dataclasses.dataclass(frozen=True)
class Block:
    """One register of a channel row: `valid` values from position `start` of the row, and the head of every lane."""

    start: int
    valid: int
    heads: tuple[int, ...]


def blocks_of(heads: int, channels: int, lanes: int) -> tuple[Block, ...]:
    """Cuts a row of heads x channels values into blocks of at most `lanes` lanes.

    A head of at least `lanes` channels takes blocks of its own; smaller heads share a block, as many as fit when each
    is given a power of two of lanes (which the sum over channels needs).
    """
    padded = power_of_two_at_least(channels)
    shared = max(1, lanes // padded)
    width = min(lanes, padded * power_of_two_at_least(min(shared, heads)))
    blocks = []
    for first in range(0, heads, shared):
        begin, end = first * channels, min(first + shared, heads) * channels
        for start in range(begin, end, lanes):
            valid = min(lanes, end - start)
            owners = tuple((start + min(lane, valid - 1)) // channels for lane in range(width))
            blocks.append(Block(start, valid, owners))
    return tuple(blocks)


class SimdType(types.Type):
    """The type of a value of an edge program, in registers."""

    element: types.Float
    heads: int


class HeadVector(SimdType):
    """One value per head for each of `edges` edges: lane ``edge * heads + head`` of one LLVM vector."""

    def __init__(self, element: types.Float, edges: int, heads: int) -> None:
        self.element, self.edges, self.heads = element, edges, heads
        super().__init__(name=f'HeadVector({element}, {edges}, {heads})')

    @property
    def lanes(self) -> int:
        return self.edges * self.heads


class ChannelRow(SimdType):
    """One value per head and channel of one edge, in blocks."""

    def __init__(self, element: types.Float, heads: int, channels: int) -> None:
        self.element, self.heads, self.channels = element, heads, channels
        self.blocks = blocks_of(heads, channels, register_bytes() // (element.bitwidth // 8))
        super().__init__(name=f'ChannelRow({element}, {heads}, {channels})')

    @property
    def lanes(self) -> int:
        return len(self.blocks[0].heads)


def llvm_vector(element: types.Float, lanes: int) -> ir.VectorType:
    return ir.VectorType(llvm_element(element), lanes)


@register_model(HeadVector)
class HeadVectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, llvm_vector(fe_type.element, fe_type.lanes))


@register_model(ChannelRow)
class ChannelRowModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        block = llvm_vector(fe_type.element, fe_type.lanes)
        super().__init__(dmm, fe_type, ir.ArrayType(block, len(fe_type.blocks)))


# Values at build time


def unpack(builder, kind: SimdType, value: ir.Value) -> list[ir.Value]:
    """The LLVM vectors of a value."""
    if isinstance(kind, HeadVector):
        return [value]
    return [builder.extract_value(value, i) for i in range(len(kind.blocks))]


def pack(builder, context, kind: SimdType, vectors: Sequence[ir.Value]) -> ir.Value:
    """The value that has these LLVM vectors."""
    if isinstance(kind, HeadVector):
        return vectors[0]
    row = ir.Constant(context.get_data_type(kind), ir.Undefined)
    for i, vector in enumerate(vectors):
        row = builder.insert_value(row, vector, i)
    return row


def broadcast(context, builder, kind: types.Type, value: ir.Value, to: SimdType) -> list[ir.Value]:
    """The LLVM vectors of a scalar, a head vector or a row, in the form of `to`."""
    if not isinstance(kind, SimdType):
        scalar = numbers.cast(builder, value, kind, to.element)
        vector = splat(builder, scalar, to.lanes)
        return [vector] * (1 if isinstance(to, HeadVector) else len(to.blocks))
    if kind == to:
        return unpack(builder, kind, value)
    if isinstance(to, HeadVector):
        return [shuffle(builder, value, [lane % kind.heads for lane in range(to.lanes)])]
    return [shuffle(builder, value, block.heads) for block in to.blocks]


def common_type(kinds: Sequence[types.Type]) -> SimdType | None:
    """The form in which these operands meet, or None if they do not."""
    found = [kind for kind in kinds if isinstance(kind, SimdType)]
    if not found or not all(isinstance(kind, (SimdType, types.Number)) for kind in kinds):
        return None
    rows = [kind for kind in found if isinstance(kind, ChannelRow)]
    widest = rows[0] if rows else max(found, key=lambda kind: kind.edges)
    for kind in found:
        fits = kind == widest or (isinstance(kind, HeadVector) and kind.edges == 1)
        if not fits or kind.heads != widest.heads or kind.element != widest.element:
            return None
    return widest
