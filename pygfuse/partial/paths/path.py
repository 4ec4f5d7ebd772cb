"""Execution paths: the part of a graph that the adjoint of an aggregation needs, and which paths a graph knows.

"Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et al., Theorem 1). Where
the gradient of a target's output is zero, the adjoint of every edge into it is zero. If a loss reads the outputs of few
nodes, the last layer's backward needs the edges into these only, the one before it those into their sources, and so on.

Numbers: an edge into a target without gradient adds zeros, so leaving it out changes no sum, and what is summed is
summed in the same order, piece by piece as in the whole graph's cut. Bit for bit the same are gradients that are summed
edge after edge: those of features that are summed, averaged or maximised with any weights, of edges, and of what
belongs to targets, in rows of at most 256 edges. Longer ones are summed in blocks, which begin elsewhere where edges
are left out; sums through a score, and for parameters, add several edges side by side: these differ by rounding.
Products of a zero gradient with infinite or NaN operands, which are NaN, are left out too.

All this is of a CPU, which walks a path in the pieces of the whole graph. A GPU walks it as a graph of its own
(`ExecutionPath.part`), whose long rows may be cut elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import row_search_of
from pygfuse.graph.graph import Graph

# the distance of a node from which no path leads to where a gradient begins
UNREACHED = 255
# paths made for one graph: the oldest goes
PATHS_LIMIT = 8
# paths are joined if the joint one has at most so many times the edges
JOINS = 1.15


class ExecutionPath:
    """The edges into some of a graph's targets.

    Args:
        graph: The graph.
        active: Which targets, ``[targets]``, uint8.

    Attributes:
        active: Which targets, ``[targets]``, uint8.
        num_edges: Number of edges into them.
    """

    def __init__(self, graph: Graph, active: Tensor) -> None:
        self.active = active
        self.num_edges = _edges_into(graph, active)
        self._part: Graph | None = None
        # what a backend keeps of it: tensors and `pygfuse.partial.paths.rows.PathRows`
        self.kept: dict[str, Any] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes of what has been made of it for a CPU's walks."""
        return self.active.nbytes + sum(made.nbytes for made in self.kept.values())

    def contains(self, active: Tensor) -> bool:
        """Whether every active target is one of the path's.

        Args:
            active: ``[targets]``, uint8.
        """
        return not bool((active > self.active).any())

    def part(self, graph: Graph) -> Graph:
        """The path's edges, with their ids, as a graph of the same nodes: targets that are not active have none."""
        if self._part is None:
            kept = row_search_of(graph.device).kept_rows(graph.csr, self.active)
            self._part = graph.part(*kept, graph.num_sources)
        return self._part


def _edges_into(graph: Graph, active: Tensor) -> int:
    return int((graph.csr.indptr.diff() * active).sum(dtype=torch.int64))


class GraphPaths:
    """The execution paths of one graph, and what was seen of its gradients.

    Attributes:
        prepared: The paths that were expected, by distance.
        distances: What these were made from, or None.
        made: The paths that gradients have shown, the oldest first.
        missed: What paths would have saved since the last one was made, in ns.
        sampled_targets: Targets of edges that are evenly spread, or None before anybody asked.
    """

    def __init__(self) -> None:
        self.prepared: tuple[ExecutionPath, ...] = ()
        self.distances: Tensor | None = None
        self.made: tuple[ExecutionPath, ...] = ()
        self.missed = 0.0
        self.sampled_targets: Tensor | None = None

    def least(self, active: Tensor, most_edges: float) -> ExecutionPath | None:
        """The path of fewest edges that contains all active rows, if there is one.

        Args:
            active: ``[targets]``, uint8.
            most_edges: How many edges it may have.
        """
        for path in sorted((*self.prepared, *self.made), key=lambda path: path.num_edges):
            if path.num_edges > most_edges:
                return None
            if path.contains(active):
                return path
        return None

    def make(self, graph: Graph, active: Tensor, num_edges: int) -> ExecutionPath:
        """A new path with all active rows, and those of similar paths that it then replaces.

        A layer's active rows differ a little from step to step where dropout or a ReLU clears whole rows: after a few
        steps, the path has all rows that may be active.

        Args:
            graph: The graph.
            active: ``[targets]``, uint8.
            num_edges: Number of edges into them.
        """
        kept = []
        for path in self.made:
            joint = path.active | active
            # a path that lies in the new one but is much smaller is that of another layer
            if _edges_into(graph, joint) <= JOINS * min(num_edges, path.num_edges):
                active = joint
            else:
                kept.append(path)
        made = ExecutionPath(graph, active)
        self.made = (*kept[1 - PATHS_LIMIT :], made)
        self.missed = 0.0
        return made


_PATHS = ('execution paths',)


def paths_of(graph: Graph) -> GraphPaths:
    """The paths of a graph, to which more may be added."""
    return graph.memo.get_or_make(_PATHS, GraphPaths)


def known_paths(graph: Graph) -> tuple[ExecutionPath, ...]:
    """The paths of a graph: those that were prepared, then those that gradients have shown.

    Args:
        graph: The graph; with self-loops it is another one than without.
    """
    paths = graph.memo.get(_PATHS)
    return () if paths is None else (*paths.prepared, *paths.made)
