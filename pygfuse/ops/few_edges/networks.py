"""Networks on few edges as they come, `pygfuse.cpu.few_edges.networks`, differentiated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse._lib.backends import few_edge_networks_of
from pygfuse._lib.finite import is_finite
from pygfuse._lib.functions import untransformed
from pygfuse.graph.adjacency import target_row_of
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.intercepted import is_plain_gradient
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork


def network_along(
    network: FewEdgeNetwork, edges: FewEdges, pair: tuple[Tensor, Tensor | None], weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
) -> Tensor:  # fmt: skip
    """What a network gives for each edge, of a target and its difference to the source, reduced by target.

    Edges that tie in a maximum share its gradient.

    Args:
        network: The network.
        edges: The edges.
        pair: Features of sources and of targets, the latter None where these are the same nodes.
        weights, biases: Of the linear maps.

    Raises:
        ValueError: If an edge names a node that is not there.
    """
    tensors = (*pair, *weights, *biases)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _apply(network, edges, edges.edge_index, *tensors)
    return _forward(network, edges, edges.edge_index, tensors)[0]


def _parts_of(tensors: Sequence[Tensor | None]) -> tuple[tuple, tuple, tuple]:
    """Features, weights and biases, laid out as kernels read them."""
    tensors = [t if t is None or t.is_contiguous() else t.contiguous() for t in tensors]
    x, x_target, *maps = tensors
    half = len(maps) // 2
    return (x, x if x_target is None else x_target), tuple(maps[:half]), tuple(maps[half:])


def _forward(network: FewEdgeNetwork, edges: FewEdges, edge_index: Tensor, tensors: Sequence[Tensor | None]) -> tuple:
    try:
        return few_edge_networks_of(edge_index.device).forward(
            network, edge_index, target_row_of(edges.flow), *_parts_of(tensors)
        )
    except IndexError:
        edges._replace(edge_index=edge_index).check()
        raise


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx, network, edges, edge_index, *tensors):
        out, *ends = _forward(network, edges, edge_index, tensors)
        ctx.save_for_backward(edge_index, *ends, *tensors)
        ctx.network, ctx.edges = network, edges
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        edge_index, *ends = ctx.saved_tensors
        network, edges, tensors, needed = ctx.network, ctx.edges, ends[2:], ctx.needs_input_grad[3:]
        found = None
        if is_plain_gradient(grad) and not torch.is_grad_enabled():
            found = _gradients(network, edges, edge_index, tensors, ends[:2], grad, needed)
        if found is None:
            found = _by_torch(network, edges, edge_index, tensors, grad, needed)
        edges.walked_back(edge_index.shape[1])
        return None, None, None, *found


_apply = untransformed(_Network)


def _gradients(
    network: FewEdgeNetwork, edges: FewEdges, edge_index: Tensor, tensors: Sequence[Tensor | None],
    ends: Sequence[Tensor], grad: Tensor, needed: Sequence[bool],
) -> list[Tensor | None] | None:  # fmt: skip
    """The gradients by a kernel; None where something is not finite, which it spreads to where there are no edges."""
    # hooks of saved tensors may have laid them out otherwise
    if edge_index.dtype is not torch.int64 or not edge_index.is_contiguous():
        edge_index = edge_index.to(torch.int64).contiguous()
    ends = [end.contiguous() for end in ends]
    of_x, of_target, of_weights, of_biases = few_edge_networks_of(edge_index.device).backward(
        network, edge_index, target_row_of(edges.flow), *_parts_of(tensors), ends, grad.contiguous(), any(needed[:2])
    )
    found = [of_x, of_target, *of_weights, *of_biases]
    if not all(t is None or is_finite(t) for t in found):
        return None
    return [t if is_needed else None for t, is_needed in zip(found, needed, strict=True)]


def _by_torch(
    network: FewEdgeNetwork, edges: FewEdges, edge_index: Tensor, tensors: Sequence[Tensor | None], grad: Tensor,
    needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The gradients by operators of torch, for whoever intercepts or differentiates them."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        given = [None if t is None else t.view_as(t) for t in tensors]
        out = _reference(network, edges, edge_index, given)
        wanted = [t for t, is_needed in zip(given, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(out, wanted, grad, create_graph=with_graph, allow_unused=True))
    return [next(found) if is_needed else None for is_needed in needed]


def _reference(
    network: FewEdgeNetwork, edges: FewEdges, edge_index: Tensor, tensors: Sequence[Tensor | None]
) -> Tensor:
    """The network as PyG computes it, with tensors of edges x features; of an extreme the gradient alone is right."""
    x, x_target, *maps = tensors
    half, row = len(maps) // 2, target_row_of(edges.flow)
    targets, sources = edge_index[row], edge_index[1 - row]
    own = (x if x_target is None else x_target).index_select(0, targets)
    values = F.linear(torch.cat([own, x.index_select(0, sources) - own], dim=1), maps[0], maps[half])
    j = 1
    for stage in network.stages:
        if isinstance(stage, Activation):
            values = stage(values)
        else:
            values, j = F.linear(values, maps[j], maps[half + j]), j + 1
    zeros = values.new_zeros(edges.num_targets, values.shape[1])
    if network.reduce in ('max', 'min'):
        held = values.detach()
        best = zeros.index_reduce(0, targets, held, f'a{network.reduce}', include_self=False)[targets]
        attains = (held == best).to(values.dtype)
        # of one that is NaN all edges get NaN
        values = values * (attains / zeros.index_add(0, targets, attains)[targets])
    out = zeros.index_add(0, targets, values)
    if network.reduce == 'mean':
        counts = torch.bincount(targets, minlength=edges.num_targets).clamp(min=1)
        out = out / counts.to(out.dtype).unsqueeze(1)
    return out
