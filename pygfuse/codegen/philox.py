"""Philox-4x32 (Salmon et al., SC 2011) with seven rounds, as LLVM instructions on vectors: the same on every device.

The key is the seed, the counter ``(edge, edge >> 32, head // 4, 0)``; the word ``head % 4`` of the four decides whether
the weight of this edge and head is dropped: four heads that follow one another share a block.
"""

from __future__ import annotations

from llvmlite import ir

ROUNDS = 7
# of a block
WORDS = 4
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_INT64 = ir.IntType(64)


def threshold_and_scale(probability: float) -> tuple[int, float]:
    """For a dropout probability: the 32-bit number below which a word drops, and the scale of what is kept."""
    if probability >= 1.0:
        return 0, 0.0
    return min(round(probability * 2**32), 2**32 - 1), 1.0 / (1.0 - probability)


def integers(type_: ir.VectorType, values) -> ir.Constant:
    """A vector of words."""
    return ir.Constant(type_, [int(value) & 0xFFFFFFFF for value in values])


def _multiply_wide(builder, x: ir.Value, factor: int) -> tuple[ir.Value, ir.Value]:
    """The high and the low words of the 64-bit products."""
    wide = ir.VectorType(_INT64, x.type.count)
    is_wide = x.type.element == _INT64
    # where what is above a word is left out, a processor's product of words reads the lower halves by itself
    low = builder.and_(x, integers(wide, [0xFFFFFFFF] * x.type.count)) if is_wide else builder.zext(x, wide)
    product = builder.mul(low, ir.Constant(wide, [factor] * x.type.count))
    high = builder.lshr(product, ir.Constant(wide, [32] * x.type.count))
    return (high, product) if is_wide else (builder.trunc(high, x.type), builder.trunc(product, x.type))


def words(builder, counter: list[ir.Value], key: list[ir.Value]) -> list[ir.Value]:
    """The four words of each lane's block.

    Args:
        builder: Where instructions go.
        counter: Four vectors of words, 32 bits each, or 64 of which the lower are the word.
        key: Two, of the same type.
    """
    type_ = counter[0].type
    for turn in range(ROUNDS):
        if turn:
            steps = (integers(type_, [step] * type_.count) for step in KEY_STEPS)
            key = [builder.add(k, step) for k, step in zip(key, steps, strict=True)]
        high0, low0 = _multiply_wide(builder, counter[0], MULTIPLIERS[0])
        high1, low1 = _multiply_wide(builder, counter[2], MULTIPLIERS[1])
        first = builder.xor(builder.xor(high1, counter[1]), key[0])
        third = builder.xor(builder.xor(high0, counter[3]), key[1])
        counter = [first, low1, third, low0]
    return counter


def words_of_heads(builder, found: list[ir.Value], heads: ir.Value, count: int) -> list[ir.Value]:
    """Of each lane's block the words of a head and of those that follow it.

    Args:
        builder: Where instructions go.
        found: What `words` gave.
        heads: The number of each lane's head, a multiple of `count`, of the same type.
        count: How many heads: 1, 2 or 4.
    """
    # of words that are `bit` apart those whose head has this bit
    for bit in (2, 1):
        if bit >= count:
            bits = builder.and_(heads, integers(heads.type, [bit] * heads.type.count))
            has = builder.icmp_unsigned('!=', bits, ir.Constant(bits.type, None))
            found = [builder.select(has, late, early) for early, late in zip(found[:bit], found[bit:], strict=True)]
    return found
