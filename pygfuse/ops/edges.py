"""The edges of a call, as operators take them."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.graph import Graph
from pygfuse.graph.remade_edges import graph_in_trace


@dataclasses.dataclass(slots=True)
class Edges:
    """The edges of a call, as an operator takes them.

    Attributes:
        token: The ``edge_index``, or the token of a `Graph`.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        flow: PyG's flow.
        loops: None, or the number of nodes that get exactly one self-loop.
        walked: The graph itself where it is known, else None.
        others: Other sets of edges between the same nodes, which a plan is along, too.

    Example:
        >>> Edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_sources=3, num_targets=3).graph()
        Graph(num_sources=3, num_targets=3, num_user_edges=3)
    """

    token: Tensor
    num_sources: int
    num_targets: int
    flow: str = 'source_to_target'
    loops: int | None = None
    walked: Graph | None = dataclasses.field(default=None, compare=False, repr=False)
    others: tuple[Edges, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def of_set(self, number: int) -> Edges:
        """The edges of a set: these of 0, and others by their place behind them."""
        return self.others[number - 1] if number else self

    @property
    def num_user_edges(self) -> int:
        """Number of edges that the user passed."""
        return self.token.shape[1] if self.walked is None else self.walked.num_user_edges

    @property
    def num_edges(self) -> int:
        """Number of edges that are walked; while torch compiles, of those that the user passed."""
        return self.token.shape[1] if self.walked is None else self.walked.num_edges

    def reversed(self) -> Edges:
        """The edges from targets to sources; of a graph that is known errors are those of `Graph.reversed`.

        Example:
            >>> Edges(torch.tensor([[0, 1, 2], [1, 1, 0]]), num_sources=3, num_targets=2).reversed()
            Edges(token=tensor([[0, 1, 2],
                    [1, 1, 0]]), num_sources=2, num_targets=3, flow='target_to_source', loops=None)
        """
        flow = FLOWS[1 - FLOWS.index(self.flow)]
        walked = None if self.walked is None else self.walked.reversed()
        token = self.token if walked is None else walked.token
        return Edges(token, self.num_targets, self.num_sources, flow, self.loops, walked)

    def graph(self) -> Graph:
        """The graph, from the cache if it was seen before."""
        if self.walked is not None:
            return self.walked
        graph = graph_in_trace(self.token, self.flow, self.num_sources, self.num_targets)
        return graph if self.loops is None else graph.with_self_loops(self.loops)
