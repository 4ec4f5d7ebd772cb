"""Symmetric normalisation of an adjacency, kept with the nodes: no tensor of edges where there are no edge weights.

Without edge weights the factors go with the cached graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.conv._layer.edges import user_rows
from pygfuse.graph.adjacency import target_row_of
from pygfuse.graph.graph import Graph
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.program.library.edge_sum import EDGE_SUM


def inverse_root(degree: Tensor) -> Tensor:
    """``degree ** -0.5``, and 0 where that is infinite."""
    root = degree.pow(-0.5)
    return root.masked_fill(root == float('inf'), 0.0)


def gcn_factors(edges: Edges, edge_weight: Tensor | None, like: Tensor) -> Tensor:
    """The factor of each node, as source and as target: its degree to the power of -1/2, ``[nodes, 1]``.

    Args:
        edges: The edges, self-loops put in where the layer wants them.
        edge_weight: One number for each edge id ``[edge ids, 1]``, or None for ones.
        like: A tensor of the wanted type.
    """
    if edge_weight is None:
        ones = like.new_ones(1, 1).expand(num_edge_ids(edges), 1)
        degree = aggregate(EDGE_SUM, edges, {'value': ones}, 1, 1)
    else:
        degree = aggregate(EDGE_SUM, edges, {'value': edge_weight}, 1, 1)
    return inverse_root(degree.flatten(1))


def num_edge_ids(edges: Edges) -> int:
    """Length of a tensor of one row for each edge id."""
    return edges.num_user_edges + (edges.loops or 0)


def with_remaining_loops(edge_weight: Tensor, edges: Edges, fill: float) -> Tensor:
    """Edge weights ``[edges, 1]`` continued by those of the self-loops put in.

    A node that had a self-loop keeps its weight, the others get `fill`: PyG's ``add_remaining_self_loops``.
    """
    if torch.compiler.is_compiling():
        # a graph has no shapes that depend on numbers: what is no loop goes to a place behind all nodes
        first, second = user_rows(edges)
        loops = edge_weight.new_full((edges.loops + 1, 1), fill)
        loops = loops.index_put((torch.where(first == second, first, edges.loops),), edge_weight)[:-1]
    else:
        # found once: whoever looks waits for a GPU, and nobody may while a CUDA graph is captured
        places, nodes = edges.graph().memo.get_or_make(('loops among edges',), lambda: _loops_among(edges))
        loops = _loop_weights(edge_weight, places, nodes, edges.loops, fill)
    return torch.cat([edge_weight, loops])


def _loop_weights(edge_weight: Tensor, places: Tensor, nodes: Tensor, count: int, fill: float) -> Tensor:
    """The weights of self-loops ``[count, 1]``: of some nodes, those of the edges at some places, of others `fill`."""
    return edge_weight.new_full((count, 1), fill).index_put((nodes,), edge_weight[places])


def _loops_among(edges: Edges) -> tuple[Tensor, Tensor]:
    """Which of the user's edges are self-loops, and of which nodes."""
    first, second = user_rows(edges)
    places = (first == second).nonzero().flatten()
    return places, first[places]


def cached_factors(edges: Edges, edge_weight: Tensor | None, like: Tensor) -> Tensor:
    """`gcn_factors`; without edge weights they are computed once for a graph.

    Args:
        edges: The edges.
        edge_weight: One number for each edge id ``[edge ids, 1]``, or None.
        like: A tensor of the wanted type.
    """
    if edge_weight is not None or torch.compiler.is_compiling():
        return gcn_factors(edges, edge_weight, like)
    graph = edges.graph()
    return graph.memo.get_or_make(('norm', like.dtype), lambda: _factors_of(graph, like.dtype))


def factors_of_few(edges: FewEdges, loops: bool, like: Tensor) -> Tensor:
    """`gcn_factors` without edge weights of few edges as they come: no graph is made for it.

    Args:
        edges: The edges.
        loops: Whether each node gets one self-loop in place of others.
        like: A tensor of the wanted type.

    Returns:
        ``[nodes, 1]``.

    Raises:
        ValueError: If an edge names a target that is not there, saying which.
    """
    targets, sources = _ends_of(edges)
    counts = (targets != sources).to(like.dtype) if loops else like.new_ones(1).expand(len(targets))
    degree = like.new_full((edges.num_targets,), float(loops))
    try:
        degree = degree.index_add_(0, targets, counts).unsqueeze(-1)
    except (IndexError, RuntimeError):
        edges.check()
        raise
    return _roots(degree, loops)


def weights_of_few(edges: FewEdges, edge_weight: Tensor, fill: float | None) -> tuple[Tensor, Tensor]:
    """Edge weights of few edges as they come, continued by those of self-loops, and `gcn_factors` of them.

    Args:
        edges: The edges.
        edge_weight: One number for each edge, ``[edges, 1]``.
        fill: The weight of self-loops at nodes that have none; None where none are put in.

    Returns:
        ``[edges, 1]``, or ``[edges + nodes, 1]`` with self-loops; and ``[nodes, 1]``.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    (targets, sources), counted, degree = _ends_of(edges), edge_weight, edge_weight.new_zeros(edges.num_targets, 1)
    try:
        if fill is not None:
            places = (targets == sources).nonzero().flatten()
            degree = _loop_weights(edge_weight, places, targets[places], edges.num_targets, fill)
            edge_weight, counted = torch.cat([edge_weight, degree]), edge_weight.index_fill(0, places, 0.0)
        # of which autograd keeps the targets alone
        degree = degree.squeeze(1).scatter_add(0, targets, counted.squeeze(1))
    except (IndexError, RuntimeError):
        edges.check()
        raise
    return edge_weight, inverse_root(degree).unsqueeze(1)


def _ends_of(edges: FewEdges) -> tuple[Tensor, Tensor]:
    """The targets and the sources of edges."""
    target_row = target_row_of(edges.flow)
    return edges.edge_index[target_row], edges.edge_index[1 - target_row]


def _factors_of(graph: Graph, dtype: torch.dtype) -> Tensor:
    degree = graph.degree.to(dtype).unsqueeze(-1)
    return _roots(degree, graph.num_loops == graph.num_targets)


def _roots(degree: Tensor, loops: bool) -> Tensor:
    """`inverse_root`; with a self-loop at every node, no degree is 0."""
    return degree.pow(-0.5) if loops else inverse_root(degree)
