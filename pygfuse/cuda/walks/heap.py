"""The nearest points of a query as one lane keeps them: a heap in memory, the last of them on top.

Item `i` of all queries lie side by side, so that lanes that take the same item of theirs share a line of the cache.
Points are in the order of their distances, of equal ones in that of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Heaps(NamedTuple):
    """The heaps of all queries in memory.

    Attributes:
        distances: ``[items, queries]``.
        numbers: The numbers of the points, ``[items, queries]``.
        stride: The number of queries.
    """

    distances: Tensor
    numbers: Tensor
    stride: int


class HeapFunctions(NamedTuple):
    """What a lane does with the heap of its query.

    Attributes:
        push: ``push(heaps, query, held, distance, number)``: adds a point to so many.
        keep: ``keep(heaps, query, held, last, wanted, distance, number)``: adds a point to so many if it is among the
            nearest `wanted`, in place of the last where the heap is full. It gives how many there are then and, once
            the heap is full, the distance of the last, and takes both with the next point, of a greater number.
        pop: ``pop(heaps, query, held)``: the last point of so many, which then is in the heap no more.
    """

    push: Callable
    keep: Callable
    pop: Callable


def heap_functions(lanes: Any) -> HeapFunctions:
    """What a lane does with the heap of its query.

    Args:
        lanes: The instructions of a lane; a team has one.
    """
    reload_number, reload_place = lanes.reload_number, lanes.reload_place
    store_number, store_place = lanes.store_number, lanes.store_place

    @lanes.inlined
    def is_after(distance, number, other_distance, other_number):
        return distance > other_distance or (distance == other_distance and number > other_number)

    @lanes.inlined
    def item(heaps, query, place):
        at = place * heaps.stride + query
        return reload_number(heaps.distances, at), reload_place(heaps.numbers, at)

    @lanes.inlined
    def put(heaps, query, place, distance, number):
        at = place * heaps.stride + query
        store_number(heaps.distances, at, distance, True)
        store_place(heaps.numbers, at, number)

    @lanes.inlined
    def push(heaps, query, held, distance, number):
        place = held
        while place > 0:
            parent = (place - 1) >> 1
            above, above_number = item(heaps, query, parent)
            if not is_after(distance, number, above, above_number):
                break
            put(heaps, query, place, above, above_number)
            place = parent
        put(heaps, query, place, distance, number)

    @lanes.inlined
    def replace_top(heaps, query, held, distance, number):
        place, child = 0, 1
        while child < held:
            below, below_number = item(heaps, query, child)
            if child + 1 < held:
                other, other_number = item(heaps, query, child + 1)
                if is_after(other, other_number, below, below_number):
                    child, below, below_number = child + 1, other, other_number
            if not is_after(below, below_number, distance, number):
                break
            put(heaps, query, place, below, below_number)
            place, child = child, 2 * child + 1
        put(heaps, query, place, distance, number)

    @lanes.inlined
    def keep(heaps, query, held, last, wanted, distance, number):
        if held < wanted:
            push(heaps, query, held, distance, number)
            held += 1
            if held == wanted:
                last, _ = item(heaps, query, 0)
        elif distance < last:
            # of equal distances the one that is there comes first
            replace_top(heaps, query, held, distance, number)
            last, _ = item(heaps, query, 0)
        return held, last

    @lanes.inlined
    def pop(heaps, query, held):
        found = item(heaps, query, 0)
        distance, number = item(heaps, query, held - 1)
        replace_top(heaps, query, held - 1, distance, number)
        return found

    return HeapFunctions(push, keep, pop)
