"""The edges of a graph in each order that is asked for: by target, by source, as they came, as PyG lists them.

An order is built when it is first asked for, and kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import sorting_of
from pygfuse._lib.streams import makers_on
from pygfuse.graph.adjacency import EDGE_INDEX, Adjacency
from pygfuse.graph.build import build, check_nodes
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.graph.transposed import Transposed

# the largest number that is kept as an int32
INT32_LIMIT = 2**31 - 1


class EdgeOrders:
    """Edges from sources to targets, with ids, in their orders; see `pygfuse.graph.graph.Graph`.

    Args:
        origin: What the rows are built from; dropped once they are, so that the user's memory is not held.
        like: What says the layout, the flow, the type and the number of edges of the user's adjacency.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        num_loops: None, or the number of self-loops to be put in.
    """

    # of those that an earlier version pickled, too
    _last_target: int | None = None

    def __init__(
        self,
        origin: Adjacency | Csr,
        like: Adjacency | EdgeOrders,
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
        self._origin: Adjacency | Csr | None = origin
        self._csr: Csr | None = None
        self._csc: Csr | None = None
        self._coo: Coo | None = None
        self._place_in_csc: Tensor | None = None
        # on a GPU: which streams made these
        self._makers = makers_on(self.device)

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
            self._made('csr')
        self._wait_for('csr', self._csr)
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
        if not isinstance(origin, Adjacency) or self.num_loops is not None:
            return None
        if self._coo is not None:
            # they are the user's memory, in which kernels do not look for nodes again
            origin.check_unwritten()
            return self._coo
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
            transpose, given = sorting_of(self.device).transpose, (by_target.indptr, by_target.index, self.num_sources)
            pointer, targets, position = transpose(*given, with_places=False)
            if position is None:
                self._csc = Transposed(pointer, targets, by_target.edge_id, lambda: transpose(*given)[1:])
            else:
                self._csc = Csr(pointer, targets, by_target.edge_id, position)
            self._made('csc')
        self._wait_for('csc', self._csc)
        return self._csc

    @property
    def is_transposed(self) -> bool:
        """Whether the edges by source are there already."""
        return self._csc is not None

    @property
    def place_in_csc(self) -> Tensor:
        """For each edge by target, its place among the edges by source: the inverse of ``csc.position``."""
        if self._place_in_csc is None:
            self._place_in_csc = sorting_of(self.device).inverted(self.csc.position)
            self._made('place in csc')
        self._wait_for('place in csc', self._place_in_csc)
        return self._place_in_csc

    def _made(self, name: str) -> None:
        if self._makers is not None:
            self._makers.note(name)

    def _wait_for(self, name: str, value: Csr | Tensor) -> None:
        if self._makers is not None:
            self._makers.wait(name, value)

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

    @property
    def has_last_target(self) -> bool:
        """Whether an edge leads to the last target; errors as of `last_target`."""
        return self.last_target == self.num_targets - 1 >= 0

    @property
    def last_target(self) -> int:
        """The last target that an edge leads to, -1 without edges; asked once, which waits for a GPU.

        Raises:
            ValueError: If an edge names a node that does not exist.
            RuntimeError: If the adjacency was written to before the edges were first looked at.
        """
        if self._last_target is None:
            coo = self.unsorted()
            if self.num_targets == 0 or self.num_edges == 0:
                self._last_target = -1
            elif coo is not None:
                self._last_target = int(coo.rows.max())
            else:
                # rows that begin before the last edge ends, of which the last is no target
                self._last_target = int((self.csr.indptr < self.csr.indptr[-1]).sum()) - 1
        return self._last_target

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

    def ends(self) -> tuple[Tensor, Tensor]:
        """The rows of `coo`, each ``[num_edges]``, int64, without sorting edges that are not sorted yet."""
        edges = self.unsorted()
        if edges is None:
            first, second = self.coo().long().unbind()
            return first, second
        return (edges.rows, edges.index) if self.target_row == 0 else (edges.index, edges.rows)

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
