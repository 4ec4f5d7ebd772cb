"""Edges that a layer's own ``forward`` makes anew in each call: turned around, chosen by type, with self-loops put in.

Each time they are another tensor, whose edges would be sorted anew. They are recognised by their values, which is less
work; a tensor is held once edges of its values were met before, so that those of a loader are not.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.note import Note
from pygfuse.graph.graph import Graph
from pygfuse.ops.listed import is_list

# sorting fewer is as fast as looking
_FEWEST = 10_000
_SAMPLES = 64
# different edges that one layer makes
_MOST = 16
_NEVER = object()


class RemadeEdges:
    """The edges that a layer has met.

    Example:
        >>> edge_index = torch.randint(100, (2, 20_000))
        >>> edges, made = RemadeEdges(), [edge_index.flip(0) for _ in range(3)]
        >>> [edges.known(one) is made[1] for one in made]
        [False, True, True]
    """

    def __init__(self) -> None:
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
            self._met[shape] = found = edge_index
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
    is_new = type(adjacency) is Tensor and not graph.is_sorted and graph.num_user_edges >= _FEWEST
    # elsewhere the values would be waited for
    if not is_new or adjacency.layout is not torch.strided or adjacency.device.type != 'cpu':
        return graph, adjacency
    if note.remade is None:
        note.remade = RemadeEdges()
    known = note.remade.known(adjacency)
    return (graph if known is adjacency else Graph.of(known, *sizes)), known


def stand_for_themselves(adjacency: Any) -> bool:
    """Whether edges are so few, and lie in memory so, that they are walked as they come: no graph is made of them.

    Example:
        >>> [stand_for_themselves(torch.zeros(2, edges, dtype=torch.int64)) for edges in (100, 20_000)]
        [True, False]
    """
    return type(adjacency) is Tensor and is_list(adjacency) and adjacency.shape[1] < _FEWEST


def _shape_of(edge_index: Tensor) -> Hashable:
    """What tells most edges apart: shape, type, and some of them."""
    some = edge_index[:, :: edge_index.shape[1] // _SAMPLES + 1]
    return edge_index.shape, edge_index.dtype, tuple(some.flatten().tolist())
