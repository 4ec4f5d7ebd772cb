"""Stages of a network on edges, chunk by chunk, without a tensor of edges x features between them.

On each edge (j, i) a sum of values of its ends and of its features goes through linear maps, activations and layer
normalisations, and is reduced over the edges of a target, kept as the new features of the edge, or both. Edges are
taken in chunks that fit into cache, with the library's matrix product for each; backward recomputes the chunk. Saved
are the operands, and for a maximum the place of the winning edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.graph.graph import Graph
from pygfuse.ops.edge_mlp.at_once import network_at_once
from pygfuse.ops.edge_mlp.batch_norm import normalised
from pygfuse.ops.edge_mlp.eager import network_eagerly
from pygfuse.ops.edge_mlp.moments import edge_moments
from pygfuse.ops.edge_mlp.stages import (
    Affine,
    Begin,
    Contract,
    Drop,
    EdgeStage,
    Map,
    Normalise,
    Plus,
    Rectifier,
    Times,
    tensors_of,
    written,
)
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.wanted import no_leaf

__all__ = [
    'Affine',
    'Begin',
    'Contract',
    'Drop',
    'EdgeStage',
    'Map',
    'Normalise',
    'Plus',
    'Rectifier',
    'Times',
    'edge_moments',
    'edge_network',
    'edge_reduce',
    'edge_states',
    'normalised',
    'why_no_edge_chunks',
    'why_no_places',
]

# a winning edge is kept by its place in the row, as a number of float32
_PLACES_LIMIT = 2**24


def why_no_edge_chunks(dtype: torch.dtype) -> str | None:
    """The reason, if any, for which values of a type do not go through networks on chunks of edges: narrow ones would
    lose digits in sums over these.

    Example:
        >>> why_no_edge_chunks(torch.float32) is None
        True
        >>> why_no_edge_chunks(torch.float16)
        'networks of several stages have no fused form for torch.float16'
    """
    is_wide = dtype in (torch.float32, torch.float64)
    return None if is_wide else f'networks of several stages have no fused form for {dtype}'


def why_no_places(graph: Graph) -> str | None:
    """The reason, if any, for which no maximum can be taken over the edges of a graph's targets."""
    # no degree is asked for where no node can have so many edges
    is_beyond = graph.num_edges > _PLACES_LIMIT and graph.max_degree > _PLACES_LIMIT
    return f'a node of more than {_PLACES_LIMIT} edges' if is_beyond else None


def _run(stages: Sequence[EdgeStage], edges: Edges, reduce: str, with_state: bool) -> tuple[Tensor, Tensor]:
    is_eager = not is_watched(tensors_of(stages))
    if is_eager:
        found = network_at_once(stages, edges, reduce, with_state)
        if found is not None:
            return found
    text, tensors = written(stages)
    tensors = [no_leaf(tensor) for tensor in tensors]
    if is_eager:
        return network_eagerly(tensors, text, edges, reduce, with_state)
    out, _, state = torch.ops.pygfuse.edge_network(
        tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow, reduce, with_state
    )
    return out, state


def edge_network(stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> tuple[Tensor, Tensor]:
    """The stages' values reduced over each target's edges, and those values, by one pass over the edges.

    Args:
        stages: What happens on an edge; the first is a `Begin`.
        edges: The edges.
        reduce: ``'sum'`` or ``'max'``. Of several edges that have the largest value, the first gets the gradient; where
            so few edges are taken at once that all have a row (`pygfuse.ops.listed.are_taken_at_once`), they share it.

    Returns:
        ``[targets, channels]``, 0 where there are no edges, and ``[edges, channels]`` in the user's order.

    Example:
        >>> edges = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3)
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> out, state = edge_network([Begin(source=x, target=x)], edges, 'sum')
        >>> out.flatten().tolist(), state.flatten().tolist()
        ([0.0, 8.0, 5.0], [3.0, 5.0, 5.0])
    """
    return _run(stages, edges, reduce, True)


def edge_reduce(stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> Tensor:
    """The first result of `edge_network`."""
    return _run(stages, edges, reduce, False)[0]


def edge_states(stages: Sequence[EdgeStage], edges: Edges) -> Tensor:
    """The second result of `edge_network`."""
    return _run(stages, edges, 'none', True)[1]
