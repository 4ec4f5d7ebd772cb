"""Hierarchically aggregated computation graphs: what neighbours share is aggregated once.

"Redundancy-Free Computation Graphs for Graph Neural Networks" (Jia et al.), section 3. A HAG of a graph has aggregation
nodes beside the graph's own; each aggregates sources and other aggregation nodes, and targets aggregate both. It is
equivalent to the graph if the cover of every target, the sources that its inputs stand for, is its neighbours
(Theorem 1).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import sorting_of
from pygfuse._lib.memo import Memo
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.hag.drawing import draw


class BeforeAfter(NamedTuple):
    """A figure of a graph and of its HAG.

    Attributes:
        before: Of the graph.
        after: Of the HAG.
    """

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """How many times less the HAG has."""
        return self.before / self.after if self.after else float('inf') if self.before else 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """What each of several nodes aggregates: compressed rows, sources first, then aggregation nodes.

    Attributes:
        indptr: Where each row begins, [rows + 1], int32.
        middle: Where each row's aggregation nodes begin, [rows], int32.
        index: Sources and numbers of aggregation nodes, [inputs], int32.
    """

    indptr: Tensor
    middle: Tensor
    index: Tensor

    @property
    def num_rows(self) -> int:
        return self.middle.numel()

    @property
    def num_inputs(self) -> int:
        return self.index.numel()

    @property
    def num_aggregations(self) -> int:
        """Binary aggregations: one less than inputs for each row that has any."""
        return self.num_inputs - int((self.indptr.diff() > 0).sum())

    def of_aggregations(self) -> Tensor:
        """Whether each input is an aggregation node, [inputs]."""
        return torch.arange(self.num_inputs) >= self.middle.long()[self.rows()]

    def rows(self) -> Tensor:
        """The row of each input, [inputs], int64."""
        return Csr(self.indptr, self.index, None).rows()

    def slice(self, first: int, last: int) -> Rows:
        """Rows ``first`` to ``last - 1``."""
        begin, end = int(self.indptr[first]), int(self.indptr[last])
        return Rows(self.indptr[first : last + 1] - begin, self.middle[first:last] - begin, self.index[begin:end])

    @staticmethod
    def of(row: Tensor, index: Tensor, is_aggregation: Tensor, num_rows: int) -> Rows:
        """Rows of inputs in any order; within a row, sources and aggregation nodes keep theirs."""
        # twice as many rows: the sources of row r, then its aggregation nodes
        halves, order, _ = _sorted(2 * row + is_aggregation, index, 2 * num_rows)
        return Rows(halves[::2].contiguous(), halves[1::2].contiguous(), order)

    @staticmethod
    def joined(source_pointer: Tensor, sources: Tensor, pointer: Tensor, aggregations: Tensor) -> Rows:
        """Rows from their sources and their aggregation nodes, each as compressed rows."""
        indptr = source_pointer + pointer
        middle = pointer[:-1] + source_pointer[1:]
        index = torch.empty(sources.numel() + aggregations.numel(), dtype=torch.int32)
        places = torch.arange(sources.numel()) + pointer[:-1].repeat_interleave(source_pointer.diff())
        index[places] = sources.to(torch.int32)
        places = torch.arange(aggregations.numel()) + source_pointer[1:].repeat_interleave(pointer.diff())
        index[places] = aggregations.to(torch.int32)
        return Rows(indptr.to(torch.int32), middle.to(torch.int32), index)


def _sorted(row: Tensor, index: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
    columns = int(index.max()) + 1 if index.numel() else 0
    return sorting_of(row.device).sort_by_target(row.long(), index.long(), num_rows, columns, None, torch.int32)


_by_serial: weakref.WeakValueDictionary[int, Hag] = weakref.WeakValueDictionary()
_serials = itertools.count()


class Hag:
    """A HAG of a graph.

    Make one with `pygfuse.transforms.ToHAG` or `pygfuse.transforms.find_hag`.

    Attributes:
        num_sources: Number of source nodes of the graph.
        levels: The level of each aggregation node, ascending, [aggregation nodes], int32: 1 for those that aggregate
            sources only, else one more than the highest among its inputs.
        aggregations: What each aggregation node aggregates.
        targets: What each target aggregates.
        num_edges: Number of edges of the graph.
        serial: A number by which operators find it while it lives.

    Example:
        >>> from pygfuse.transforms import find_hag
        >>> edge_index = torch.tensor([[2, 3, 4, 2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1, 5, 5, 5]])
        >>> hag = find_hag(edge_index)
        >>> hag
        Hag(num_aggregation_nodes=1, depth=1, num_aggregations=6 -> 2, data_transfers=9 -> 6)
        >>> hag.num_aggregations.ratio
        3.0
        >>> sorted(hag.cover().t().tolist()) == sorted(edge_index.t().tolist())
        True
    """

    def __init__(self, num_sources: int, levels: Tensor, aggregations: Rows, targets: Rows, num_edges: int) -> None:
        self.num_sources = num_sources
        self.levels = levels
        self.aggregations = aggregations
        self.targets = targets
        self.num_edges = num_edges
        self.serial = next(_serials)
        _by_serial[self.serial] = self
        # what is derived from it: other forms of it, its cut levels
        self.memo = Memo()
        # memory for values of aggregation nodes that is free
        self.workspaces: dict[tuple, list[Tensor]] = {}

    @staticmethod
    def of_serial(serial: int) -> Hag:
        """The HAG of this number."""
        return _by_serial[serial]

    @property
    def num_targets(self) -> int:
        """Number of target nodes of the graph."""
        return self.targets.num_rows

    @property
    def num_aggregation_nodes(self) -> int:
        """Number of aggregation nodes."""
        return self.aggregations.num_rows

    @property
    def depth(self) -> int:
        """Number of levels of aggregation nodes."""
        return int(self.levels[-1]) if self.levels.numel() else 0

    @functools.cached_property
    def level_pointer(self) -> list[int]:
        """Where each level's aggregation nodes begin, and the end."""
        counts = torch.bincount(self.levels, minlength=self.depth + 1)
        return counts.cumsum(0).tolist()

    @property
    def degree(self) -> Tensor:
        """Number of edges into each target of the graph, [targets], int64."""
        return self.memo.get_or_make(('degree',), lambda: self._cover_counts()[1])

    def cost(self, alpha: float = 1.0, beta: float = 0.0) -> BeforeAfter:
        r"""The paper's cost of a layer, ``alpha * (edges - aggregation nodes) + (beta - alpha) * targets``.

        Args:
            alpha: Cost of aggregating two elements.
            beta: Cost of updating a node.

        Returns:
            That of the graph, and that of the HAG.
        """
        edges = self.targets.num_inputs + self.aggregations.num_inputs
        of_nodes = (beta - alpha) * self.num_targets
        return BeforeAfter(alpha * self.num_edges + of_nodes, alpha * (edges - self.num_aggregation_nodes) + of_nodes)

    @property
    def num_aggregations(self) -> BeforeAfter:
        """Binary aggregations in a layer."""
        plain = self.num_edges - int((self.targets.indptr.diff() > 0).sum())
        return BeforeAfter(plain, self.targets.num_aggregations + self.aggregations.num_aggregations)

    @property
    def data_transfers(self) -> BeforeAfter:
        """Rows that are read to be aggregated in a layer: edges."""
        return BeforeAfter(self.num_edges, self.targets.num_inputs + self.aggregations.num_inputs)

    def cover(self) -> Tensor:
        """The HAG expanded back: the edges that it stands for, by target, ``[2, edges]``, int64.

        Row 0 holds the sources, row 1 the targets. The order of a target's sources is that of its inputs, each
        aggregation node written out.
        """
        counts, degree = self._cover_counts()
        total = int(counts.sum())
        pointer = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        covered = torch.empty(total, dtype=torch.int32)
        for level in range(self.depth):
            first, last = self.level_pointer[level], self.level_pointer[level + 1]
            rows = self.aggregations.slice(first, last)
            covered[int(pointer[first]) : int(pointer[last])] = _expanded(rows, pointer, covered)
        sources = _expanded(self.targets, pointer, covered).long()
        return torch.stack([sources, torch.arange(self.num_targets).repeat_interleave(degree)])

    def _cover_counts(self) -> tuple[Tensor, Tensor]:
        """Sizes of the covers of aggregation nodes and of targets."""
        counts = torch.zeros(self.num_aggregation_nodes, dtype=torch.int64)
        for level in range(self.depth):
            first, last = self.level_pointer[level], self.level_pointer[level + 1]
            counts[first:last] = _cover_counts(self.aggregations.slice(first, last), counts)
        return counts, _cover_counts(self.targets, counts)

    def users(self) -> tuple[Tensor, Tensor]:
        """The first and the last target that each aggregation node counts for."""
        first = torch.full((self.num_aggregation_nodes,), self.num_targets)
        last = torch.full((self.num_aggregation_nodes,), -1)
        chosen = self.targets.of_aggregations()
        used, users = self.targets.index[chosen].long(), self.targets.rows()[chosen]
        first.scatter_reduce_(0, used, users, 'amin')
        last.scatter_reduce_(0, used, users, 'amax')
        for level in range(self.depth - 1, 0, -1):
            begin, end = self.level_pointer[level], self.level_pointer[level + 1]
            rows = self.aggregations.slice(begin, end)
            chosen = rows.of_aggregations()
            used, users = rows.index[chosen].long(), rows.rows()[chosen] + begin
            first.scatter_reduce_(0, used, first[users], 'amin')
            last.scatter_reduce_(0, used, last[users], 'amax')
        return first, last

    def graph(self) -> Graph:
        """The graph that it stands for."""
        sizes = {'num_sources': self.num_sources, 'num_targets': self.num_targets}
        return self.memo.get_or_make(('graph',), lambda: Graph.of(self.cover(), **sizes))

    @property
    def reversed(self) -> Hag:
        """The HAG of the graph with every edge reversed: every input becomes a user."""
        return self.memo.get_or_make(('reversed',), self._reverse)

    def _reverse(self) -> Hag:
        nodes, last = self.num_aggregation_nodes, self.num_aggregation_nodes - 1
        parts = []
        for rows, users, of_nodes in (
            (self.targets, torch.arange(self.num_targets), False),
            (self.aggregations, last - torch.arange(nodes), True),
        ):
            inputs, is_aggregation = rows.index.long(), rows.of_aggregations()
            user = users[rows.rows()]
            parts.append((inputs, is_aggregation, user, torch.full_like(is_aggregation, of_nodes)))
        inputs, is_aggregation, user, by_aggregation = (torch.cat(part) for part in zip(*parts, strict=True))
        plain = ~is_aggregation
        found = Hag(
            self.num_targets,
            (self.depth + 1 - self.levels).flip(0).contiguous(),
            Rows.of(last - inputs[is_aggregation], user[is_aggregation], by_aggregation[is_aggregation], nodes),
            Rows.of(inputs[plain], user[plain], by_aggregation[plain], self.num_sources),
            self.num_edges,
        )
        found.workspaces = self.workspaces
        return found

    def with_self_loops(self) -> Hag:
        """The HAG in which every target aggregates the source of its own number too.

        Raises:
            ValueError: If sources and targets are not the same nodes.
        """
        if self.num_sources != self.num_targets:
            raise ValueError(
                f'Expected as many sources as targets for self-loops (got {self.num_sources} and {self.num_targets})'
            )
        return self.memo.get_or_make(('with self-loops',), self._add_self_loops)

    def _add_self_loops(self) -> Hag:
        own = torch.arange(self.num_targets)
        targets = Rows.of(
            torch.cat([own, self.targets.rows()]),
            torch.cat([own, self.targets.index.long()]),
            torch.cat([torch.zeros(self.num_targets, dtype=torch.bool), self.targets.of_aggregations()]),
            self.num_targets,
        )
        edges = self.num_edges + self.num_targets
        found = Hag(self.num_sources, self.levels, self.aggregations, targets, edges)
        found.workspaces = self.workspaces
        return found

    def draw(self, axes: Any = None, names: Sequence[str] | None = None) -> Any:
        """Draws a small HAG with matplotlib: sources below, targets above, aggregation nodes (squares) between them.

        A HAG without aggregation nodes (``find_hag(..., capacity=0)``) is a picture of the graph.

        Args:
            axes: A ``matplotlib.axes.Axes`` to draw into; by default those of a new figure.
            names: What to write on nodes; by default their numbers.

        Returns:
            The axes.

        Raises:
            ImportError: If there is no matplotlib.
            ValueError: If the HAG has too many edges for a picture, or there are fewer `names` than nodes.

        Example:
            >>> from pygfuse.transforms import find_hag
            >>> hag = find_hag(torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]]))
            >>> hag.draw(names='ABCDE')  # doctest: +SKIP
            <Axes: >
        """
        return draw(self, axes, names)

    def __getstate__(self) -> dict[str, Any]:
        names = ('num_sources', 'levels', 'aggregations', 'targets', 'num_edges')
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def __repr__(self) -> str:
        aggregations, transfers = self.num_aggregations, self.data_transfers
        return (
            f'Hag(num_aggregation_nodes={self.num_aggregation_nodes}, depth={self.depth}, '
            f'num_aggregations={aggregations.before} -> {aggregations.after}, '
            f'data_transfers={transfers.before} -> {transfers.after})'
        )


def hag_of_graph(graph: Graph) -> Hag:
    """A graph as a HAG without aggregation nodes."""
    indptr = graph.csr.indptr.to(torch.int32)
    none = indptr.new_empty(0)
    targets = Rows(indptr, indptr[1:].contiguous(), graph.csr.index.to(torch.int32))
    return Hag(graph.num_sources, none, Rows(indptr.new_zeros(1), none, none), targets, graph.num_edges)


def hag_of(num_sources: int, levels: Tensor, aggregations: _Halves, targets: _Halves, by_user: bool = False) -> Hag:
    """A HAG from its parts, with aggregation nodes in any order.

    Args:
        num_sources: Number of sources.
        levels: The level of each aggregation node.
        aggregations: What each aggregates: its sources as compressed rows (pointer and index), then the numbers of its
            aggregation nodes, likewise.
        targets: The same of each target.
        by_user: Whether to put the nodes of a level in the order of their first users, so that those of a component of
            the graph stand together; else they keep theirs.
    """
    hag = _in_order(num_sources, levels, aggregations, targets, torch.argsort(levels, stable=True))
    if by_user:
        order = torch.argsort(levels, stable=True)
        by_level = hag.levels.long() * (hag.num_targets + 1) + hag.users()[0]
        hag = _in_order(num_sources, levels, aggregations, targets, order[torch.argsort(by_level, stable=True)])
    hag.num_edges = int(hag.degree.sum())
    return hag


def _in_order(num_sources: int, levels: Tensor, aggregations: _Halves, targets: _Halves, order: Tensor) -> Hag:
    number = torch.empty_like(order)
    number[order] = torch.arange(order.numel())
    sources, below = (_taken(*aggregations[i : i + 2], order) for i in (0, 2))
    rows = Rows.joined(*sources, below[0], number[below[1].long()])
    final = Rows.joined(*targets[:3], number[targets[3].long()])
    return Hag(num_sources, levels[order].to(torch.int32), rows, final, 0)


_Halves = tuple[Tensor, Tensor, Tensor, Tensor]


def _taken(pointer: Tensor, index: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Compressed rows in another order."""
    counts = pointer.diff()[order]
    taken = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    places = torch.arange(index.numel()) + (pointer[:-1][order] - taken[:-1]).repeat_interleave(counts)
    return taken, index[places]


def _cover_counts(rows: Rows, counts: Tensor) -> Tensor:
    """The sizes of rows' covers, from those of aggregation nodes."""
    sizes = torch.ones(rows.num_inputs, dtype=torch.int64)
    chosen = rows.of_aggregations()
    sizes[chosen] = counts[rows.index[chosen].long()]
    return torch.zeros(rows.num_rows, dtype=torch.int64).index_add_(0, rows.rows(), sizes)


def _expanded(rows: Rows, pointer: Tensor, covered: Tensor) -> Tensor:
    """The sources of rows one after another, aggregation nodes written out; ``covered[pointer[w]:]`` is that of w."""
    chosen, index = rows.of_aggregations(), rows.index.long()
    starts, sizes = torch.zeros_like(index), torch.ones_like(index)
    starts[chosen], sizes[chosen] = pointer[index[chosen]], pointer.diff()[index[chosen]]
    before = sizes.cumsum(0) - sizes
    places = torch.arange(int(sizes.sum())) - before.repeat_interleave(sizes) + starts.repeat_interleave(sizes)
    found = rows.index.repeat_interleave(sizes)
    expands = chosen.repeat_interleave(sizes)
    found[expands] = covered[places[expands]]
    return found
