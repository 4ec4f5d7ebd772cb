"""Which paths to expect for an ``edge_index``: layers are given this tensor and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import UNREACHED, ExecutionPath, paths_of
from pygfuse.partial.paths.policy import is_captured

_DISTANCES = ('distances',)


def attach_distances(edge_index: Tensor, distances: Callable[[], Tensor | None]) -> None:
    """Lets backward passes over these edges know which paths to expect.

    Args:
        edge_index: The edges, ``[2, E]``.
        distances: Gives, for each target, how many layers before the last one it first has a gradient, ``[targets]``,
            uint8, 255 for never; or None. A path for each number is made when a gradient first fits it.
    """
    ATTACHED.keep(edge_index, _DISTANCES, state_of(edge_index), functools.cache(distances))


def are_attached(edge_index: Tensor) -> bool:
    """Whether `attach_distances` was called for this tensor.

    Args:
        edge_index: The edges, ``[2, E]``.
    """
    return ATTACHED.get(edge_index, _DISTANCES) is not None


def prepare(graph: Graph, edge_index: Tensor) -> None:
    """Gives a graph the paths that belong to the ``edge_index`` it was made from, if there are any.

    Args:
        graph: The graph.
        edge_index: The edges, ``[2, E]``.
    """
    attached = ATTACHED.get(edge_index, _DISTANCES)
    if attached is None or is_captured(graph):
        return
    paths, distances = paths_of(graph), attached()
    if paths.distances is distances or distances is None or distances.numel() != graph.num_targets:
        return
    steps = [step for step in distances.unique().tolist() if step != UNREACHED]
    paths.prepared = tuple(ExecutionPath(graph, (distances <= step).to(torch.uint8)) for step in steps)
    paths.distances = distances
