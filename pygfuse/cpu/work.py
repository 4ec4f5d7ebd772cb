"""Which rows and edges a part of the work has: a piece of the graph's edges, times a tile of the row."""

from __future__ import annotations

from pygfuse.cpu.memory import place_at
from pygfuse.cpu.translation.functions import inlined


@inlined
def piece_of(part, tiles):
    """Tile and piece of a part, and the tile's first head and channel."""
    num_tiles = len(tiles) // 2
    tile = part % num_tiles
    return tile, part // num_tiles, tiles[2 * tile], tiles[2 * tile + 1]


@inlined
def rows_of(piece, bounds, indptr):
    """First row and end of a piece of a `pygfuse.mapping.mapping.Cut`, and its first edge and end.

    A piece that ends inside a row has that row too.
    """
    last_row, last_edge = bounds[2 * piece + 2], bounds[2 * piece + 3]
    ends_within = last_edge > place_at(indptr, last_row)
    return bounds[2 * piece], last_row + ends_within, bounds[2 * piece + 1], last_edge
