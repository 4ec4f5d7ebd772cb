"""Stages of a network on edges, chunk by chunk: what a deep EdgeConv computes without a tensor of edges x features.

On each edge (j, i) the value ``source_j + target_i`` goes through linear maps and activations, and is reduced over the
edges of a target or over all edges. Edges are taken in chunks that fit into cache, with the library's matrix product
for each; backward recomputes the chunk. Saved are the operands, and for a maximum the place of the winning edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.graph.graph import Graph

# the operators are registered on import
from pygfuse.ops.edge_mlp import moments, reduction  # noqa: F401
from pygfuse.ops.edge_mlp.stages import Affine, EdgeStage, Map, Rectifier, written
from pygfuse.ops.edges import Edges

__all__ = ['Affine', 'EdgeStage', 'Map', 'Rectifier', 'edge_moments', 'edge_reduce', 'why_no_places']

# a winning edge is kept by its place in the row, as a number of float32
_PLACES_LIMIT = 2**24


def why_no_places(graph: Graph) -> str | None:
    """The reason, if any, for which no maximum can be taken over the edges of a graph's targets."""
    # no degree is asked for where no node can have so many edges
    is_beyond = graph.num_edges > _PLACES_LIMIT and graph.max_degree > _PLACES_LIMIT
    return f'a node of more than {_PLACES_LIMIT} edges' if is_beyond else None


def edge_reduce(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> Tensor:
    """The stages' values, reduced over each target's edges: ``[targets, channels]``, 0 where there are none.

    Args:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        stages: What happens to their sum on each edge.
        edges: The edges.
        reduce: ``'sum'`` or ``'max'``. Of several edges that have the largest value, the first gets the gradient.
    """
    text, tensors = written(stages)
    out, _ = torch.ops.pygfuse.edge_reduce(
        source, target, tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow, reduce
    )
    return out


def edge_moments(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges) -> tuple[Tensor, Tensor]:
    """Mean ``[channels]`` and (biased) covariance ``[channels, channels]`` of the stages' values, in float64.

    Args:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        stages: What happens to their sum on each edge.
        edges: The edges, at least one.
    """
    text, tensors = written(stages)
    mean, covariance = torch.ops.pygfuse.edge_moments(
        source, target, tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow
    )
    return mean, covariance
