"""Factors of normalisation that go with a cached graph."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.conv._normalise import gcn_factors, inverse_root
from pygfuse.ops.aggregate import Edges


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
    return graph.memo.get_or_make(('norm', like.dtype), lambda: inverse_root(graph.degree.to(like.dtype)).unsqueeze(-1))
