"""The rows of a graph, built from its adjacency and checked."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from pygfuse._lib.backends import sorting_of
from pygfuse.graph.adjacency import EDGE_INDEX, SPARSE_LAYOUTS, Adjacency
from pygfuse.graph.csr import Csr


class Outline(Protocol):
    """What is known of a graph before its rows are there; see `pygfuse.graph.graph.Graph`."""

    num_sources: int
    num_targets: int
    num_user_edges: int
    num_loops: int | None
    num_edge_ids: int
    layout: str
    target_row: int
    index_dtype: torch.dtype


def build(graph: Outline, origin: Adjacency | Csr) -> Csr:
    """The edges by target, checked."""
    ids = None
    if isinstance(origin, Csr):
        targets, sources, ids = origin.rows(), origin.index.to(torch.int64), origin.edge_id
    else:
        compressed = origin.compressed_rows() if graph.num_loops is None else None
        if compressed is not None:
            return _copy_rows(graph, *compressed)
        targets, sources = origin.targets_and_sources()
    if graph.num_loops is not None and graph.layout in SPARSE_LAYOUTS.values():
        targets, sources, ids = _without_repeats(graph, targets, sources, ids)
    try:
        indptr, index, edge_id = sorting_of(targets.device).sort_by_target(
            targets, sources, graph.num_targets, graph.num_sources, graph.num_loops, graph.index_dtype
        )
    except IndexError:
        raise ValueError(_what_is_out_of_range(graph, targets, sources)) from None
    return Csr(indptr, index, _user_ids(graph, edge_id, ids))


def _copy_rows(graph: Outline, pointer: Tensor, index: Tensor) -> Csr:
    if index.numel():
        least, most = (int(bound) for bound in index.aminmax())
        if least < 0 or most >= graph.num_sources:
            raise ValueError(_what_is_out_of_range(graph, None, index))
    return Csr(pointer.to(graph.index_dtype, copy=True), index.to(graph.index_dtype, copy=True), None)


def _user_ids(graph: Outline, edge_id: Tensor | None, ids: Tensor | None) -> Tensor | None:
    """The user's ids of edges numbered anew: number n stands for ids[n], the numbers beyond for
    self-loops."""
    if ids is None:
        return edge_id
    ids = ids.to(graph.index_dtype)
    if edge_id is None:
        return ids
    if graph.num_loops:
        ids = torch.cat(
            (ids, torch.arange(graph.num_user_edges, graph.num_edge_ids, dtype=ids.dtype, device=ids.device))
        )
    return ids[edge_id]


def _without_repeats(
    graph: Outline, targets: Tensor, sources: Tensor, ids: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first of the edges from each source to each target."""
    # a node out of range would pass for another one here
    check_nodes(graph, targets, sources)
    numbers = targets * graph.num_sources + sources
    if bool((numbers.diff() > 0).all()):
        return targets, sources, ids
    ordered, order = numbers.sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered.diff() > 0
    kept = order[first].sort().values
    return targets[kept], sources[kept], kept if ids is None else ids[kept]


def check_nodes(graph: Outline, targets: Tensor, sources: Tensor) -> None:
    """Raises a ValueError if an edge names a node that does not exist."""
    message = _what_is_out_of_range(graph, targets, sources)
    if message:
        raise ValueError(message)


def _what_is_out_of_range(graph: Outline, targets: Tensor | None, sources: Tensor) -> str | None:
    """A sentence on the first edge that names a node which does not exist; None if there is none."""
    worst = None
    for nodes, count, kind in (
        (targets, graph.num_targets, 'target'),
        (sources, graph.num_sources, 'source'),
    ):
        if nodes is None or nodes.numel() == 0:
            continue
        least, most = nodes.aminmax()
        if least >= 0 and most < count:
            continue
        wrong = ((nodes < 0) | (nodes >= count)).nonzero()
        if wrong.numel() and (worst is None or int(wrong[0]) < worst[0]):
            worst = (int(wrong[0]), int(nodes[wrong[0]]), count, kind)
    if worst is None:
        return None
    place, node, count, kind = worst
    if graph.layout == EDGE_INDEX:
        row = graph.target_row if kind == 'target' else 1 - graph.target_row
        where = f'edge_index[{row}] holds node {node} at position {place}'
    else:
        axis = 'row' if kind == 'target' else 'column'
        where = f"The sparse adjacency 'edge_index' holds {axis} {node} at edge {place}"
    indices = f' (indices 0 to {count - 1})' if count else ''
    return f'{where}, but there are only {count} {kind} nodes{indices}'
