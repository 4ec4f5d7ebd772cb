"""When to look which rows of a gradient are zero, and when to make a path for those that are not.

Which rows are zero is seen when a gradient arrives, so no call has to know which layer it is: its path is the least of
the known ones that contains every row that is not zero. A path that fits no gradient (another loss, a jumping
connection, another mask) is never walked; a gradient that fits no path walks the whole graph, or a path made for it.

On a GPU a look at a gradient makes the host wait, so that only paths that were prepared are looked for, unless
`execution_paths` asks for all, and none while a CUDA graph is captured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref

import torch
from torch import Tensor

from pygfuse._lib.backends import row_search_of
from pygfuse._lib.modes import changed, modes
from pygfuse._lib.note import Activity, Note
from pygfuse.graph.graph import Graph
from pygfuse.mapping.cost_model import edge_cost
from pygfuse.partial.paths.path import ExecutionPath, GraphPaths, paths_of

# estimates in ns of one worker: of a look at a gradient, at one of its rows and at a byte of it; of an edge and a row
# of the whole graph when a path is made
LOOK, LOOK_ROW, LOOK_BYTE = 500_000.0, 1.0, 0.05
MADE_EDGE, MADE_ROW = 4.0, 6.0
# a look has to be expected to save so many times what it costs, and a path to have at most this share of the edges
WORTH_A_LOOK, WORTH_A_WALK = 2.0, 0.5
# edges whose targets tell roughly how much of a graph is active
SAMPLES = 64
# a path is made anew for a gradient that needs less than this share of the least path that contains it
SHRINKS = 0.6


def execution_paths(on: bool) -> contextlib.AbstractContextManager[None]:
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
    return changed(execution_paths=on)


def is_captured(graph: Graph) -> bool:
    """Whether what runs is being recorded as a CUDA graph: nobody can wait for its numbers."""
    # where CUDA was not begun with nothing is recorded, and torch raises if it is asked without CUDA or a driver
    synchronises = row_search_of(graph.device).SYNCHRONISES and torch.cuda.is_initialized()
    return synchronises and torch.cuda.is_current_stream_capturing()


def path_of(graph: Graph, grad: Tensor, row_bytes: int) -> ExecutionPath | None:
    """The path to walk for a gradient, or None for the whole graph; the layer whose pass it is learns which.

    Args:
        graph: The graph, its rows sorted.
        grad: The gradient that reaches the output, ``[targets, width]``, contiguous.
        row_bytes: Bytes of a row that an edge's adjoint gathers.
    """
    path, activity = _path_of(graph, grad, row_bytes)
    note = modes().note
    if note is not None:
        note.backward = activity
    return path


def note_whole(reference: weakref.ref[Note] | None, graph: Graph) -> None:
    """Lets a layer know that a backward pass walked the whole graph."""
    note = None if reference is None else reference()
    if note is not None:
        note.backward = Activity(None, None, graph.num_edges, graph.num_targets, graph.num_edges)


def _path_of(graph: Graph, grad: Tensor, row_bytes: int) -> tuple[ExecutionPath | None, Activity]:
    all_rows, all_edges = graph.num_targets, graph.num_edges
    whole = Activity(None, None, all_edges, all_rows, all_edges)
    forced = modes().execution_paths
    price = edge_cost(row_bytes)
    if forced is False or not all_edges or not grad.numel() or is_captured(graph):
        return None, whole
    paths = paths_of(graph)
    if forced is None and not _is_worth_a_look(paths, graph, grad, row_bytes, price):
        return None, whole
    active, num_rows, num_edges = row_search_of(graph.device).active_rows(grad, graph.csr.indptr)
    if num_rows == all_rows:
        return None, dataclasses.replace(whole, rows=num_rows, edges=num_edges)
    most_edges = float(all_edges) if forced else WORTH_A_WALK * all_edges
    path = paths.least(active, most_edges)
    if _is_worth_making(paths, graph, path, num_edges, most_edges, price):
        path = paths.make(graph, active, num_edges)
    walked = all_edges if path is None else path.num_edges
    return path, Activity(num_rows, num_edges, walked, all_rows, all_edges)


def _is_worth_a_look(paths: GraphPaths, graph: Graph, grad: Tensor, row_bytes: int, price: float) -> bool:
    """Whether to look which rows of a gradient are zero.

    Args:
        paths: The paths of the graph.
        graph: The graph.
        grad: The gradient, ``[targets, width]``.
        row_bytes: Bytes of a row that an edge's adjoint gathers.
        price: Of an edge's adjoint, in ns.
    """
    if row_search_of(graph.device).SYNCHRONISES:
        return any(path.num_edges <= WORTH_A_WALK * graph.num_edges for path in paths.prepared)
    look = LOOK + graph.num_targets * (LOOK_ROW + LOOK_BYTE * row_bytes)
    saved = graph.num_edges * price / (WORTH_A_LOOK * look)
    if saved < 1:
        return False
    share = _sampled_share(paths, graph, grad)
    return share <= WORTH_A_WALK and (1 - share) * saved >= 1


def _sampled_share(paths: GraphPaths, graph: Graph, grad: Tensor) -> float:
    """About which share of the edges lead to rows that are not zero."""
    if paths.sampled_targets is None:
        indptr = graph.csr.indptr
        places = (torch.arange(SAMPLES) * graph.num_edges // SAMPLES).to(indptr.dtype)
        paths.sampled_targets = torch.searchsorted(indptr, places, right=True) - 1
    return row_search_of(graph.device).active_share(grad, paths.sampled_targets)


def _is_worth_making(
    paths: GraphPaths, graph: Graph, path: ExecutionPath | None, num_edges: int, most_edges: float, price: float
) -> bool:
    """Whether to make a path for a gradient: once those that were not made would have saved what one costs.

    Args:
        paths: The paths of the graph; what this one would have saved is added to what they missed.
        graph: The graph.
        path: The least known path that contains the gradient, or None.
        num_edges: How many edges the gradient needs.
        most_edges: How many a path may have.
        price: Of an edge's adjoint, in ns.
    """
    forced = modes().execution_paths
    if not forced and row_search_of(graph.device).SYNCHRONISES:
        return False
    walked = graph.num_edges if path is None else path.num_edges
    if num_edges >= (most_edges if path is None else SHRINKS * walked):
        return False
    paths.missed += (walked - num_edges) * price
    return bool(forced) or paths.missed > graph.num_edges * MADE_EDGE + graph.num_targets * MADE_ROW
