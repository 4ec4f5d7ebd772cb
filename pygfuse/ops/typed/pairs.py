"""The pairs of a relation and a node as operators take them: rows of products, and the edges that lead from them."""

from __future__ import annotations

from pygfuse.graph.graph import Graph
from pygfuse.graph.relations import Pairs
from pygfuse.ops.edges import Edges
from pygfuse.ops.typed.typed_product import TypedRows


def walked(graph: Graph) -> Edges:
    """A graph of pairs as operators take it."""
    return Edges(graph.token, graph.num_sources, graph.num_targets, walked=graph)


def gathered(pairs: Pairs) -> TypedRows:
    """A product of each pair's node, with a row for each pair."""
    return TypedRows(pairs.bounds, pairs.nodes, None, pairs.count, pairs.padded)


def scattered(pairs: Pairs, num_nodes: int) -> TypedRows:
    """A product of each pair's row, added up by nodes."""
    return TypedRows(pairs.bounds, None, pairs.nodes, num_nodes, pairs.padded)
