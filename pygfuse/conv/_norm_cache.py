"""Factors of normalisation that go with a cached graph."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from pygfuse.conv._normalise import gcn_factors, inverse_root
from pygfuse.graph.graph import Graph
from pygfuse.ops.aggregate import Edges

_FACTORS: weakref.WeakKeyDictionary[Graph, dict[torch.dtype, Tensor]] = weakref.WeakKeyDictionary()


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
    kept = _FACTORS.setdefault(graph, {})
    if like.dtype not in kept:
        # autograd keeps them: no inference tensors
        with torch.inference_mode(False):
            kept[like.dtype] = inverse_root(graph.degree.to(like.dtype)).unsqueeze(-1)
    return kept[like.dtype]
