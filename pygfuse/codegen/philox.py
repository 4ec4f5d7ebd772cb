"""Philox-4x32 (Salmon et al., SC 2011) with seven rounds, as LLVM instructions on vectors: the same on every device.

The key is the seed, the counter ``(edge, edge >> 32, head, 0)``; the first of the four words decides whether the weight
of this edge and head is dropped.
"""

from __future__ import annotations

from llvmlite import ir

ROUNDS = 7
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def threshold_and_scale(probability: float) -> tuple[int, float]:
    """For a dropout probability: the 32-bit number below which a word drops, and the scale of what is kept."""
    if probability >= 1.0:
        return 0, 0.0
    return min(round(probability * 2**32), 2**32 - 1), 1.0 / (1.0 - probability)


def integers(lanes: int, values) -> ir.Constant:
    """A vector of 32-bit words."""
    return ir.Constant(ir.VectorType(_INT32, lanes), [int(value) & 0xFFFFFFFF for value in values])


def _multiply_wide(builder, x: ir.Value, factor: int) -> tuple[ir.Value, ir.Value]:
    """The high and the low words of the 64-bit products."""
    wide = ir.VectorType(_INT64, x.type.count)
    product = builder.mul(builder.zext(x, wide), ir.Constant(wide, [factor] * x.type.count))
    high = builder.lshr(product, ir.Constant(wide, [32] * x.type.count))
    return builder.trunc(high, x.type), builder.trunc(product, x.type)


def first_words(builder, counter: list[ir.Value], key: list[ir.Value]) -> ir.Value:
    """The first word of each lane's block.

    Args:
        builder: Where instructions go.
        counter: Four vectors of 32-bit words.
        key: Two.
    """
    lanes = counter[0].type.count
    for turn in range(ROUNDS):
        if turn:
            key = [builder.add(k, integers(lanes, [step] * lanes)) for k, step in zip(key, KEY_STEPS, strict=True)]
        high0, low0 = _multiply_wide(builder, counter[0], MULTIPLIERS[0])
        high1, low1 = _multiply_wide(builder, counter[2], MULTIPLIERS[1])
        first = builder.xor(builder.xor(high1, counter[1]), key[0])
        third = builder.xor(builder.xor(high0, counter[3]), key[1])
        counter = [first, low1, third, low0]
    return counter[0]
