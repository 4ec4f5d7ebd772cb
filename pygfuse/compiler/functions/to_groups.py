"""Reductions of edges to groups of nodes: to the graph in which an edge begins, as the state of a crystal reads them.

Nodes come between: each has the sum of its edges, and each group that of its nodes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch_geometric.utils

from pygfuse.compiler.functions.leaves import FUNCTIONS, degree, scatter
from pygfuse.compiler.ir.values import SOURCE, TARGET
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.handler_names import SOFTMAX_OF_GROUPS, TO_GROUPS
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, Rows
from pygfuse.compiler.symbols.places import BY_OTHERS, Place
from pygfuse.compiler.symbols.symbol import Symbol, handler, made

_of_nodes = FUNCTIONS[torch_geometric.utils.scatter]
# what PyG adds to a softmax's denominator
_TINY = 1e-16
_GATHERED = {'of_sources': SOURCE, 'of_targets': TARGET}


@handler(TO_GROUPS)
def _to_groups(src: Any, groups: Symbol, dim: int, dim_size: Any, reduce: str) -> Symbol:
    """A reduction of values of edges by a number that one of their ends has.

    Args:
        src: The values.
        groups: The number of each edge.
        dim: The dimension of edges.
        dim_size: How many groups there are; None for as many as edges lead from, or to.
        reduce: How they are reduced.

    Raises:
        Refused: If no end has that number, or a group is no sum of its nodes.
    """
    if reduce not in ('sum', 'add', 'mean'):
        raise Refused(f'the reduction {reduce!r} of edges to groups of nodes')
    place, of_nodes, dim_size = _groups(groups, dim_size)
    count = Rows(place.rows)
    total = _of_nodes(scatter(src, place, dim, count), of_nodes, 0, dim_size, 'sum')
    if reduce != 'mean':
        return total
    num_edges = _of_nodes(degree(place, count, src.dtype), of_nodes, 0, dim_size, 'sum')
    return total / num_edges.clamp(min=1).view(-1, *[1] * (total.dim() - 1))


@handler(SOFTMAX_OF_GROUPS)
def _softmax_of_groups(src: Symbol, groups: Symbol, dim: int, num_groups: Any) -> Symbol:
    """A softmax over the edges of which one end has the same number; arguments are those of `_to_groups`."""
    place, of_nodes, num_groups = _groups(groups, num_groups)
    count, inner = Rows(place.rows), (1,) * len(src.node.shape)
    largest = made('detach', scatter(src, place, dim, count, 'max'))
    has_edges = degree(place, count, src.dtype).view(-1, *inner) > 0.5
    # nodes without edges have no part in it
    largest = _of_nodes(torch.where(has_edges, largest, -math.inf), of_nodes, 0, num_groups, 'max')
    shares = (src - _at_edges(largest, of_nodes, place)).exp()
    total = _of_nodes(scatter(shares, place, dim, count), of_nodes, 0, num_groups, 'sum') + _TINY
    return shares / _at_edges(total, of_nodes, place)


def _at_edges(of_groups: Symbol, of_nodes: Symbol, place: Place) -> Symbol:
    """What the group of an end of each edge has."""
    return of_groups.index_select(0, of_nodes).index_select(0, place)


def _groups(groups: Symbol, count: Any) -> tuple[Place, Symbol, Any]:
    """The end of the edges that has their groups' numbers, these of all nodes, and how many groups there are."""
    place = _end_of(groups)
    of_nodes = _of_its_nodes(groups, place)
    if count is None:
        count = REMAKING.get().largest_at(of_nodes, place.made) + 1
    return place, of_nodes, count


def _end_of(groups: Symbol) -> Place:
    """The end of the edges that has the number of each edge."""
    remaking, node = REMAKING.get(), groups.node
    end = _GATHERED.get(node.op, node.residency if node.op == 'input' else None)
    is_number = groups.rows == NUM_EDGES and node.shape == () and not node.dtype.is_floating_point
    if remaking is None or not is_number or groups.is_stacked or end not in (SOURCE, TARGET):
        raise Refused(BY_OTHERS)
    row = remaking.edges.target_row if end == TARGET else 1 - remaking.edges.target_row
    return remaking.edges.end(row, node.attributes.get('end') or remaking.read_at(row))


def _of_its_nodes(groups: Symbol, place: Place) -> Symbol:
    """The numbers of nodes that edges have gathered."""
    node = groups.node if groups.node.op == 'input' else groups.node.args[0]
    residency = SOURCE if REMAKING.get().edges.of_two_sets and not place.is_target else TARGET
    return Symbol(node if node.residency == residency else dataclasses.replace(node, residency=residency), place.rows)
