"""What runs where messages multiply by a matrix of each edge's type: a product for each pair of a type and a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from pygfuse.compiler.ir.values import EDGE, TARGET, Node, of_input, set_of_edges
from pygfuse.graph.relations import Relations
from pygfuse.ops import Edges
from pygfuse.ops.typed.pairs import gathered, walked
from pygfuse.ops.typed.typed_product import TypedRows, typed_product


def types_in(steps: Iterable[Node]) -> tuple[tuple[Node, int], ...]:
    """The types of edges by which nodes are mapped, and how many there are, once each."""
    found = {}
    for node in steps:
        if node.op in ('typed_product', 'of_pairs') or (node.op == 'typed_map' and node.args[0].residency != EDGE):
            types = node.args[-1]
            count = node.attributes['count'] if node.op == 'of_pairs' else node.args[1].shape[0]
            found[id(types), count] = types, count
    return tuple(found.values())


def why_no_types(types: Iterable[tuple[Node, int]], edges: Edges, given: Mapping[str, Tensor]) -> str | None:
    """The reason, if any, for which types cannot be told in a call."""
    for node, count in types:
        if torch.compiler.is_compiling():
            return 'torch compiles'
        try:
            relations_of(edges.of_set(set_of_edges(node)), of_input(node, given), count)
        except ValueError:
            return 'types of edges that are no rows of their table'
    return None


def relations_of(edges: Edges, types: Tensor, count: int) -> Relations:
    """The relations of a call's edges.

    Raises:
        ValueError: If an edge has a type that does not exist.
    """
    return Relations.of(edges.graph(), types, count)


def edges_of_pairs(relations: Relations) -> Edges:
    """The edges of a call from pairs of sources to targets."""
    return walked(relations.from_pairs)


def of_pairs(relations: Relations, x: Tensor) -> Tensor:
    """Rows of sources, ``[sources, *]``, one for each pair, ``[pairs, *]``."""
    return x[:].index_select(0, relations.sources.nodes)


def product_of_pairs(relations: Relations, x: Tensor, table: Tensor, is_of_pairs: bool) -> Tensor:
    """Sources times the matrices of types.

    Args:
        relations: The types of the edges.
        x: Features, ``[sources, in]``, or ``[pairs, in]``.
        table: The matrices, ``[types, in, out]``, or blocks of them, as of
            `pygfuse.ops.typed.typed_product.typed_product`.
        is_of_pairs: Whether `x` has a row for each pair already.

    Returns:
        ``[pairs, out]``.
    """
    pairs = relations.sources
    rows = TypedRows(pairs.bounds, None, None, pairs.count, pairs.padded) if is_of_pairs else gathered(pairs)
    return typed_product(x[:], table, rows)


def product_on_edges(relations: Relations, x: Tensor, table: Tensor, residency: str) -> Tensor:
    """Targets or sources, ``[nodes, in]``, times the matrices of types, ``[types, in, out]``: ``[edges, out]``."""
    pairs = relations.targets if residency == TARGET else relations.sources
    return typed_product(x[:], table, gathered(pairs)).index_select(0, pairs.of_edges)
