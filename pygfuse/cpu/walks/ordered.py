"""Pieces of kernels that put numbers in order by their digits, and find them in ascending order."""

from __future__ import annotations

import numpy as np

from pygfuse.cpu.translation.functions import inlined


@inlined
def first_not_below(values, low, high, value):
    """The first of the places from `low` on whose value is not below `value`, or `high`; the values ascend."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def begin_buckets(numbers, count, shift, bits, buckets):
    """Where those of the first `count` numbers begin that have each value of a digit of `bits` bits, in order."""
    for i in range(1 << bits):
        buckets[i] = 0
    for i in range(count):
        buckets[(np.int64(numbers[i]) >> shift) & ((1 << bits) - 1)] += 1
    place = 0
    for i in range(1 << bits):
        held = buckets[i]
        buckets[i] = place
        place += held
