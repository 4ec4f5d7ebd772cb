"""The graph that kernels walk: edges by target (CSR), by source (CSC), and the way from one to the other.

A `Graph` is made from whatever PyG accepts as an adjacency, knows nothing of features and layers, and never
changes. Its parts are built when first asked for. `Graph.of` keeps it while the adjacency lives and is not
written to, so that a layer may ask in every forward.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import sorting_of, why_not
from pygfuse._lib.memo import Memo
from pygfuse.graph import adjacency as adjacencies
from pygfuse.graph.adjacency import EDGE_INDEX, Adjacency
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.build import build, check_nodes
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.graph.sizes import given_sizes, sizes_of
from pygfuse.graph.tokens import alive, new_token, of_token

# the largest number that is kept as an int32
INT32_LIMIT = 2**31 - 1


class Graph:
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
        self.num_sources = num_sources
        self.num_targets = num_targets
        self.num_loops = num_loops
        self.num_user_edges = like.num_user_edges
        self.num_edge_ids = like.num_user_edges + (num_loops or 0)
        self.layout = like.layout
        self.flow = like.flow
        self.user_dtype = like.user_dtype
        self.target_row = like.target_row
        largest = max(num_sources, num_targets, self.num_edge_ids)
        self.index_dtype = torch.int32 if largest <= INT32_LIMIT else torch.int64
        # what the rows are built from; dropped once they are, so that the user's memory is not held
        self._origin: Adjacency | Csr | None = origin
        self.reused = True
        self._csr: Csr | None = None
        self._csc: Csr | None = None
        self._coo: Coo | None = None
        self._place_in_csc: Tensor | None = None
        # where Graph.of finds this graph again
        self._lookup: tuple[weakref.ref, Hashable] | None = None
        self._token: weakref.ref | None = None
        # what layers and walks derive from it
        self.memo = Memo()

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
        return graph

    @property
    def csr(self) -> Csr:
        """The edges by target: row t holds the sources of t's edges, in the order of their ids.

        Raises:
            ValueError: If an edge names a node that does not exist.
            RuntimeError: If the adjacency was written to before the edges were first looked at.
        """
        # no lock: two threads may both build, to the same numbers, and a forked child inherits nothing closed
        origin = self._origin
        if origin is not None:
            self._csr, self._origin, self._coo = build(self, origin), None, None
        return self._csr

    @property
    def is_sorted(self) -> bool:
        """Whether the edges by target are there already."""
        return self._origin is None

    def unsorted(self) -> Coo | None:
        """The edges in the order of their ids; None where they were sorted before or have self-loops put in.

        Raises:
            ValueError: If an edge names a node that does not exist.
            RuntimeError: If the adjacency was written to before the edges were first looked at.
        """
        origin = self._origin
        if self._coo is not None or not isinstance(origin, Adjacency) or self.num_loops is not None:
            return self._coo if origin is not None else None
        if origin.layout != EDGE_INDEX:
            return None
        targets, sources = origin.targets_and_sources()
        check_nodes(self, targets, sources)
        self._coo = Coo(targets, sources, self.num_targets, self.num_sources)
        return self._coo

    @property
    def csc(self) -> Csr:
        """The edges by source: row s holds the targets of s's edges in ascending order, and `position`."""
        if self._csc is None:
            by_target = self.csr
            pointer, targets, position = sorting_of(self.device).transpose(
                by_target.indptr, by_target.index, self.num_sources
            )
            self._csc = Csr(pointer, targets, by_target.edge_id, position)
        return self._csc

    @property
    def place_in_csc(self) -> Tensor:
        """For each edge by target, its place among the edges by source: the inverse of ``csc.position``."""
        if self._place_in_csc is None:
            position = self.csc.position
            places = torch.empty_like(position)
            places[position] = torch.arange(position.numel(), dtype=position.dtype, device=position.device)
            self._place_in_csc = places
        return self._place_in_csc

    @property
    def num_edges(self) -> int:
        """Number of edges walked, self-loops included."""
        return self.num_user_edges if self.num_loops is None else self.csr.num_edges

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        origin = self._origin
        if isinstance(origin, Adjacency):
            return origin.indices[0].device
        return (origin or self._csr).index.device

    @property
    def degree(self) -> Tensor:
        """Number of edges into each target, [num_targets], of the graph's index type."""
        return self.csr.indptr.diff()

    @property
    def max_degree(self) -> int:
        """The largest number of edges into one target."""
        return self.csr.max_degree

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
        made.num_user_edges, made.num_edge_ids = index.numel(), self.num_edge_ids
        made.index_dtype = self.index_dtype
        return made

    def coo(self) -> Tensor:
        """The edges as two rows, in the order and with the orientation of PyG.

        For a plain ``edge_index`` that is the user's order, for `with_self_loops` the remaining edges in the
        user's order and then the loops, row 0 holding what the user's row 0 held. For sparse adjacencies row
        0 holds targets, and with loops the edges are sorted by target, then source.

        Returns:
            ``[2, num_edges]``, of the type of the user's indices (int64 with self-loops, as in PyG).
        """
        places = self._coo_places()
        pair = (self.csr.index[places].to(torch.int64), self.csr.rows()[places])
        dtype = self.user_dtype if self.num_loops is None else torch.int64
        return torch.stack(pair if self.target_row == 1 else pair[::-1]).to(dtype)

    def edge_ids_in_coo_order(self) -> Tensor:
        """The id of each edge in the order of `coo`, [num_edges], int64."""
        places = self._coo_places()
        return places if self.csr.edge_id is None else self.csr.edge_id[places].to(torch.int64)

    def _coo_places(self) -> Tensor:
        """The place among the edges by target of each edge in the order of `coo`."""
        by_target = self.csr
        if self.num_loops is not None and self.layout != EDGE_INDEX:
            return torch.argsort(by_target.rows() * self.num_sources + by_target.index, stable=True)
        places = torch.arange(by_target.num_edges, device=self.device)
        if by_target.edge_id is None:
            return places
        place_of = torch.full((self.num_edge_ids,), -1, device=self.device)
        place_of[by_target.edge_id.to(torch.int64)] = places
        return place_of[place_of >= 0]

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
        return moved

    def __getstate__(self) -> dict[str, Any]:
        self.csr  # noqa: B018  the rows stand for the user's adjacency, which does not travel
        return {**self.__dict__, '_origin': None, '_lookup': None, '_token': None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # pickles of earlier versions hold no memo
        self.__dict__.update({'memo': Memo(), **state})

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
