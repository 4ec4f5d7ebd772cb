"""Execution paths: the part of a graph that the adjoint of an aggregation needs.

"Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et al., Theorem 1). Where
the gradient of a target's output is zero, the adjoint of every edge into it is zero. If a loss reads the outputs of few
nodes, the last layer's backward needs the edges into these only, the one before it those into their sources, and so on.

Which rows are zero is seen when a gradient arrives, so no call has to know which layer it is: its path is the least of
the known ones that contains every row that is not zero. A path that fits no gradient (another loss, a jumping
connection, another mask) is never walked; a gradient that fits no path walks the whole graph, or a path made for it.

Numbers: an edge into a target without gradient adds zeros, so leaving it out changes no sum, and what is summed is
summed in the same order, piece by piece as in the whole graph's cut. Bit for bit the same are gradients that are summed
edge after edge: those of features that are summed, averaged or maximised with any weights, of edges, and of what
belongs to targets. Sums through a score, and for parameters, add several edges side by side and differ by rounding.
Products of a zero gradient with infinite or NaN operands, which are NaN, are left out too.

All this is of a CPU, which walks a path in the pieces of the whole graph. A GPU walks it as a graph of its own
(`ExecutionPath.part`), whose long rows may be cut elsewhere. There a look at a gradient makes the host wait, so that
only paths that were prepared are looked for, unless `execution_paths` asks for all, and none while a CUDA graph is
captured.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import row_search_of
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph
from pygfuse.mapping.cost_model import edge_cost

# the distance of a node from which no path leads to where a gradient begins
UNREACHED = 255
# prices in ns of one worker: of a look at a gradient, at one of its rows and at a byte of it; of an edge and a row of
# the whole graph when a path is made
LOOK, LOOK_ROW, LOOK_BYTE = 500_000.0, 1.0, 0.05
MADE_EDGE, MADE_ROW = 4.0, 6.0
# a look has to be expected to save so many times what it costs, and a path to have at most this share of the edges
WORTH_A_LOOK, WORTH_A_WALK = 2.0, 0.5
# edges whose targets tell roughly how much of a graph is active
SAMPLES = 64
# paths made for one graph: the oldest goes
PATHS_LIMIT = 8
# a path is made anew for a gradient that needs less than this share of the least path that contains it
SHRINKS = 0.6
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
        # what a target keeps of it: tensors and `pygfuse.partial.paths.rows.PathRows`
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


@dataclasses.dataclass(frozen=True)
class Activity:
    """How much of a graph a pass walked.

    Attributes:
        rows: Targets with a gradient, or that were computed; None where nobody looked.
        edges: Edges into these, or None.
        walked_edges: Edges that were walked.
        all_rows: Targets of the graph.
        all_edges: Edges of the graph.
    """

    rows: int | None
    edges: int | None
    walked_edges: int
    all_rows: int
    all_edges: int

    @property
    def computed(self) -> str:
        """What a forward pass did, in words."""
        return f'{self.rows:,} of {self.all_rows:,} rows, from {self.edges:,} of {self.all_edges:,} edges'

    def __str__(self) -> str:
        if self.rows is None:
            return f'backward walked all {self.all_edges:,} edges'
        return (
            f'backward walked {self.walked_edges:,} of {self.all_edges:,} edges; {self.rows:,} of {self.all_rows:,} '
            f'rows and {self.edges:,} edges were active'
        )


class _Paths:
    """The execution paths of one graph."""

    def __init__(self) -> None:
        self.prepared: tuple[ExecutionPath, ...] = ()
        self.distances: Tensor | None = None
        self.made: tuple[ExecutionPath, ...] = ()
        # what paths would have saved so far, in ns
        self.missed = 0.0
        self.sampled_targets: Tensor | None = None

    def sampled_share(self, graph: Graph, grad: Tensor) -> float:
        """About which share of the edges lead to rows that are not zero."""
        if self.sampled_targets is None:
            indptr = graph.csr.indptr
            places = (torch.arange(SAMPLES) * graph.num_edges // SAMPLES).to(indptr.dtype)
            self.sampled_targets = torch.searchsorted(indptr, places, right=True) - 1
        return row_search_of(graph.device).active_share(grad, self.sampled_targets)

    def are_worth_a_look(self, graph: Graph, grad: Tensor, row_bytes: int, price: float) -> bool:
        """Whether to look which rows of a gradient are zero: on a CPU, where the host is who looks.

        Args:
            graph: The graph.
            grad: The gradient, ``[targets, width]``.
            row_bytes: Bytes of a row that an edge's adjoint gathers.
            price: Of an edge's adjoint, in ns.
        """
        look = LOOK + graph.num_targets * (LOOK_ROW + LOOK_BYTE * row_bytes)
        saved = graph.num_edges * price / (WORTH_A_LOOK * look)
        if saved < 1:
            return False
        share = self.sampled_share(graph, grad)
        return share <= WORTH_A_WALK and (1 - share) * saved >= 1

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
_forced: contextvars.ContextVar[bool | None] = contextvars.ContextVar('pygfuse_execution_paths', default=None)


@contextlib.contextmanager
def execution_paths(on: bool) -> Iterator[None]:
    """Turns execution paths on or off for the backward passes of this thread within a ``with`` block.

    Without it, rows of zero gradient are looked for where skipping them is estimated to be cheaper, and a path is made
    once it would have saved what making it costs. On a GPU, only paths that `pygfuse.transforms.ToExecutionPaths`
    prepared are walked without it; and there autograd runs backward in threads of its own, so that the block has to
    hold the forward pass.

    Args:
        on: True to walk a path wherever some row of a gradient is zero, False to walk whole graphs.

    Example:
        >>> from pygfuse.conv import GCNConv
        >>> conv, x, edge_index = GCNConv(8, 8), torch.randn(9, 8), torch.randint(9, (2, 40))
        >>> with execution_paths(False):
        ...     conv(x, edge_index)[:3].sum().backward()
        >>> expected, conv.lin.weight.grad = conv.lin.weight.grad, None
        >>> with execution_paths(True):
        ...     conv(x, edge_index)[:3].sum().backward()
        >>> torch.equal(conv.lin.weight.grad, expected)
        True
    """
    token = _forced.set(on)
    try:
        yield
    finally:
        _forced.reset(token)


@contextlib.contextmanager
def paths_as_in_forward(on: bool | None) -> Iterator[None]:
    """Within a ``with`` block that `execution_paths` says nothing about, lets hold what it said in a forward pass.

    Args:
        on: What `forced_paths` was then.
    """
    said = _forced.get()
    token = _forced.set(on if said is None else said)
    try:
        yield
    finally:
        _forced.reset(token)


def forced_paths() -> bool | None:
    """What `execution_paths` says here, None where it says nothing."""
    return _forced.get()


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
    if attached is None or _is_captured(graph):
        return
    paths, distances = graph.memo.get_or_make(_PATHS, _Paths), attached()
    if paths.distances is distances or distances is None or distances.numel() != graph.num_targets:
        return
    steps = [step for step in distances.unique().tolist() if step != UNREACHED]
    paths.prepared = tuple(ExecutionPath(graph, (distances <= step).to(torch.uint8)) for step in steps)
    paths.distances = distances


def known_paths(graph: Graph) -> tuple[ExecutionPath, ...]:
    """The paths of a graph: those that were prepared, then those that gradients have shown.

    Args:
        graph: The graph; with self-loops it is another one than without.
    """
    paths = graph.memo.get(_PATHS)
    return () if paths is None else (*paths.prepared, *paths.made)


_running: contextvars.ContextVar[weakref.ref | None] = contextvars.ContextVar('pygfuse_running', default=None)
_reported_to: contextvars.ContextVar[weakref.ref | None] = contextvars.ContextVar('pygfuse_reported_to', default=None)


def run_by(layer: Any) -> None:
    """Says that the aggregations that follow in this thread are this layer's.

    Args:
        layer: A module; it is not kept alive.
    """
    _running.set(weakref.ref(layer))


def running() -> weakref.ref | None:
    """The layer whose aggregations run in this thread."""
    return _running.get()


@contextlib.contextmanager
def reported_to(layer: weakref.ref | None) -> Iterator[None]:
    """Lets a layer know, as ``last_activity``, what backward passes within a ``with`` block walk.

    Args:
        layer: A reference to a module, or None.
    """
    token = _reported_to.set(layer)
    try:
        yield
    finally:
        _reported_to.reset(token)


def _is_captured(graph: Graph) -> bool:
    """Whether what runs is being recorded as a CUDA graph: nobody can wait for its numbers."""
    # torch without CUDA raises
    waits = row_search_of(graph.device).LOOKS_WAIT and torch.backends.cuda.is_built()
    return waits and torch.cuda.is_current_stream_capturing()


def path_of(graph: Graph, grad: Tensor, row_bytes: int) -> ExecutionPath | None:
    """The path to walk for a gradient, or None for the whole graph.

    Args:
        graph: The graph, its rows sorted.
        grad: The gradient that reaches the output, ``[targets, width]``, contiguous.
        row_bytes: Bytes of a row that an edge's adjoint gathers.
    """
    path, activity = _path_of(graph, grad, row_bytes)
    reference = _reported_to.get()
    layer = None if reference is None else reference()
    if layer is not None:
        layer.last_activity = activity
    return path


def _path_of(graph: Graph, grad: Tensor, row_bytes: int) -> tuple[ExecutionPath | None, Activity]:
    all_rows, all_edges = graph.num_targets, graph.num_edges
    whole = Activity(None, None, all_edges, all_rows, all_edges)
    forced, most_edges = _forced.get(), float(all_edges)
    if forced is False or not all_edges or not grad.numel() or _is_captured(graph):
        return None, whole
    search, paths = row_search_of(graph.device), graph.memo.get_or_make(_PATHS, _Paths)
    price = edge_cost(row_bytes)
    if forced is None:
        most_edges *= WORTH_A_WALK
        if search.LOOKS_WAIT:
            if not any(path.num_edges <= most_edges for path in paths.prepared):
                return None, whole
        elif not paths.are_worth_a_look(graph, grad, row_bytes, price):
            return None, whole
    active, num_rows, num_edges = search.active_rows(grad, graph.csr.indptr)
    if num_rows == all_rows:
        return None, dataclasses.replace(whole, rows=num_rows, edges=num_edges)
    path = paths.least(active, most_edges)
    # a smaller path is worth making once it would have saved what it costs
    walked = all_edges if path is None else path.num_edges
    makes = forced or not search.LOOKS_WAIT
    if makes and num_edges < (SHRINKS * walked if path is not None else most_edges):
        paths.missed += (walked - num_edges) * price
        if forced or paths.missed > all_edges * MADE_EDGE + all_rows * MADE_ROW:
            path = paths.make(graph, active, num_edges)
    walked = all_edges if path is None else path.num_edges
    return path, Activity(num_rows, num_edges, walked, all_rows, all_edges)
