"""Groups of an execution path: as large as its own structure asks for."""

from __future__ import annotations

import dataclasses

from pygfuse.mapping.group_sizes.chooser import chooser_in_force, with_group_size
from pygfuse.mapping.mapping import Cut, Mapping, cut, forced
from pygfuse.partial.paths.rows import PathRows


def grouped(rows: PathRows, parts: Cut, mapping: Mapping, row_bytes: int) -> Cut:
    """The groups of a path: its own where a chooser of group sizes is in force, else those of the whole graph.

    Args:
        rows: The path's edges.
        parts: The whole graph's parts without the edges left out.
        mapping: The whole graph's mapping.
        row_bytes: Bytes of a row of channels.
    """
    if chooser_in_force() is None or forced() is not None:
        return parts
    own = with_group_size(mapping, rows.csr, row_bytes)

    def make() -> Cut:
        found = cut(rows.csr, own)
        return dataclasses.replace(found, split_rows=rows.rows[found.split_rows].to(found.split_rows.dtype))

    return rows.csr.memo.get_or_make(('cut of a path', own), make)
