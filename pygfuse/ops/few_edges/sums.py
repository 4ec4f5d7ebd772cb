"""Sums of neighbours along few edges as they come, which are not sorted for it.

Where edges are few, all that is done with them before they are walked takes longer than the walk. A sum along them
costs the same whether the edges were met before or not.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import changed, nothing_is_said, only_a_note_is_said
from pygfuse._lib.note import Activity, Note
from pygfuse.graph.adjacency import target_row_of
from pygfuse.graph.graph import Graph
from pygfuse.mapping.few_edges import are_few, counted_bytes
from pygfuse.ops.aggregation import aggregate
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import is_list
from pygfuse.ops.within_torch.intercepted import PLAIN, is_plain_gradient
from pygfuse.ops.within_torch.lazy_values import given_values
from pygfuse.program.library.neighbours import NEIGHBOURS, NORMALISED_NEIGHBOURS, WEIGHTED_NEIGHBOURS
from pygfuse.program.sums_along_edges import MEAN, NORMALISED_WITH_LOOPS, SUM, WEIGHTED

# sums of rows as they are; all others are of normalised neighbours
SUMS = (SUM, MEAN)
# what backends add along few edges
TYPES = (torch.float32, torch.float64)


class FewEdges(NamedTuple):
    """The edges of a call, of which nothing but their number is known.

    Attributes:
        edge_index: ``[2, edges]``, int64, on a device whose backend adds along few edges.
        flow: PyG's flow.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        note: Where the layer learns how its backward pass runs, or None.
        given: What else the call was given, by name.
    """

    edge_index: Tensor
    flow: str
    num_sources: int
    num_targets: int
    note: weakref.ref[Note] | None = None
    given: Mapping[str, Any] = MappingProxyType({})

    def check(self) -> None:
        """Raises a ValueError if an edge names a node that is not there, and says which: kernels do not."""
        Graph.of(self.edge_index, None, self.flow, self.num_sources, self.num_targets).csr  # noqa: B018

    def walked_back(self, num_edges: int) -> None:
        """Lets the layer know that a backward pass walked so many edges."""
        note = None if self.note is None else self.note()
        if note is not None:
            note.backward = Activity(None, None, num_edges, self.num_targets, num_edges)


def sum_along(
    x: Tensor, edges: FewEdges, reduce: str, itself: float | None = None, weights: Tensor | None = None
) -> Tensor:
    """The sums at all targets of rows of sources.

    Args:
        x: Rows of sources, ``[num_sources, width]``.
        edges: The edges.
        reduce: ``'sum'``, ``'mean'``; or ``'normalised'``, ``'normalised with loops'``: a sum in which each edge counts
            as in GCN, in the latter with one self-loop at each node in place of others; or ``'weighted'``.
        itself: How many times each row is added to its own sum, where sources and targets are the same nodes.
        weights: A number for each edge, ``[edges]`` of the type of `x`, for a weighted sum; it has no gradient.

    Returns:
        ``[num_targets, width]``.

    Raises:
        ValueError: If an edge names a node that is not there, or `x` has another number of rows.

    Example:
        >>> edges = FewEdges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 'source_to_target', 3, 3)
        >>> sum_along(torch.arange(6.0).view(3, 2), edges, 'sum', itself=2.0)
        tensor([[ 0.,  2.],
                [ 8., 12.],
                [10., 13.]])
    """
    weights = _as_kernels_read(weights)
    if type(x) not in PLAIN or x.dtype not in TYPES:
        return _by_torch(x, edges.edge_index, weights, edges, reduce, itself, False)
    if torch.is_grad_enabled() and x.requires_grad:
        return _apply(x, edges.edge_index, weights, edges, reduce, itself, False)
    return added_along(x, edges.edge_index, edges, reduce, itself, False, weights=weights)[0]


def is_said(device: torch.device) -> bool:
    """Whether a ``with`` block says how calls run here, or autocast is on."""
    return not only_a_note_is_said() or torch.is_autocast_enabled(device.type)


def few_edges_weighed(edges: Edges, x: Tensor, weights: Tensor | None, note: Note | None) -> FewEdges | None:
    """The edges of a call, if they are so few that a sum of rows, perhaps weighted, is that of `sum_along`.

    Args:
        edges: The edges; nothing `is_said`.
        x: Rows of sources, ``[num_sources, width]``; others are none of such a sum.
        weights: A number for each edge, ``[edges]`` or ``[edges, 1]``, or None.
        note: Where the layer learns how its backward pass runs, or None.
    """
    token, num_sources, num_targets = edges.token, edges.num_sources, edges.num_targets
    if type(x) not in PLAIN or x.dtype not in TYPES or x.dim() != 2 or edges.loops is not None or not is_list(token):
        return None
    if weights is not None and (
        type(weights) not in PLAIN
        or weights.dtype is not x.dtype
        or weights.numel() != token.shape[1]
        or (weights.requires_grad and torch.is_grad_enabled())
    ):
        return None
    if x.shape[0] != num_sources or not x.shape[1] or x.layout is not torch.strided:
        return None
    row_bytes = counted_bytes(x.shape[1], x.element_size())
    if not are_few(token.shape[1], num_sources + num_targets, row_bytes):
        return None
    return FewEdges(token, edges.flow, num_sources, num_targets, None if note is None else weakref.ref(note))


def added_along(
    x: Tensor, edge_index: Tensor, edges: FewEdges, reduce: str, itself: float | None, transposed: bool,
    begun: Tensor | None = None, weights: Tensor | None = None,
) -> tuple[Tensor, int]:  # fmt: skip
    """The sums of `sum_along` or, `transposed`, their adjoint, and how many edges were added; nobody differentiates.

    They are added to the rows of `begun`, if there are some.
    """
    check_sum(x, edges, reduce, itself, transposed)
    nodes = target_row_of(edges.flow), edges.num_targets, edges.num_sources
    try:
        return few_edges_of(x.device).add_along_edges(x, edge_index, *nodes, reduce, transposed, itself, begun, weights)
    except IndexError:
        edges._replace(edge_index=edge_index).check()
        raise


def check_sum(x: Tensor, edges: FewEdges, reduce: str, itself: float | None, transposed: bool = False) -> None:
    """Raises a ValueError if rows are not as many as the nodes that a sum, or its adjoint, reads, or sources not as
    many as targets where they have to be the same nodes: kernels look at neither.

    Args:
        x: ``[num_sources, width]``, of the adjoint ``[num_targets, width]``.
        edges, reduce, itself, transposed: As of `added_along`.
    """
    num_sources, num_targets = edges.num_sources, edges.num_targets
    rows = num_targets if transposed else num_sources
    if x.dim() != 2 or x.shape[0] != rows:
        raise ValueError(f"Expected 'x' to have {rows} rows (got shape {list(x.shape)})")
    if num_sources != num_targets and (itself is not None or reduce not in (*SUMS, WEIGHTED)):
        raise ValueError(
            f"Expected as many sources as targets for 'reduce' {reduce!r} (got {num_sources}, {num_targets})"
        )


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, edge_index, weights, edges, reduce, itself, transposed):
        # what the user may write to
        ctx.save_for_backward(edge_index, weights)
        ctx.edges, ctx.form = edges, (reduce, itself, not transposed)
        ctx.reads_result = False
        return added_along(x, edge_index, edges, reduce, itself, transposed, weights=weights)[0]

    @staticmethod
    @given_values
    def backward(ctx, grad):
        (edge_index, weights), edges = ctx.saved_tensors, ctx.edges
        if not is_plain_gradient(grad):
            found = _by_torch(grad, edge_index, weights, edges, *ctx.form)
        elif torch.is_grad_enabled():
            # the adjoint is a sum again
            found = _apply(grad, edge_index, weights, edges, *ctx.form)
        elif nothing_is_said() or not ctx.form[-1]:
            found, added = added_along(grad, edge_index, edges, *ctx.form, weights=_as_kernels_read(weights))
            edges.walked_back(added)
        else:
            found = _walked_back(grad, edge_index, weights, edges, *ctx.form[:-1])
        return found, None, None, None, None, None, None


_apply = untransformed(_Sum)


def _as_kernels_read(weights: Tensor | None) -> Tensor | None:
    # hooks of saved tensors may have laid them out otherwise
    return weights if weights is None or weights.is_contiguous() else weights.contiguous()


def _by_torch(
    x: Tensor, edge_index: Tensor, weights: Tensor | None, edges: FewEdges, reduce: str, itself: float | None,
    transposed: bool,
) -> Tensor:  # fmt: skip
    """`added_along` by operators of torch, for whoever intercepts them: with a tensor of edges x channels."""
    target_row = target_row_of(edges.flow)
    targets, sources = edge_index[target_row], edge_index[1 - target_row]
    with_loops = reduce == NORMALISED_WITH_LOOPS
    # numbers of edges must not follow from their values
    counts = torch.where(targets == sources, 0.0, 1.0) if with_loops else torch.ones_like(targets, dtype=torch.float32)
    loops = torch.full((edges.num_targets,), float(with_loops), device=x.device)
    degree = loops.index_add(0, targets, counts).to(x.dtype)
    here, there, num_rows = targets, sources, edges.num_targets
    if transposed:
        here, there, num_rows = sources, targets, edges.num_sources
    rows = x.index_select(0, there)
    if with_loops:
        rows = torch.where((targets == sources).unsqueeze(1), 0.0, rows)
    factors = None
    if reduce == MEAN:
        rows = rows / degree.clamp(min=1)[targets].unsqueeze(1)
    elif reduce == WEIGHTED:
        rows = rows * weights.view(-1, 1)
    elif reduce != SUM:
        factors = torch.where(degree > 0, degree.rsqrt(), 0.0)
        rows = rows * (factors[targets] * factors[sources]).unsqueeze(1)
    out = torch.zeros(num_rows, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, here, rows)
    if with_loops:
        out = out + x * factors.square().unsqueeze(1)
    return out if itself is None else out + itself * x


def _walked_back(
    grad: Tensor, edge_index: Tensor, weights: Tensor | None, edges: FewEdges, reduce: str, itself: float | None
) -> Tensor:
    """The adjoint by walks of sorted edges, which do what is said by a ``with`` block around a backward pass."""
    _, flow, num_sources, num_targets, note, _ = edges
    sorted_edges = Edges(
        edge_index, num_sources, num_targets, flow, num_targets if reduce == NORMALISED_WITH_LOOPS else None
    )
    x, program, operands = grad.new_zeros(num_sources, grad.shape[1]).requires_grad_(), NEIGHBOURS, {}
    if reduce == WEIGHTED:
        program, operands, reduce = WEIGHTED_NEIGHBOURS, {'edge_weight': weights.view(-1, 1)}, SUM
    elif reduce not in SUMS:
        degree = sorted_edges.graph().degree.to(x.dtype).unsqueeze(1)
        factors = torch.where(degree > 0, degree.rsqrt(), 0.0)
        program, operands, reduce = NORMALISED_NEIGHBOURS, {'norm_src': factors, 'norm_dst': factors}, 'sum'
    with torch.enable_grad(), changed(note=None if note is None else note()):
        out = aggregate(program, sorted_edges, {'x': x, **operands}, 1, grad.shape[1], reduce, flat=True)
        (found,) = torch.autograd.grad(out, x, grad)
    return found if itself is None else found + itself * grad
