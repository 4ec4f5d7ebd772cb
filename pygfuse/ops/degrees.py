"""Numbers of edges at nodes, as an operator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pygfuse.ops.edges import Edges
from pygfuse.ops.tags import OF_EDGES


def degrees(edges: Edges, like: Tensor) -> tuple[Tensor, Tensor]:
    """The number of edges into each target and out of each source: ``[targets]``, ``[sources]``, of the type of `like`.

    Example:
        >>> degrees(Edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 2, 3), torch.zeros(1))
        (tensor([0., 1., 2.]), tensor([2., 1.]))
    """
    return torch.ops.pygfuse.degrees(
        edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops, like.detach()
    )


def mean_of(sums: Tensor, edges: Edges) -> Tensor:
    """The means over the edges of each target, of their sums, ``[targets, width]``; 0 where there are none."""
    return sums / counts_of(edges, sums)[0]().clamp(min=1).unsqueeze(1)


def counts_of(edges: Edges, like: Tensor) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Functions that give the two results of `degrees`, for those who will seldom ask."""
    # not of features, which may be sparse
    like = torch.empty(0, dtype=like.dtype, device=like.device)
    return (lambda: degrees(edges, like)[0]), (lambda: degrees(edges, like)[1])


@torch.library.custom_op('pygfuse::degrees', mutates_args=(), tags=OF_EDGES)
def _degrees(
    token: Tensor, num_sources: int, num_targets: int, flow: str, loops: int | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    graph = Edges(token, num_sources, num_targets, flow, loops).graph()
    return graph.csr.indptr.diff().to(like.dtype), graph.csc.indptr.diff().to(like.dtype)


@_degrees.register_fake
def _(token, num_sources, num_targets, flow, loops, like):
    return like.new_empty(num_targets), like.new_empty(num_sources)
