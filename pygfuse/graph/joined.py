"""The edges of a heterogeneous graph, several adjacencies between several kinds of nodes, as those of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.memo import Memo
from pygfuse.graph import adjacency as adjacencies
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph
from pygfuse.graph.relations import Relations


class Part(NamedTuple):
    """One of the adjacencies.

    Attributes:
        adjacency: Any adjacency.
        num_sources: Number of its sources.
        num_targets: Number of its targets.
        first_source: The number of its first source among all nodes.
        first_target: The same of its first target.
    """

    adjacency: Any
    num_sources: int
    num_targets: int
    first_source: int
    first_target: int


class _Kept(NamedTuple):
    states: tuple[Any, ...]
    graph: Graph
    relations: Relations
    # while this memory lives, no other tensor has its address, which is part of the states
    held: tuple[Any, ...]


def joined(parts: Sequence[Part], num_nodes: int) -> tuple[Graph, Relations]:
    """All edges as those of one graph, each adjacency a relation; made once as long as none of them is written to.

    Args:
        parts: The adjacencies.
        num_nodes: How many nodes there are of all kinds.

    Raises:
        ValueError: If an adjacency names a node that is not there.

    Example:
        >>> likes, knows = torch.tensor([[0, 1], [0, 0]]), torch.tensor([[0], [1]])
        >>> graph, relations = joined([Part(likes, 2, 1, 0, 2), Part(knows, 2, 2, 0, 0)], 3)
        >>> graph.coo(), relations.types
        (tensor([[0, 1, 0],
                [2, 2, 1]]), tensor([0, 0, 1]))
    """
    first, *others = (part.adjacency for part in parts)
    key = ('joined', num_nodes, tuple(part[1:] for part in parts))
    states = tuple(state_of(other) for other in others)
    memo = ATTACHED.get(first, ('joined',))
    found = None if memo is None else memo.get(key)
    if found is not None and found.states == states:
        return found.graph, found.relations
    state = state_of(first)
    with torch.inference_mode(False):
        edge_index, edge_type = _edges(parts)
        graph = Graph.of(edge_index, (num_nodes, num_nodes))
        relations = Relations(graph, edge_type, len(parts))
    if None not in states and state is not None:
        memo = ATTACHED.keep(first, ('joined',), state, memo or Memo(edge_index.device), held=_memory(first))
        memo.put(key, _Kept(states, graph, relations, tuple(_memory(other) for other in others)))
    return graph, relations


def _memory(adjacency: Any) -> Any:
    """The memory of an adjacency's indices, without the adjacency itself."""
    return adjacencies.read(adjacency).indices


def _edges(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """All edges, and the number of the adjacency of each."""
    found = []
    for part in parts:
        graph = Graph.of(part.adjacency, (part.num_sources, part.num_targets))
        edges = graph.unsorted()
        if edges is None:
            pair = graph.coo().long()
            sources, targets = pair[1 - graph.target_row], pair[graph.target_row]
        else:
            sources, targets = edges.index, edges.rows
        found.append(torch.stack([sources + part.first_source, targets + part.first_target]))
    counts = torch.tensor([pair.shape[1] for pair in found], device=found[0].device)
    return torch.cat(found, dim=1), torch.arange(len(found), device=counts.device).repeat_interleave(counts)
