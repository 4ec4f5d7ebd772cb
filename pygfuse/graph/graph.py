"""The graph that kernels walk: edges by target (CSR), by source (CSC), and the way from one to the other.

A `Graph` is made from whatever PyG accepts as an adjacency, knows nothing of features and layers, and never
changes. Its edges are sorted when first asked for (`pygfuse.graph.orders`). `Graph.of` keeps it while the adjacency
lives and is not written to, so that a layer may ask in every forward.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import why_not
from pygfuse._lib.memo import Memo
from pygfuse._lib.streams import makers_on
from pygfuse.graph import adjacency as adjacencies
from pygfuse.graph.adjacency import EDGE_INDEX, Adjacency
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.csr import Csr
from pygfuse.graph.orders import EdgeOrders
from pygfuse.graph.sizes import given_sizes, sizes_of
from pygfuse.graph.tokens import alive, new_token, of_token


class Graph(EdgeOrders):
    """A directed graph from sources to targets, possibly bipartite, with repeats and self-loops as they come.

    Make one with `Graph.of`. Edges have ids: the places they had in the adjacency it was made from; tensors
    of one row an edge are indexed by them.

    Attributes:
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        num_user_edges: Number of edges of the adjacency, E.
        num_loops: None, or the number of self-loops that `with_self_loops` put in.
        num_edge_ids: Length of a tensor of one row an edge: E, and the number of self-loops put in.
        layout: What it was made from: ``'edge_index'``, ``'coo'``, ``'csr'``, ``'csc'`` or
            ``'SparseTensor'``.
        flow: ``'source_to_target'`` or ``'target_to_source'``.
        index_dtype: Type of all its index tensors: int32 where every size and id fits, else int64.
        reused: Whether it is expected to be walked again after one call, so that sorting it pays.

    Example:
        >>> graph = Graph.of(torch.tensor([[0, 1, 2], [1, 0, 1]]))
        >>> graph.csr.indptr
        tensor([0, 1, 3, 3], dtype=torch.int32)
        >>> graph.csr.index, graph.csr.edge_id
        (tensor([1, 0, 2], dtype=torch.int32), tensor([1, 0, 2], dtype=torch.int32))
        >>> graph.with_self_loops().csr.index
        tensor([1, 0, 0, 2, 1, 2], dtype=torch.int32)
    """

    def __init__(
        self,
        origin: Adjacency | Csr,
        like: Adjacency | Graph,
        num_sources: int,
        num_targets: int,
        num_loops: int | None = None,
    ) -> None:
        super().__init__(origin, like, num_sources, num_targets, num_loops)
        self.reused = True
        # where Graph.of finds this graph again
        self._lookup: tuple[weakref.ref, Hashable] | None = None
        self._token: weakref.ref | None = None
        # what layers and walks derive from it
        self.memo = Memo(self.device)

    @staticmethod
    def of(
        adjacency: Any,
        size: tuple[int | None, int | None] | None = None,
        flow: str = 'source_to_target',
        num_sources: int | None = None,
        num_targets: int | None = None,
    ) -> Graph:
        """The graph of an adjacency; the second call with the same one returns the same graph and costs nothing.

        After a write to the adjacency the graph is made anew. Writes that torch does not count are not noticed: through
        ``edge_index.numpy()``, through ``edge_index.data``, or by another process that shares the memory. After one,
        hand over a clone.

        Args:
            adjacency: ``edge_index`` [2, E] of integers, ``EdgeIndex``, ``torch.sparse`` COO, CSR or CSC
                or ``torch_sparse.SparseTensor`` [targets, sources], a `Graph` or the token of one.
            size: ``(num_sources, num_targets)``, each of which may be None.
            flow: Whether row 0 of an ``edge_index`` holds the sources (``'source_to_target'``) or the
                targets.
            num_sources: Number of sources, where `size` does not give it.
            num_targets: Number of targets, where `size` does not give it.

        Returns:
            The graph. Sizes that nobody gives follow from the largest node; without any, sources and targets
            are the same nodes.

        Raises:
            ValueError: If the adjacency has a wrong shape, type or device or sizes contradict each other.
                Whether each edge names existing nodes is checked when the edges are first looked at.

        Example:
            >>> edge_index = torch.tensor([[0, 1, 2], [1, 0, 1]])
            >>> Graph.of(edge_index) is Graph.of(edge_index)
            True
        """
        key = ('graph', None if size is None else tuple(size), flow, num_sources, num_targets)
        found = ATTACHED.get(adjacency, key)
        return found if found is not None else _make(adjacency, key)

    @staticmethod
    def keep_regular(
        edge_index: Tensor, degree: int, num_sources: int, num_targets: int, flow: str = 'source_to_target'
    ) -> Graph:
        """The graph of an ``edge_index`` that lists `degree` edges of target 0, then as many of target 1, and so on.

        Nothing is sorted and nothing checked: its maker answers for it. `of` finds it with these sizes from now on.

        Args:
            edge_index: ``[2, degree * num_targets]``.
            degree: Edges into each target.
            num_sources: Number of sources.
            num_targets: Number of targets.
            flow: As in `of`.

        Example:
            >>> edge_index = torch.tensor([[1, 2, 0, 2], [0, 0, 1, 1]])
            >>> graph = Graph.keep_regular(edge_index, 2, num_sources=3, num_targets=2)
            >>> Graph.of(edge_index, num_sources=3, num_targets=2) is graph
            True
        """
        graph = Graph.of(edge_index, None, flow, num_sources, num_targets)
        if graph._origin is not None:
            indptr = torch.arange(num_targets + 1, dtype=graph.index_dtype, device=edge_index.device) * degree
            index = edge_index[1 - graph.target_row].to(graph.index_dtype, copy=True)
            graph._csr, graph._origin = Csr(indptr, index, None), None
            graph._made('csr')
        return graph

    def with_self_loops(self, num_nodes: int | None = None) -> Graph:
        """The graph with exactly one edge (v, v) for each node v < num_nodes: PyG's remove and add of self-loops.

        Existing edges (v, v) are dropped. The new one of v ends v's row, and its id is E + v. For
        ``torch.sparse`` adjacencies repeated edges become one (with the id of the first), because PyG's own
        way coalesces them.

        Args:
            num_nodes: Number of loops; by default the smaller of the numbers of sources and targets.

        Returns:
            The graph with loops: the same object in every call with the same number.

        Raises:
            ValueError: If there are fewer sources or targets than loops, or the graph has other loops put in.
        """
        smaller = min(self.num_sources, self.num_targets)
        loops = smaller if num_nodes is None else num_nodes
        if loops == self.num_loops:
            return self
        if not 0 <= loops <= smaller:
            raise ValueError(
                f"Expected 'num_nodes' to be between 0 and {smaller}, the smaller of {self.num_sources} sources "
                f'and {self.num_targets} targets (got {loops})'
            )
        if self.num_loops is not None:
            raise ValueError(f'The graph already has {self.num_loops} self-loops put in; take the graph it came from')
        # straight from the adjacency while the rows without loops were not needed
        return self.memo.get_or_make(
            ('with self-loops', loops),
            lambda: Graph(self._origin or self.csr, self, self.num_sources, self.num_targets, loops),
        )

    def part(self, indptr: Tensor, index: Tensor, edge_id: Tensor, num_sources: int) -> Graph:
        """Some of the edges, between other nodes, with the ids that they have here.

        Nothing is checked: its maker answers for it.

        Args:
            indptr: Where the edges of each target begin, and the end, of this graph's index type.
            index: The source of each edge.
            edge_id: The id of each edge.
            num_sources: Number of sources.
        """
        made = Graph(Csr(indptr, index, edge_id), self, num_sources, indptr.numel() - 1)
        made._csr, made._origin = made._origin, None
        made._made('csr')
        made.num_user_edges, made.num_edge_ids = index.numel(), self.num_edge_ids
        made.index_dtype = self.index_dtype
        return made

    def reversed(self) -> Graph:
        """The edges from targets to sources, with the ids that they have here: the same graph in every call.

        Raises:
            ValueError: If an edge names a node that does not exist.
            RuntimeError: If the adjacency was written to before the edges were first looked at.

        Example:
            >>> Graph.of(torch.tensor([[0, 1, 2], [1, 0, 1]])).reversed().csr.index
            tensor([1, 0, 1], dtype=torch.int32)
        """

        def made() -> Graph:
            by_source = self.csc
            return self.part(by_source.indptr, by_source.index, by_source.edge_id, self.num_targets)

        return self.memo.get_or_make('reversed', made)

    def is_of(self, adjacency: Any) -> bool:
        """Whether `of` just found this graph for a plain ``edge_index``, which may stand for it as `token` does."""
        return self._lookup is not None and self._lookup[0]() is adjacency

    @property
    def token(self) -> Tensor:
        """A tensor that stands for this graph where only tensors can go: ``Graph.of(token, ...)`` is this graph.

        For a plain ``edge_index`` that still lives unchanged it is this ``edge_index``, and ``Graph.of``
        wants the same sizes and flow. Else it is a small tensor, [2], int64, that keeps the graph alive and
        may be copied; the other arguments of ``Graph.of`` do not matter then.
        """
        if self._lookup is not None:
            reference, key = self._lookup
            tensor = alive(reference)
            if tensor is not None and ATTACHED.get(tensor, key) is self:
                return tensor
        token = None if self._token is None else alive(self._token)
        if token is None:
            token = new_token(self)
            self._token = weakref.ref(token)
        return token

    def to(self, device: torch.device | str) -> Graph:
        """The graph on a device: itself, or a copy of its rows.

        Raises:
            ValueError: If the device has no kernels.
        """
        device = torch.device(device)
        reason = why_not(device.type)
        if reason is None and device.type == 'cuda' and not torch.cuda.is_available():
            reason = 'torch sees no GPU'
        if device.type == 'cuda' and device.index is None and reason is None:
            device = torch.device('cuda', torch.cuda.current_device())
        if device == self.device:
            return self
        if reason is not None:
            raise ValueError(f"Expected 'device' to have kernels (got '{device}': {reason})")
        moved = copy.copy(self)
        moved._csr, moved._csc = self.csr.to(device), None if self._csc is None else self._csc.to(device)
        moved._coo = moved._place_in_csc = None
        moved._keep_on(device)
        return moved

    def __getstate__(self) -> dict[str, Any]:
        self.csr  # noqa: B018  the rows stand for the user's adjacency, which does not travel
        return {**self.__dict__, '_origin': None, '_lookup': None, '_token': None, '_makers': None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keep_on(self.device)

    def _keep_on(self, device: torch.device) -> None:
        """Begins to keep what is derived of rows that are there, on their device."""
        self.memo, self._makers = Memo(device), makers_on(device)
        self._made('csr')
        self._made('csc')

    def __repr__(self) -> str:
        loops = '' if self.num_loops is None else f', num_loops={self.num_loops}'
        return (
            f'Graph(num_sources={self.num_sources}, num_targets={self.num_targets}, '
            f'num_user_edges={self.num_user_edges}{loops})'
        )


def _make(adjacency: Any, key: tuple) -> Graph:
    if isinstance(adjacency, Graph):
        return adjacency
    found = of_token(adjacency)
    if found is not None:
        return found
    _, size, flow, num_sources, num_targets = key
    # before reading: a write in between must not go unnoticed
    state = adjacencies.state_of(adjacency)
    origin = adjacencies.read(adjacency, flow)
    given = given_sizes(size, num_sources, num_targets)
    graph = Graph(origin, origin, *sizes_of(origin, *given))
    if state is None:
        return graph
    if type(adjacency) is Tensor and origin.layout == EDGE_INDEX:
        graph._lookup = (weakref.ref(adjacency), key)
    # the index tensors share the user's memory: while they live, another tensor cannot take its address
    return ATTACHED.keep(adjacency, key, state, graph, held=origin.indices)
