"""The different pairs of a relation and a node among edges, by a table of all there could be: nothing is sorted."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel

# entries of the table for an edge, and of the smallest one: beyond, a sort of the edges' pairs takes less
_MOST_ENTRIES, _LEAST_TABLE = 8, 2**16


def _find(part, types, ends, num_relations, num_nodes, table, nodes, of_edges, bounds):
    """Marks the pairs that occur, numbers them in their order, and tells each edge its pair's number."""
    edges = len(types)
    for entry in range(num_relations * num_nodes):
        table[entry] = 0
    for edge in range(edges):
        table[types[edge] * num_nodes + ends[edge]] = 1
    count = 0
    for relation in range(num_relations):
        bounds[relation] = count
        for node in range(num_nodes):
            entry = relation * num_nodes + node
            if table[entry]:
                table[entry] = count
                nodes[count] = node
                count += 1
    bounds[num_relations] = count
    for edge in range(edges):
        of_edges[edge] = table[types[edge] * num_nodes + ends[edge]]


find_pairs = Kernel(_find, 'the pairs of relations and nodes')


def fits_table(num_edges: int, num_relations: int, num_nodes: int) -> bool:
    """Whether a table of all pairs is small beside the edges."""
    return num_relations * num_nodes <= max(_LEAST_TABLE, _MOST_ENTRIES * num_edges)


def pairs(types: Tensor, ends: Tensor, num_relations: int, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each relation's pairs begin, and the end; the node of each; the pair of each edge.

    Args:
        types: The relation of each edge, ``[edges]``, int64; nobody checks here that it exists.
        ends: A node of each edge, ``[edges]``, int64; the same.
        num_relations: How many relations there are; with `num_nodes`, what `fits_table`.
        num_nodes: How many nodes there are.

    Returns:
        ``[num_relations + 1]``, ``[pairs]`` and ``[edges]``, int64.

    Example:
        >>> pairs(torch.tensor([0, 1, 0]), torch.tensor([2, 2, 1]), 2, 3)
        (tensor([0, 2, 3]), tensor([1, 2, 2]), tensor([1, 2, 0]))
    """
    entries, edges = num_relations * num_nodes, len(types)
    table = torch.empty(entries, dtype=torch.int64 if edges >= 2**31 else torch.int32)
    nodes, of_edges = types.new_empty(min(edges, entries)), types.new_empty(edges)
    bounds = types.new_empty(num_relations + 1)
    given = types.contiguous(), ends.contiguous(), num_relations, num_nodes
    find_pairs(1, *given, table, nodes, of_edges, bounds, threads=1)
    count = int(bounds[-1])
    # of memory that is mostly not used nothing is kept
    return bounds, nodes[:count] if 2 * count > len(nodes) else nodes[:count].clone(), of_edges
