"""Edges that a layer's own ``forward`` makes anew in each call: turned around, chosen by type, with self-loops put in.

Each time they are another tensor, whose edges would be sorted anew. They are recognised by their values, which is less
work; a tensor is held once edges of its values were met before, so that those of a loader are not.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.note import Note
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph

# sorting fewer is as fast as looking
FEWEST = 10_000
_SAMPLES = 64
# different edges that one layer makes
_MOST = 64
_NEVER = object()


class RemadeEdges:
    """The edges that a layer has met.

    Args:
        copies: Whether memory of edges may be written to without notice, so that copies are held.

    Example:
        >>> edge_index = torch.randint(100, (2, 20_000))
        >>> edges, made = RemadeEdges(), [edge_index.flip(0) for _ in range(3)]
        >>> [edges.known(one) is made[1] for one in made]
        [False, True, True]
    """

    def __init__(self, copies: bool = False) -> None:
        self._copies = copies
        # None for those met once
        self._met: dict[Hashable, Any] = {}

    def known(self, edge_index: Tensor) -> Tensor:
        """A tensor of the same values that was given before, if there is one that lives; else the same tensor."""
        shape = _shape_of(edge_index)
        found = self._met.get(shape, _NEVER)
        if found is _NEVER:
            # other threads may be here, too
            for oldest in list(self._met)[: 1 - _MOST]:
                self._met.pop(oldest, None)
            self._met[shape] = None
            return edge_index
        if found is None or not torch.equal(found, edge_index):
            self._met[shape] = found = edge_index.clone() if self._copies else edge_index
        return found


def graph_of(note: Note, adjacency: Any, flow: str, num_sources: int, num_targets: int) -> tuple[Graph, Any]:
    """The graph of a call's edges, and the adjacency that it is kept with: one of the same values, perhaps.

    Args:
        note: That of a compiled layer.
        adjacency: What the layer was given.
        flow: PyG's flow.
        num_sources, num_targets: Numbers of nodes.
    """
    sizes = None, flow, num_sources, num_targets
    graph = Graph.of(adjacency, *sizes)
    if not _are_looked_at(adjacency, graph):
        return graph, adjacency
    if note.remade is None:
        note.remade = RemadeEdges()
    known = note.remade.known(adjacency)
    return (graph if known is adjacency else Graph.of(known, *sizes)), known


# those that operators meet which torch has traced, as none of them knows its layer
_of_traces: weakref.WeakValueDictionary[str, RemadeEdges] = weakref.WeakValueDictionary()


def of_traces() -> RemadeEdges:
    """The edges that operators in traces have met: known as long as somebody holds this, as layers in traces do."""
    return _of_traces.setdefault('all', RemadeEdges(copies=True))


def graph_in_trace(edge_index: Tensor, flow: str, num_sources: int, num_targets: int) -> Graph:
    """The graph of the edges that an operator was given: of a tensor of the same values, if traces have met one.

    Args:
        edge_index: The edges, or the token of a graph.
        flow: PyG's flow.
        num_sources, num_targets: Numbers of nodes.
    """
    sizes = None, flow, num_sources, num_targets
    graph, met = Graph.of(edge_index, *sizes), _of_traces.get('all')
    if met is None or not _are_looked_at(edge_index, graph):
        return graph
    key = 'graph of the same edges', *sizes
    found = ATTACHED.get(edge_index, key)
    if found is None:
        state, known = state_of(edge_index), met.known(edge_index)
        if known is edge_index:
            return graph
        found = ATTACHED.keep(edge_index, key, state, Graph.of(known, *sizes), held=edge_index.detach())
    return found


def _are_looked_at(adjacency: Any, graph: Graph) -> bool:
    is_new = type(adjacency) is Tensor and not graph.is_sorted and graph.num_user_edges >= FEWEST
    # elsewhere the values would be waited for
    return is_new and adjacency.layout is torch.strided and adjacency.device.type == 'cpu'


def _shape_of(edge_index: Tensor) -> Hashable:
    """What tells most edges apart: shape, type, and some of them."""
    some = edge_index[:, :: edge_index.shape[1] // _SAMPLES + 1]
    return edge_index.shape, edge_index.dtype, tuple(some.flatten().tolist())
