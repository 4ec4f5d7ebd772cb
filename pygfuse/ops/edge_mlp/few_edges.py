"""A network on few edges by one kernel forward and one backward, where its stages have such kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import few_edge_stages_of
from pygfuse._lib.functions import untransformed
from pygfuse.graph.adjacency import target_row_of
from pygfuse.ops.edge_mlp.eager import network_eagerly
from pygfuse.ops.edge_mlp.reference import reduced, values_of
from pygfuse.ops.edge_mlp.stages import Begin, Drop, EdgeStage, Map, Normalise, Plus, Times, tensors_of, written
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import are_taken_at_once, say_which
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.program import few_edge_stages as kinds
from pygfuse.program.activation import Activation
from pygfuse.program.few_edge_stages import FewEdgeStages

_KINDS = {kinds.Sum: Begin, kinds.Mapped: Map, kinds.Added: Plus, kinds.Multiplied: Times, kinds.Dropped: Drop}


def kernels_of(stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> FewEdgeStages | None:
    """The network as its kernels take it; None where there are none for it, or a tensor has another type or shape than
    they would read.

    Args:
        stages: What happens on an edge; the first is a `Begin`.
        edges: The edges, which `pygfuse.ops.listed.is_list`.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.
    """
    like, width = stages[0].first, stages[0].width
    sources, targets, num_edges = edges.num_sources, edges.num_targets, edges.token.shape[1]
    found: list[kinds.FewEdgeStage] = []
    shapes: list[tuple[Tensor | None, tuple[int, ...]]] = []
    for stage in stages:
        if isinstance(stage, Begin):
            there = [end is not None for end in (stage.source, stage.target, stage.features)]
            found.append(kinds.Sum(width, *there))
            shapes += [(stage.source, (sources, width)), (stage.target, (targets, width))]
            shapes.append((stage.features, (num_edges, width)))
        elif isinstance(stage, Map):
            after = stage.weight.shape[0]
            found.append(kinds.Mapped(width, after, stage.bias is not None))
            shapes += [(stage.weight, (after, width)), (stage.bias, (after,))]
            width = after
        elif isinstance(stage, Plus):
            features = width if stage.weight is None else stage.features.shape[1]
            found.append(kinds.Added(width, features, stage.weight is not None))
            shapes += [(stage.features, (num_edges, features)), (stage.weight, (width, features))]
        elif isinstance(stage, Times):
            features = 0 if stage.features is None else 1 if stage.features.shape[1] == 1 else width
            found.append(kinds.Multiplied(width, stage.source is not None, features))
            shapes += [(stage.source, (sources, width)), (stage.features, (num_edges, features))]
        elif isinstance(stage, Drop):
            found.append(kinds.Dropped(width))
            shapes += [(stage.features, (num_edges, 1)), (stage.draws, (2, width))]
        elif isinstance(stage, Normalise) and width > 1:
            # one number is what it is beside its mean, nothing, and its gradient what rounding leaves
            found.append(kinds.Normalised(width, stage.weight is not None, stage.bias is not None, stage.eps))
            shapes += [(stage.weight, (width,)), (stage.bias, (width,))]
        elif isinstance(stage, Activation):
            found.append(kinds.Applied(stage, width))
        else:
            return None
    if any(t is not None and (t.shape != shape or t.dtype is not like.dtype) for t, shape in shapes):
        return None
    return _taken(tuple(found), reduce, like.dtype, like.device.type)


@functools.lru_cache(maxsize=256)
def _taken(stages: tuple, reduce: str, dtype: torch.dtype, device: str) -> FewEdgeStages | None:
    kernels, network = few_edge_stages_of(torch.device(device)), FewEdgeStages(stages, reduce, dtype)
    return network if kernels is not None and kernels.is_taken(network) else None


def network_along(
    network: FewEdgeStages, stages: Sequence[EdgeStage], edges: Edges, with_state: bool
) -> tuple[Tensor, Tensor | None]:
    """The reduced values, no rows where nothing is reduced, and those of edges, or None; ties in a maximum share its
    gradient.

    Args:
        network: The network, of `kernels_of`.
        stages: Its stages; nobody intercepts their tensors.
        edges: The edges, which `pygfuse.ops.listed.is_list`.
        with_state: Whether the values of edges are wanted.

    Returns:
        ``[num_targets, channels]``, or ``[0, channels]``, and ``[edges, channels]`` in the user's order.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    tensors = [t if t.is_contiguous() else t.contiguous() for t in tensors_of(stages)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return _apply(network, edges, with_state, edges.token, *tensors)
    return _forward(network, edges, with_state, edges.token, tensors)


def _forward(
    network: FewEdgeStages, edges: Edges, with_state: bool, edge_index: Tensor, tensors: Sequence[Tensor]
) -> tuple[Tensor, Tensor | None]:
    nodes = target_row_of(edges.flow), edges.num_targets, edges.num_sources
    try:
        return few_edge_stages_of(edge_index.device).forward(network, edge_index, *nodes, tensors, with_state)
    except IndexError:
        say_which(edges)
        raise


class _Network(torch.autograd.Function):
    @staticmethod
    def forward(ctx, network, edges, with_state, edge_index, *tensors):
        ctx.save_for_backward(edge_index, *tensors)
        ctx.network, ctx.edges = network, (edges.num_sources, edges.num_targets, edges.flow)
        ctx.set_materialize_grads(False)
        # of a view that is made within, torch lets nobody write
        return tuple(x if x is None else x.data for x in _forward(network, edges, with_state, edge_index, tensors))

    @staticmethod
    @in_types_of_forward
    def backward(ctx, of_out, of_state):
        edge_index, *tensors = ctx.saved_tensors
        grads, wanted = [g for g in (of_out, of_state) if g is not None], ctx.needs_input_grad[4:]
        if not grads:
            # autograd asks also where what follows gives none
            return (None,) * (4 + len(tensors))
        compute = _gradients
        if torch.is_grad_enabled() or any(map(is_batched, grads)) or is_watched([*grads, *tensors]):
            compute = _differentiable_gradients
        found = compute(ctx.network, Edges(edge_index, *ctx.edges), tensors, (of_out, of_state), wanted)
        return None, None, None, None, *found


_apply = untransformed(_Network)


def _gradients(
    network: FewEdgeStages, edges: Edges, tensors: Sequence[Tensor], grads: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    # hooks of saved tensors may have laid them out otherwise
    edge_index = edges.token.contiguous()
    tensors = [t if t.is_contiguous() else t.contiguous() for t in tensors]
    grads = [grad if grad is None else grad.contiguous() for grad in grads]
    nodes = target_row_of(edges.flow), edges.num_targets, edges.num_sources
    kernels = few_edge_stages_of(edge_index.device)
    return kernels.backward(network, edge_index, *nodes, tensors, *grads, tuple(wanted))


def _differentiable_gradients(
    network: FewEdgeStages, edges: Edges, tensors: Sequence[Tensor], grads: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The same as functions of everything, for whoever intercepts or differentiates them.

    On chunks of edges, whose gradients of gradients keep nothing of edges. By operators of torch of a maximum, whose
    ties share a gradient, and where all edges have a row anyway.
    """
    with_graph = torch.is_grad_enabled()
    there = [grad for grad in grads if grad is not None]
    is_plain = network.reduce != 'max' and not any(map(is_batched, there)) and not is_watched([*there, *tensors])
    in_chunks = is_plain and not are_taken_at_once(edges, max(network.widths), network.dtype.itemsize)
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        given = [t.view_as(t) for t in tensors]
        results = (_by_chunks if in_chunks else _by_torch)(
            network, edges, _stages_of(network, given), grads[1] is not None
        )
        pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
        leaves = [t for t, is_wanted in zip(given, wanted, strict=True) if is_wanted]
        outs, of_outs = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outs, leaves, of_outs, create_graph=with_graph, allow_unused=True))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def _by_torch(
    network: FewEdgeStages, edges: Edges, stages: Sequence[EdgeStage], with_state: bool
) -> tuple[Tensor, Tensor]:
    row = target_row_of(edges.flow)
    values = values_of(stages, edges.token[1 - row], edges.token[row])
    return reduced(values, edges.token[row], edges.num_targets, network.reduce), values


def _by_chunks(
    network: FewEdgeStages, edges: Edges, stages: Sequence[EdgeStage], with_state: bool
) -> tuple[Tensor, Tensor]:
    text, tensors = written(stages)
    return network_eagerly(tensors, text, edges, network.reduce, with_state)


def _stages_of(network: FewEdgeStages, tensors: Sequence[Tensor]) -> list[EdgeStage]:
    """The reverse of `kernels_of`."""
    found: list[EdgeStage] = []
    for stage, places in zip(network.stages, network.places, strict=True):
        given = [None if place is None else tensors[place] for place in places]
        if isinstance(stage, kinds.Normalised):
            found.append(Normalise(*given, stage.eps))
        else:
            found.append(stage.activation if isinstance(stage, kinds.Applied) else _KINDS[type(stage)](*given))
    return found
