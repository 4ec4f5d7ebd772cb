"""The walk of nearest neighbours: each lane takes a query through its cloud and keeps a heap of the nearest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.cuda.walks.clouds import INFINITY, over_points
from pygfuse.cuda.walks.heap import heap_functions


def nearest_body(lanes: Any) -> Callable:
    """The search, which writes each query's list from near to far, and the query beside each of its neighbours.

    Args:
        lanes: The instructions of a lane; a team has one, and a row is a panel of points.
    """
    place_at, store_place, team_number, team_count = (
        lanes.place_at, lanes.store_place, lanes.team_number, lanes.team_count,
    )  # fmt: skip
    row_full, first_value = lanes.row_full, lanes.value(0)
    _, keep, pop = heap_functions(lanes)

    def take(distance, number, query, held, last, length, heaps):
        return keep(heaps, query, held, last, length, distance, number)

    over = over_points(lanes, take, 'held, last', 'length, heaps')

    def nearest(queries, clouds, lengths, lists, heaps, neighbours, beside):
        for query in range(team_number(), queries, team_count()):
            cloud, first = place_at(clouds.of_query, query), place_at(lists, query)
            length = place_at(lengths, cloud)
            # a number of the distances' type; it is asked for once the heap is full
            nothing = first_value(row_full(-INFINITY))
            over(clouds, query, 0, nothing, length, heaps)
            for left in range(length, 0, -1):
                _, number = pop(heaps, query, left)
                store_place(neighbours, first + left - 1, number)
                store_place(beside, first + left - 1, query)

    return nearest
