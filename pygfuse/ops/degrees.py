"""Numbers of edges at nodes, as an operator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse.graph.adjacency import target_row_of
from pygfuse.graph.coo import Coo
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import is_list
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.kept_memory import fake_of
from pygfuse.ops.within_torch.tags import OF_EDGES
from pygfuse.program.program import SOURCE, TARGET


def degrees(edges: Edges, like: Tensor) -> tuple[Tensor, Tensor]:
    """The number of edges into each target and out of each source: ``[targets]``, ``[sources]``, of the type of `like`.

    Example:
        >>> degrees(Edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 2, 3), torch.zeros(1))
        (tensor([0., 1., 2.]), tensor([2., 1.]))
    """
    return torch.ops.pygfuse.degrees(
        edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops, like.detach()
    )


def degrees_of(edges: Edges, side: str, like: Tensor) -> Tensor:
    """One of the results of `degrees`, without an operator of torch's library where nobody intercepts operators.

    Args:
        edges: The edges.
        side: ``'target'``, for the edges into each target, or ``'source'``, for those out of each source.
        like: A tensor of the type of the result.

    Returns:
        ``[targets]`` or ``[sources]``.

    Raises:
        ValueError: If an edge names a node that does not exist.

    Example:
        >>> degrees_of(Edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 2, 3), 'source', torch.zeros(1))
        tensor([2., 1.])
    """
    if is_watched((edges.token, like)):
        return degrees(edges, like)[side == SOURCE]
    counted = _counted(edges, side) if edges.walked is None and edges.loops is None and is_list(edges.token) else None
    if counted is None:
        graph = edges.graph()
        counted = (graph.csc if side == SOURCE else graph.csr).indptr.diff()
    return counted.to(like.dtype)


def _counted(edges: Edges, side: str) -> Tensor | None:
    """The degrees of edges as they came; None where an edge names a node that is not there."""
    target_row = target_row_of(edges.flow)
    ends = edges.token[target_row], edges.token[1 - target_row]
    by_target = Coo(*ends, edges.num_targets, edges.num_sources)
    found = by_target.transposed() if side == SOURCE else by_target
    with contextlib.suppress(RuntimeError):
        counted = found.degree()
        return counted if counted.shape[0] == found.num_rows else None
    return None


def mean_of(sums: Tensor, edges: Edges) -> Tensor:
    """The means over the edges of each target, of their sums, ``[targets, width]``; 0 where there are none."""
    return sums / counts_of(edges, sums)[0]().clamp(min=1).unsqueeze(1)


def counts_of(edges: Edges, like: Tensor) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Functions that give the two results of `degrees`, for those who will seldom ask."""
    # not of features, which may be sparse
    like = torch.empty(0, dtype=like.dtype, device=like.device)
    return (lambda: degrees_of(edges, TARGET, like)), (lambda: degrees_of(edges, SOURCE, like))


@torch.library.custom_op('pygfuse::degrees', mutates_args=(), tags=OF_EDGES)
def _degrees(
    token: Tensor, num_sources: int, num_targets: int, flow: str, loops: int | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    graph = Edges(token, num_sources, num_targets, flow, loops).graph()
    return graph.csr.indptr.diff().to(like.dtype), graph.csc.indptr.diff().to(like.dtype)


@fake_of(_degrees)
def _(token, num_sources, num_targets, flow, loops, like):
    return like.new_empty(num_targets), like.new_empty(num_sources)
