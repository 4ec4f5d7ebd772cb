"""Which rows and edges a part of the work has, over the lanes' interface of either device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rows_reader(lanes: Any) -> Callable:
    """``rows_of(piece, bounds, indptr)``: first row and end of a piece of a `Cut`, and its first edge and end.

    A piece that ends inside a row has that row too.
    """
    place_at = lanes.place_at

    @lanes.inlined
    def rows_of(piece, bounds, indptr):
        last_row, last_edge = place_at(bounds, 2 * piece + 2), place_at(bounds, 2 * piece + 3)
        ends_within = last_edge > place_at(indptr, last_row)
        return place_at(bounds, 2 * piece), last_row + ends_within, place_at(bounds, 2 * piece + 1), last_edge

    return rows_of


def row_reader(lanes: Any) -> Callable:
    """``row_at(v, piece, indptr, first_edge, last_edge)``: ``begin, end, is_whole, slot``.

    Where the row is not whole in the piece, what the piece leaves of it goes to the slot.
    """
    place_at = lanes.place_at

    @lanes.inlined
    def row_at(v, piece, indptr, first_edge, last_edge):
        row_begin, row_end = place_at(indptr, v), place_at(indptr, v + 1)
        begin, end = max(row_begin, first_edge), min(row_end, last_edge)
        begins_here = begin == row_begin
        return begin, end, begins_here and end == row_end, 2 * piece + begins_here

    return row_at
