"""What a search of all points within a distance is asked for."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Within(NamedTuple):
    """The points within a distance of each query, query by query, in the order of their numbers.

    Attributes:
        x: The points, ``[N, F]``, float32 or float64, contiguous, finite.
        y: The queries, ``[M, F]``, of the same type.
        ptr_x: Where each cloud's points begin, and the end, ``[clouds + 1]``, int64.
        ptr_y: Where each cloud's queries begin, and the end.
        r: The distance, at least 0.
        wanted: How many of them a query takes at most: the nearest, of equal ones those of the lower numbers. None
            for all.
        without_self: Whether point i is no neighbour of query i.
        queries_first: Which row of the result holds the queries.
    """

    x: Tensor
    y: Tensor
    ptr_x: Tensor
    ptr_y: Tensor
    r: float
    wanted: int | None
    without_self: bool
    queries_first: bool
