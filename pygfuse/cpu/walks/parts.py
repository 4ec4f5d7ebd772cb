"""Which rows and edges a part of the work has: a piece of the graph's edges, times a tile of the row."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.codegen.parts import row_reader, rows_reader
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.instructions import Instructions

rows_of, row_at = rows_reader(Instructions), row_reader(Instructions)


@inlined
def piece_of(part, tiles):
    """Tile and piece of a part, and the tile's first head and channel."""
    num_tiles = len(tiles) // 2
    tile = part % num_tiles
    return tile, part // num_tiles, tiles[2 * tile], tiles[2 * tile + 1]


@inlined
def _ordered_row_at(i, rows, piece, indptr, first_edge, last_edge):
    v = i
    if len(rows) > 0:
        v = place_at(rows, i)
    begin, end, is_whole, slot = row_at(i, piece, indptr, first_edge, last_edge)
    return v, begin, end, is_whole, slot


@inlined
def _scattered_rows_of(piece, bounds, indptr):
    return bounds[2 * piece + 1], bounds[2 * piece + 3], bounds[2 * piece + 1], bounds[2 * piece + 3]


@inlined
def _scattered_row_at(i, rows, piece, indptr, first_edge, last_edge):
    return place_at(indptr, i), i, i + 1, False, 2 * piece


def row_walkers(scattered: bool) -> tuple[Callable, Callable]:
    """`rows_of` and ``row_at(i, rows, piece, indptr, first_edge, last_edge)``, which gives the row's node first.

    Edges that are in no order (`scattered`) are each a piece of its row: `indptr` then holds the row of each edge.
    """
    return (_scattered_rows_of, _scattered_row_at) if scattered else (rows_of, _ordered_row_at)
