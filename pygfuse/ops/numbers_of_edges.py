"""A number for each edge that grows with its place in the list, as an operator: what tells edges of a target apart."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.kept_memory import fake_of
from pygfuse.ops.within_torch.tags import OF_EDGES

# from so many edges on, their places in the list are not all numbers of the type
_EXACT = {torch.float32: 2**24, torch.float64: 2**53}


def numbers_of_edges(edges: Edges, device: torch.device, dtype: torch.dtype, shape: tuple[int, ...] = (1,)) -> Tensor:
    """The place of each edge in the list; where a type cannot tell so many apart, among the edges of its target.

    Args:
        edges: The edges.
        device: Where the numbers are.
        dtype: float32 or float64.
        shape: The shape of a row, of one number.

    Returns:
        ``[edges, *shape]``.

    Example:
        >>> edges = Edges(torch.tensor([[0, 0, 1], [1, 2, 2]]), 2, 3)
        >>> numbers_of_edges(edges, torch.device('cpu'), torch.float32)
        tensor([[0.],
                [1.],
                [2.]])
    """
    token, count = edges.token, edges.num_edges
    if count <= _EXACT[dtype]:
        return torch.arange(count, dtype=dtype, device=device).view(-1, *shape)
    like = torch.empty(0, dtype=dtype, device=device)
    if edges.walked is not None:
        return _in_rows(edges.walked.csr, like).view(-1, *shape)
    found = torch.ops.pygfuse.numbers_in_rows(
        token, edges.num_sources, edges.num_targets, edges.flow, edges.loops, like
    )
    return found.view(-1, *shape)


def _in_rows(csr: Csr, like: Tensor) -> Tensor:
    places = torch.arange(csr.num_edges, device=like.device) - csr.indptr[csr.rows()]
    found = like.new_empty(csr.num_edges)
    found[slice(None) if csr.edge_id is None else csr.edge_id.long()] = places.to(like.dtype)
    return found


@torch.library.custom_op('pygfuse::numbers_in_rows', mutates_args=(), tags=OF_EDGES)
def _numbers_in_rows(
    token: Tensor, num_sources: int, num_targets: int, flow: str, loops: int | None, like: Tensor
) -> Tensor:
    return _in_rows(Edges(token, num_sources, num_targets, flow, loops).graph().csr, like)


@fake_of(_numbers_in_rows)
def _(token, num_sources, num_targets, flow, loops, like):
    return like.new_empty(token.shape[1])
