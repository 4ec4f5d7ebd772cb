"""Programs along few edges as they come: no graph is made of these, and nothing is sorted."""

from __future__ import annotations

import array
import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import backend_of, few_edges_of
from pygfuse._lib.modes import only_a_note_is_said
from pygfuse.call.call import Call
from pygfuse.graph import remade_edges
from pygfuse.graph.adjacency import target_row_of
from pygfuse.graph.listed import Listed
from pygfuse.mapping.few_edges import are_at_once, are_few, are_in_kernels, counted_bytes
from pygfuse.ops.edges import Edges
from pygfuse.ops.plan import Plan
from pygfuse.program.program import SOURCE, TARGET


def listed_of(plan: Plan, edges: Edges, element_bytes: int) -> Listed | None:
    """The edges of a call as they come, if they are so few that they are walked so; what was done with them before does
    not matter, so that a call gives the same bits each time.

    Args:
        plan: What is known of such calls.
        edges: The edges.
        element_bytes: Bytes of a value.
    """
    token, num_sources, num_targets = edges.token, edges.num_sources, edges.num_targets
    if not is_list(token):
        return None
    row_bytes = counted_bytes(plan.width, element_bytes, plan.bound.program.scores_channels)
    if not are_few(token.shape[1], num_sources + num_targets, row_bytes) or not only_a_note_is_said():
        return None
    return as_listed(token, edges.flow, num_sources, num_targets, edges.loops)


def are_taken_at_once(edges: Edges, width: int, element_bytes: int) -> bool:
    """Whether values of edges are computed by torch's operators with a row for each edge: these are so few.

    Args:
        edges: The edges.
        width: The most numbers of an edge at any time.
        element_bytes: Bytes of a number.
    """
    if not is_list(edges.token) or edges.loops is not None:
        return False
    return are_at_once(edges.token.shape[1], width * element_bytes)


def are_taken_in_kernels(edges: Edges, width: int, element_bytes: int) -> bool:
    """Whether edges are so few that a kernel takes them through a network as they come; arguments as above."""
    if not is_list(edges.token) or edges.loops is not None:
        return False
    num_nodes = edges.num_sources + edges.num_targets
    return are_in_kernels(edges.token.shape[1], num_nodes, counted_bytes(width, element_bytes))


@contextlib.contextmanager
def ends_of(edges: Edges, reads: Collection[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """A ``with`` block around operators of torch that index by the sources and the targets of edges, which `is_list`.

    Args:
        edges: The edges.
        reads: By which of ``'source'`` and ``'target'`` they index; the others are looked at here.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    row = target_row_of(edges.flow)
    ends = edges.token[1 - row], edges.token[row]
    try:
        for side, places, count in zip((SOURCE, TARGET), ends, (edges.num_sources, edges.num_targets), strict=True):
            if side not in reads and len(places) and not (int(places.min()) >= 0 and int(places.max()) < count):
                raise IndexError('an edge names a node that is not there')
        yield ends
    except (IndexError, RuntimeError):
        say_which(edges)
        raise


def as_listed(edge_index: Tensor, flow: str, num_sources: int, num_targets: int, num_loops: int | None) -> Listed:
    """Edges as they come, which `is_list`, with one self-loop at each of so many nodes in place of others."""
    walked = array.array('q', (0,))
    return Listed(edge_index, target_row_of(flow), num_sources, num_targets, num_loops, walked)


def as_saved(listed: Listed, token: Tensor) -> Listed:
    """The edges with the ``edge_index`` that autograd gives back for the one it saved.

    Where hooks copy it, the user may have written to the other since.

    Args:
        listed: The edges as they came.
        token: What autograd gives back, in whatever layout hooks leave it.
    """
    return listed if token is listed.edge_index else listed._replace(edge_index=list_of(token))


def list_of(token: Tensor) -> Tensor:
    """An ``edge_index`` as walks read it, of one that autograd gives back in whatever layout."""
    return token if is_list(token) else token.to(torch.int64).contiguous()


def is_list(token: Tensor) -> bool:
    """Whether a tensor is an ``edge_index`` that is walked as it lies in memory."""
    if token.dim() != 2 or token.dtype is not torch.int64 or few_edges_of(token.device) is None:
        return False
    return type(token) is Tensor and token.shape[0] == 2 and token.is_contiguous()


def stand_for_themselves(adjacency: Any) -> bool:
    """Whether edges are so few, and lie in memory so, that they are walked as they come: no graph is made of them.

    Example:
        >>> [stand_for_themselves(torch.zeros(2, edges, dtype=torch.int64)) for edges in (100, 20_000)]
        [True, False]
    """
    return type(adjacency) is Tensor and is_list(adjacency) and adjacency.shape[1] < remade_edges.FEWEST


def savable(edge_index: Tensor) -> Tensor:
    """An ``edge_index`` that autograd can save, as it cannot what inference mode made."""
    is_refused = edge_index.is_inference() and not torch.is_inference_mode_enabled()
    return edge_index.clone() if is_refused else edge_index


def forward_of(call: Call, edges: Edges) -> tuple[Tensor, Tensor | None]:
    """The output and statistics of a call over these edges.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    try:
        return backend_of(call.like.device).forward(call)
    except IndexError:
        say_which(edges)
        raise


def say_which(edges: Edges) -> None:
    """Raises a ValueError if an edge names a node that is not there, and says which: kernels do not."""
    edges.graph().csr  # noqa: B018
