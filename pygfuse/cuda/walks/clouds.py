"""The points of a query's cloud, a panel of them at a time: what searches for neighbours share.

A lane has a query of its own. The lanes of a warp, whose queries are mostly of one cloud, read a panel together, so
that one load of 16 bytes serves all, and their queries side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from pygfuse.program import vocabulary

INFINITY = float('inf')


class Clouds(NamedTuple):
    """Points and queries in memory.

    Attributes:
        panels: The points by panels, ``[panels, F, points of a panel]``.
        y: The queries, ``[F, M]``.
        dims: F.
        num_queries: M.
        of_query: The cloud of each query, ``[M]``.
        begins: Where each cloud's points begin, and the end.
        without_self: 1 if point i is no neighbour of query i, else 0.
    """

    panels: Tensor
    y: Tensor
    dims: int
    num_queries: int
    of_query: Tensor
    begins: Tensor
    without_self: int


def over_points(lanes: Any, take: Callable, state: str, rest: str) -> Callable:
    """``over(clouds, query, state, ...)``: the state after all points of the query's cloud.

    Of each but the query itself, where it does not count, in the order of numbers, it is made by ``state =
    take(distance, number, query, state, ...)``. Squared distances are sums from the first dimension to
    the last; one that is no number is infinite.

    Args:
        lanes: The instructions of a lane; a team has one, and a row is a panel.
        take: What is made of a point.
        state: The names of the state's items.
        rest: The names of what else `take` needs.
    """
    load_row, load_number, row_full, place_at = lanes.load_row, lanes.load_number, lanes.row_full, lanes.place_at
    equal, width = vocabulary.equal, lanes.layout.values
    bits = width.bit_length() - 1

    @lanes.inlined
    def distances(clouds, query, panel):
        total, place, of_query = row_full(0.0), panel * clouds.dims * width, query
        end = place + clouds.dims * width
        while place < end:
            difference = load_row(clouds.panels, place) - load_number(clouds.y, of_query)
            total = total + difference * difference
            place, of_query = place + width, of_query + clouds.num_queries
        return equal(total, total, total, INFINITY)

    lines = [
        f'def over(clouds, query, {state}, {rest}):',
        '    cloud = place_at(clouds.of_query, query)',
        '    begin, end = place_at(clouds.begins, cloud), place_at(clouds.begins, cloud + 1)',
        '    own = query if clouds.without_self else -1',
        f'    for panel in range(begin >> {bits}, (end + {width - 1}) >> {bits}):',
        '        found = distances(clouds, query, panel)',
    ]
    for i in range(width):
        lines += [
            f'        number = panel * {width} + {i}',
            '        if begin <= number and number < end and number != own:',
            f'            {state} = take(value{i}(found), number, query, {state}, {rest})',
        ]
    values = {f'value{i}': lanes.value(i) for i in range(width)}
    text = '\n'.join([*lines, f'    return {state}'])
    return lanes.compiled(text, distances=distances, take=lanes.inlined(take), place_at=place_at, **values)
