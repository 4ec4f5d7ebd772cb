"""Execution paths as a CPU walks them: rows of the path's edges, in the pieces of the whole graph."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.edges.row_search import kept_columns, kept_rows
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Cut
from pygfuse.partial.paths.path import ExecutionPath
from pygfuse.partial.paths.rows import PathRows
from pygfuse.program.program import SOURCE


def by_target(path: ExecutionPath, graph: Graph) -> PathRows:
    """The path's edges by target."""
    if 'by target' not in path.kept:
        path.kept['by target'] = PathRows(*kept_rows(graph.csr, path.active))
    return path.kept['by target']


def by_source(path: ExecutionPath, graph: Graph) -> PathRows:
    """The path's edges by source."""
    if 'by source' not in path.kept:
        path.kept['by source'] = PathRows(*kept_columns(graph.csc, path.active, graph.csc.edge_id))
    return path.kept['by source']


def place_by_source(path: ExecutionPath, graph: Graph) -> Tensor:
    """For each of the path's edges by target, its place among those by source."""
    if 'place by source' not in path.kept:
        _, targets, position = kept_columns(graph.csc, path.active, graph.csc.position)
        degree = graph.csr.indptr.diff()
        left_out = (degree * (1 - path.active)).cumsum(0, dtype=degree.dtype)
        places = torch.empty_like(position)
        # nothing is left out of an active row itself
        places[position - left_out[targets]] = torch.arange(position.numel(), dtype=position.dtype)
        path.kept['place by source'] = places
    return path.kept['place by source']


def rows_and_parts(path: ExecutionPath, graph: Graph, side: str, parts: Cut) -> tuple[PathRows, Cut]:
    """The path's edges by rows of one side, and the whole graph's parts without the edges left out.

    Args:
        path: The path.
        graph: The graph that it was made from.
        side: ``'source'`` or ``'target'``.
        parts: Parts of the whole graph by rows of that side.
    """

    def kept_before_in_column(node: int, place: int) -> int:
        return int(path.active[graph.csc.index[graph.csc.indptr[node] : place]].sum(dtype=torch.int64))

    def kept_before_in_row(node: int, place: int) -> int:
        return int(path.active[node]) * (place - int(graph.csr.indptr[node]))

    if side == SOURCE:
        rows = by_source(path, graph)
        return rows, rows.cut(parts, kept_before_in_column)
    rows = by_target(path, graph)
    return rows, rows.cut(parts, kept_before_in_row)
