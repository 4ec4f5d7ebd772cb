"""The sum over a head's channels: a tree of shuffles that reduces many heads at once."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen.llvm import add, concatenate, constant, power_of_two_at_least, shuffle
from pygfuse.cpu.simd import Block, ChannelRow, HeadVector, SimdType, unpack


def _padding(block: Block, row: ChannelRow, padded: int) -> list[int]:
    """The shuffle that gives each head of a block `padded` lanes; lane ``row.lanes`` is a zero."""
    if row.channels >= row.lanes:
        return [lane if lane < block.valid else row.lanes for lane in range(row.lanes)]
    sources = [(lane // padded) * row.channels + lane % padded for lane in range(row.lanes)]
    return [
        source if lane % padded < row.channels and source < block.valid else row.lanes
        for lane, source in enumerate(sources)
    ]


def _segments(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> tuple[list[ir.Value], int]:
    """Vectors of equal segments, one a head and in the order of heads, zero where there is no value; their length."""
    zero = constant(vectors[0].type, 0.0)
    padded = min(row.lanes, power_of_two_at_least(row.channels))
    segments = []
    for block, vector in zip(row.blocks, vectors, strict=True):
        if block.valid < row.lanes:
            vector = shuffle(builder, vector, _padding(block, row, padded), zero)
        if block.start % row.channels == 0:
            segments.append(vector)
        else:  # a further block of the same head
            segments[-1] = add(builder, segments[-1], vector)
    return segments, padded


def _halve(builder, a: ir.Value, b: ir.Value, length: int) -> ir.Value:
    """Adds the second half of every segment to the first: segments of `a`, then those of `b`, half as long."""
    lanes = range(2 * a.type.count)
    first = [lane for lane in lanes if lane % length < length // 2]
    second = [lane for lane in lanes if lane % length >= length // 2]
    return add(builder, shuffle(builder, a, first, b), shuffle(builder, a, second, b))


def sum_over_channels(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> ir.Value:
    """A head vector of the sums over each head's channels: a tree of shuffles that reduces many heads at once."""
    vectors, length = _segments(builder, row, vectors)
    while length > 1:
        if len(vectors) % 2:
            vectors.append(ir.Constant(vectors[0].type, ir.Undefined))
        vectors = [_halve(builder, a, b, length) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        length //= 2
    return shuffle(builder, concatenate(builder, vectors), range(row.heads))


def sum_of_row(context, builder, kinds: Sequence[types.Type], values: Sequence[ir.Value]) -> tuple[SimdType, ir.Value]:
    """The word `sum_channels`: the type of the result, and the result."""
    (row,), (value,) = kinds, values
    if not isinstance(row, ChannelRow):
        raise ValueError(f'Expected a row of channels (got {row})')
    return HeadVector(row.element, 1, row.heads), sum_over_channels(builder, row, unpack(builder, row, value))
