"""The factors of dropout that walks draw, written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def factors_body(lanes: Any) -> Callable:
    """The factors of all edges and heads."""
    place_at, store_heads, dropout = lanes.place_at, lanes.store_heads, lanes.dropout
    team_number, team_count, group_number, tile_number = (
        lanes.team_number, lanes.team_count, lanes.group_number, lanes.tile_number,
    )  # fmt: skip

    def factors(rows, tiles, total_heads, seed, threshold, scale, result):
        leads, head = group_number() == 0, place_at(tiles, 2 * tile_number())
        for edge in range(team_number(), rows, team_count()):
            kept = dropout(place_at(seed, 0), threshold, scale, edge, head)
            store_heads(result, edge * total_heads + head, kept, leads)

    return factors
