"""The nearest of some candidates: by bisection, without putting them in order."""

from __future__ import annotations

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.distances import bits_of, float_of_bits

# rounds in which the range of values is halved, after which the range of their bits is
HALVES = 16


@inlined
def _nearest_value(values, base, count, wanted):
    """The `wanted`-th least of some values of at least 0, or one that as many are not above.

    The range of values is bisected, and where that leads nowhere the range of their bits, which ascend as they do.
    """
    low, high = -1, 0
    for i in range(base, base + count):
        high = max(high, bits_of(values[i]))
    rounds = 0
    while high - low > 1:
        middle = low + (high - low) // 2
        if rounds < HALVES:
            half = bits_of(float_of_bits(max(low, 0)) * 0.5 + float_of_bits(high) * 0.5)
            if low < half < high:
                middle = half
        rounds += 1
        value = float_of_bits(middle)
        held = 0
        for i in range(base, base + count):
            held += values[i] <= value
        if held >= wanted:
            high = middle
            if held == wanted:
                low = middle
        else:
            low = middle
    return float_of_bits(high)


@inlined
def _last_number(values, numbers, base, count, wanted, value, end):
    """The number up to which candidates of this value are among the `wanted` nearest."""
    nearer, held = 0, 0
    for i in range(base, base + count):
        nearer += values[i] < value
        held += values[i] <= value
    low, high = -1, end
    if held == wanted:
        return float(end)
    while high - low > 1:
        middle = (low + high) // 2
        last = float(middle)
        held = nearer
        for i in range(base, base + count):
            held += (values[i] == value) & (numbers[i] <= last)
        if held >= wanted:
            high = middle
        else:
            low = middle
    return float(high)


@inlined
def keep_nearest(values, numbers, base, count, wanted, end):
    """Keeps the `wanted` nearest of more candidates, of equally near ones those of lower numbers.

    Args:
        values: How far each is, at least 0.
        numbers: Their numbers as float64, which all differ.
        base: Where they lie in both; what is kept comes first.
        count: How many there are.
        wanted: How many are kept, fewer.
        end: What every number is below.

    Returns:
        A value that those of kept candidates are not above, and those of all others not below.
    """
    value = _nearest_value(values, base, count, wanted)
    number = _last_number(values, numbers, base, count, wanted, value, end)
    kept = base
    for i in range(base, base + count):
        own, own_number = values[i], numbers[i]
        values[kept] = own
        numbers[kept] = own_number
        kept += (own < value) | ((own == value) & (own_number <= number))
    return value
