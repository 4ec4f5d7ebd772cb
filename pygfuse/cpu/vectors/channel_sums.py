"""The sum over a head's channels: a tree of shuffles that reduces many heads at once."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen.llvm import add, concatenate, constant, power_of_two_at_least, shuffle
from pygfuse.cpu.vectors.simd import Block, ChannelRow, HeadVector, SimdType, unpack


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


def _halved(builder, vectors: Sequence[ir.Value], length: int) -> list[ir.Value]:
    """Half as many vectors, of segments half as long."""
    if len(vectors) % 2:
        vectors = [*vectors, ir.Constant(vectors[0].type, ir.Undefined)]
    return [_halve(builder, a, b, length) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]


def sum_over_channels(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> ir.Value:
    """A head vector of the sums over each head's channels: a tree of shuffles that reduces many heads at once."""
    vectors, length = _segments(builder, row, vectors)
    while length > 1:
        vectors = _halved(builder, vectors, length)
        length //= 2
    return shuffle(builder, concatenate(builder, vectors), range(row.heads))


def sum_into_one(builder, row: ChannelRow, vectors: Sequence[ir.Value]) -> ir.Value:
    """The same tree as far as it fills lanes: one vector with a segment for each head.

    It is for rows of so few heads that those of several edges fill a vector; `sum_of_edges` goes on with it.
    """
    vectors, length = _segments(builder, row, vectors)
    while len(vectors) > 1:
        vectors = _halved(builder, vectors, length)
        length //= 2
    return vectors[0]


def length_in_one(row: ChannelRow) -> int:
    """The length of a segment in what `sum_into_one` gives."""
    length = min(row.lanes, power_of_two_at_least(row.channels))
    vectors = -(-row.heads // (row.lanes // length))
    return length // power_of_two_at_least(vectors)


def sum_of_edges(builder, heads: int, vectors: Sequence[ir.Value], length: int) -> ir.Value:
    """The sums over each head's channels of edges side by side, from what `sum_into_one` made of each edge."""
    edges, held = len(vectors), vectors[0].type.count // length
    while length > 1:
        vectors = _halved(builder, vectors, length)
        length //= 2
    return shuffle(builder, concatenate(builder, vectors), [e * held + h for e in range(edges) for h in range(heads)])


def sum_of_row(context, builder, kinds: Sequence[types.Type], values: Sequence[ir.Value]) -> tuple[SimdType, ir.Value]:
    """The word `sum_channels`: the type of the result, and the result."""
    (row,), (value,) = kinds, values
    if not isinstance(row, ChannelRow):
        raise ValueError(f'Expected a row of channels (got {row})')
    return HeadVector(row.element, 1, row.heads), sum_over_channels(builder, row, unpack(builder, row, value))
