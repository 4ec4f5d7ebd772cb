"""The walks of all points within a distance: each lane takes a query through its cloud, to count and then to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.cuda.walks.clouds import over_points
from pygfuse.cuda.walks.heap import heap_functions


def count_body(lanes: Any) -> Callable:
    """How many points are within the distance of each query.

    Args:
        lanes: The instructions of a lane; a team has one, and a row is a panel of points.
    """
    store_place, team_number, team_count = lanes.store_place, lanes.team_number, lanes.team_count

    def take(distance, number, query, held, limit):
        return held + (distance <= limit)

    over = over_points(lanes, take, 'held', 'limit')

    def count(queries, clouds, limit, counts):
        for query in range(team_number(), queries, team_count()):
            store_place(counts, query, over(clouds, query, 0, limit))

    return count


def write_body(lanes: Any) -> Callable:
    """The points within the distance of each query, in the order of their numbers, and the query beside each.

    Where a query has more than are wanted it keeps a heap of the nearest, which it then makes a heap of numbers.

    Args:
        lanes: The instructions of a lane; a team has one, and a row is a panel of points.
    """
    place_at, store_place, team_number, team_count = (
        lanes.place_at, lanes.store_place, lanes.team_number, lanes.team_count,
    )  # fmt: skip
    row_full, first_value, reload_place = lanes.row_full, lanes.value(0), lanes.reload_place
    push, keep, pop = heap_functions(lanes)

    def append(distance, number, query, held, limit, first, neighbours):
        if distance <= limit:
            store_place(neighbours, first + held, number)
            held += 1
        return held

    def choose(distance, number, query, held, last, limit, wanted, heaps):
        if distance <= limit:
            held, last = keep(heaps, query, held, last, wanted, distance, number)
        return held, last

    append_all = over_points(lanes, append, 'held', 'limit, first, neighbours')
    choose_all = over_points(lanes, choose, 'held, last', 'limit, wanted, heaps')

    def write(queries, clouds, limit, counts, lists, heaps, neighbours, beside):
        nothing = first_value(row_full(0.0))
        for query in range(team_number(), queries, team_count()):
            first, end = place_at(lists, query), place_at(lists, query + 1)
            wanted = end - first
            if place_at(counts, query) == wanted:
                append_all(clouds, query, 0, limit, first, neighbours)
            else:
                choose_all(clouds, query, 0, nothing, limit, wanted, heaps)
                for held in range(wanted):
                    push(heaps, query, held, nothing, reload_place(heaps.numbers, held * heaps.stride + query))
                for left in range(wanted, 0, -1):
                    _, number = pop(heaps, query, left)
                    store_place(neighbours, first + left - 1, number)
            for place in range(first, end):
                store_place(beside, place, query)

    return write
