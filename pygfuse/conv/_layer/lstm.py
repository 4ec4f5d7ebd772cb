"""LSTMs as aggregations: when their steps can be shared, and the prefix tree that goes with a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.nn.aggr import LSTMAggregation

from pygfuse._lib.hooks import has_hooks
from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.graph.graph import Graph
from pygfuse.hag.prefix_tree import PrefixTree, find_prefix_tree
from pygfuse.ops import Edges

# shared steps are worth it if at most this share is left
_MOST_STEPS = 0.8


def tree_of(graph: Graph) -> PrefixTree:
    """The tree of a graph's neighbour lists, padded as PyG pads them; it is kept with the graph."""
    return graph.memo.get_or_make(('prefix tree',), lambda: find_prefix_tree(graph, pad=True))


def why_not_lstm(aggregation: Any) -> str | None:
    """The reason, if any, for which an aggregation runs PyG's own path."""
    if type(aggregation) is not LSTMAggregation:
        return f"aggr='lstm' is a {type(aggregation).__name__} here"
    lstm = aggregation.lstm
    if lstm.num_layers > 1 or lstm.bidirectional or lstm.proj_size:
        return "aggr='lstm' of several layers, in both directions or with a projection"
    used = zip(lstm._flat_weights_names, lstm._flat_weights, strict=True)
    if any(lstm._parameters.get(name) is not weight for name, weight in used):
        return "aggr='lstm' whose weights are computed: torch's LSTM goes on with those that it had"
    if has_hooks(lstm):
        return 'a hook is registered on the LSTM'
    return 'a hook is registered on the aggregation' if has_hooks(aggregation) else None


def why_not_shared(adjacency: Any, edges: Edges) -> str | None:
    """The reason, if any, for which the LSTM's steps over these edges are not shared."""
    if torch.compiler.is_compiling() or not is_edge_index(adjacency):
        return "aggr='lstm' has a fused form over a plain edge_index only"
    graph = edges.graph()
    if graph.csr.edge_id is not None or not graph.num_edges:
        return "aggr='lstm' of edges that are not sorted by target"
    before, after = tree_of(graph).num_steps
    if after > _MOST_STEPS * before:
        return f"aggr='lstm': the neighbours' lists share too little ({after} of {before} steps are left)"
    return None
