"""Edges of several relations: the different pairs of a relation and a node that they have at either end.

What belongs to a relation and a node (a neighbour as one relation maps it, the mean of one relation's neighbours) has a
row for each pair that occurs, never one for each edge or for each relation times each node.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import torch
from torch import Tensor

from pygfuse._lib.backends import pairs_of
from pygfuse._lib.identity_cache import IdentityCache
from pygfuse._lib.memo import Memo
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.graph import Graph
from pygfuse.graph.padded_types import PaddedTypes, padded_types


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a relation and a node at one end of the edges, ordered by relation, then node.

    Attributes:
        bounds: Where each relation's pairs begin, and the end.
        nodes: The node of each pair, int64.
        of_edges: The pair of each edge, by edge id, int64.
    """

    bounds: tuple[int, ...]
    nodes: Tensor
    of_edges: Tensor

    @property
    def count(self) -> int:
        """How many there are."""
        return self.bounds[-1]

    @functools.cached_property
    def padded(self) -> PaddedTypes:
        """Relations with few pairs in groups."""
        return padded_types(self.bounds, self.nodes.device)

    def by_relation(self) -> tuple[Tensor, ...]:
        """The nodes of each relation's pairs."""
        return self.nodes.split([end - begin for begin, end in itertools.pairwise(self.bounds)])

    @functools.cached_property
    def types(self) -> Tensor:
        """The relation of each pair, int64."""
        with torch.inference_mode(False):
            sizes = torch.tensor(self.bounds, device=self.nodes.device).diff()
            return torch.arange(len(sizes), device=self.nodes.device).repeat_interleave(sizes, output_size=self.count)


class Relations:
    """The relations of a graph's edges.

    Make one with `Relations.of`. Its parts are built when first asked for, from the graph.

    Attributes:
        types: The relation of each edge, by edge id, int64.
        num_relations: How many relations there are.

    Example:
        >>> graph = Graph.of(torch.tensor([[0, 1, 1], [2, 2, 2]]))
        >>> relations = Relations.of(graph, torch.tensor([0, 1, 0]), 2)
        >>> relations.sources.nodes, relations.sources.bounds
        (tensor([0, 1, 1]), (0, 2, 3))
        >>> relations.targets.nodes, relations.targets.of_edges
        (tensor([2, 2]), tensor([0, 1, 0]))
    """

    def __init__(self, graph: Graph, types: Tensor, num_relations: int, memo: Memo | None = None) -> None:
        self._graph = graph
        self.types = types
        self.num_relations = num_relations
        self._memo = Memo(types.device) if memo is None else memo

    @staticmethod
    def of(graph: Graph, edge_type: Tensor, num_relations: int) -> Relations:
        """The relations of a graph; the second call with the same tensor, not written to, builds nothing again.

        Args:
            graph: The edges.
            edge_type: The relation of each edge, ``[edges]``, integers.
            num_relations: How many there are.

        Raises:
            ValueError: If an edge has a relation that does not exist.
        """
        cache = graph.memo.get_or_make(('relations',), lambda: IdentityCache(state_of))
        key = ('relations', num_relations)
        # nothing that the graph's memo holds may hold the graph
        kept = cache.get(edge_type, key)
        if kept is None:
            state = state_of(edge_type)
            with torch.inference_mode(False):
                types = edge_type.detach().to(torch.int64, copy=True)
                _check_types(types, num_relations)
            # the alias keeps the address from being that of another tensor
            kept = cache.keep(edge_type, key, state, (types, Memo(types.device)), held=edge_type.detach())
        types, memo = kept
        return Relations(graph, types, num_relations, memo)

    @property
    def sources(self) -> Pairs:
        """The pairs of a relation and a source."""
        return self._memo.get_or_make(('sources',), lambda: self._pairs(1 - self._graph.target_row))

    @property
    def targets(self) -> Pairs:
        """The pairs of a relation and a target."""
        return self._memo.get_or_make(('targets',), lambda: self._pairs(self._graph.target_row))

    @property
    def from_pairs(self) -> Graph:
        """The edges from pairs of sources to targets, with the ids that they have in the graph."""
        return self._memo.get_or_make(('from pairs',), lambda: self._between(self.sources, None))

    @property
    def to_pairs(self) -> Graph:
        """The edges from sources to pairs of targets."""
        return self._memo.get_or_make(('to pairs',), lambda: self._between(None, self.targets))

    @property
    def between_pairs(self) -> Graph:
        """The edges from pairs of sources to pairs of targets."""
        return self._memo.get_or_make(('between pairs',), lambda: self._between(self.sources, self.targets))

    @property
    def sums(self) -> Graph:
        """An edge from each pair of a target to this target."""
        return self._memo.get_or_make(('sums',), self._sums)

    def shares(self, dtype: torch.dtype) -> Tensor:
        """For each edge, 1 by the number of those of its relation into its target, ``[edges, 1]``."""

        def made() -> Tensor:
            pairs = self.targets
            counts = torch.bincount(pairs.of_edges, minlength=pairs.count)
            return counts.to(dtype).reciprocal()[pairs.of_edges].unsqueeze(1)

        return self._memo.get_or_make(('shares', dtype), made)

    def _pairs(self, row: int) -> Pairs:
        graph = self._graph
        ends, size = graph.ends()[row], max(graph.num_sources, graph.num_targets)
        kernels = pairs_of(ends.device)
        if kernels is not None and kernels.fits_table(len(ends), self.num_relations, size):
            bounds, nodes, of_edges = kernels.pairs(self.types, ends, self.num_relations, size)
            return Pairs(tuple(bounds.tolist()), nodes, of_edges)
        numbers, of_edges = torch.unique(self.types * size + ends, return_inverse=True)
        starts = torch.arange(self.num_relations + 1, device=ends.device) * size
        bounds = torch.searchsorted(numbers, starts)
        return Pairs(tuple(bounds.tolist()), numbers % max(size, 1), of_edges)

    def _between(self, sources: Pairs | None, targets: Pairs | None) -> Graph:
        graph = self._graph
        pair = graph.ends()
        first = pair[1 - graph.target_row] if sources is None else sources.of_edges
        second = pair[graph.target_row] if targets is None else targets.of_edges
        sizes = (
            graph.num_sources if sources is None else sources.count,
            graph.num_targets if targets is None else targets.count,
        )
        return Graph.of(torch.stack([first, second]), sizes)

    def _sums(self) -> Graph:
        nodes = self.targets.nodes
        ends = torch.stack([torch.arange(len(nodes), device=nodes.device), nodes])
        return Graph.of(ends, (len(nodes), self._graph.num_targets))


def _check_types(types: Tensor, num_relations: int) -> None:
    if not types.numel():
        return
    least, most = types.aminmax()
    if least < 0 or most >= num_relations:
        place = int(((types < 0) | (types >= num_relations)).nonzero()[0])
        raise ValueError(
            f"Expected 'edge_type' to hold relations 0 to {num_relations - 1} (got {int(types[place])} at position "
            f'{place})'
        )
