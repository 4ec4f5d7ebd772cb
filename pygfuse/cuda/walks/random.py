"""The factors of dropout that walks draw, written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.cuda.walks.edges import tile_reader


def factors_body(lanes: Any) -> Callable:
    """The factors of all edges and heads."""
    place_at, put_heads, dropout, tile_of = lanes.place_at, lanes.put_heads, lanes.dropout, tile_reader(lanes)
    team_number, team_count = lanes.team_number, lanes.team_count

    def factors(rows, tiles, total_heads, seed, threshold, scale, result):
        _, head, _ = tile_of(tiles)
        for edge in range(team_number(), rows, team_count()):
            kept = dropout(place_at(seed, 0), threshold, scale, edge, head)
            put_heads(result, edge * total_heads + head, kept)

    return factors
