"""The sum over a head's channels: a tree of shuffles that reduces many heads at once."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core.imputils import lower_builtin
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global

from pygfuse.codegen.llvm import add, concatenate, constant, power_of_two_at_least, shuffle
from pygfuse.cpu.simd import Block, ChannelRow, HeadVector, unpack
from pygfuse.program import vocabulary


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


@infer_global(vocabulary.sum_channels)
class _SumChannels(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 1 and isinstance(args[0], ChannelRow):
            return signature(HeadVector(args[0].element, 1, args[0].heads), *args)
        return None


@lower_builtin(vocabulary.sum_channels, ChannelRow)
def _lower_sum_channels(context, builder, sig, args):
    return sum_over_channels(builder, sig.args[0], unpack(builder, sig.args[0], args[0]))
