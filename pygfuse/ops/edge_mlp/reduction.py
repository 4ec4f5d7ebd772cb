"""The values of a network on edges, reduced over each target's edges, kept edge by edge, or both: an operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse._lib.finite import is_finite
from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp.autograd import backward_of_operator, keep
from pygfuse.ops.edge_mlp.stages import EdgeStage, Map, held_apart, like_operands, read, widths_of
from pygfuse.ops.edge_mlp.tape import Tape
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.kept_memory import fake_of
from pygfuse.ops.within_torch.tags import OF_EDGES

# sums over so many chunks join the sum of such sums: float32 would lose digits in one long sum
SETTLED_AFTER = 32


def network_values(
    tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int, num_targets: int, flow: str, reduce: str,
    with_state: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The reduced values, the places of a maximum, and the values of edges: empty where they are not wanted.

    Args:
        tensors, text: The stages, as `pygfuse.ops.edge_mlp.stages.written` gives them.
        token, num_sources, num_targets, flow: The edges, as of `pygfuse.ops.edges.Edges`.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.
        with_state: Whether the values of edges are wanted.

    Returns:
        ``[num_targets, channels]`` twice and ``[edges, channels]``, each with no rows where it is not wanted.

    Raises:
        ValueError: If an edge names a node that is not there.
    """
    tensors = held_apart(tensors)
    are_sums = reduce == 'sum' and not with_state
    tape = Tape(tensors, read(text, tensors), Edges(token, num_sources, num_targets, flow), False, are_sums=are_sums)
    out, winners, state = _results(tensors[0], tape.channels, num_targets, tape.csr.num_edges, reduce, with_state)
    out.zero_()
    winners.zero_()
    tape.kernels.on_huge_pages(state)
    for chunk in tape.chunks:
        if are_sums:
            tape.add_sums(chunk, out)
            continue
        values = tape.forward(chunk)[-1]
        if reduce == 'max':
            tape.kernels.keep_largest(tape.csr, chunk, values, out, winners)
        elif reduce == 'sum':
            tape.kernels.add_to_targets(tape.csr, chunk, values, out)
        if with_state:
            tape.kernels.put_edges(tape.csr, chunk, values, state)
    return out, winners, state


def _results(
    like: Tensor, channels: int, num_targets: int, num_edges: int, reduce: str, with_state: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The reduced values, the places of a maximum, and the values of edges: empty where they are not wanted."""
    return (
        like.new_empty(num_targets if reduce != 'none' else 0, channels),
        like.new_empty(num_targets if reduce == 'max' else 0, channels),
        like.new_empty(num_edges if with_state else 0, channels),
    )


_edge_network = torch.library.custom_op('pygfuse::edge_network', mutates_args=(), tags=OF_EDGES)(network_values)


@fake_of(_edge_network)
def _(tensors, text, token, num_sources, num_targets, flow, reduce, with_state):
    stages = read(text, tensors)
    num_edges = 0
    if with_state:
        # the token of a graph does not say how many
        num_edges = token.shape[1] if token.dim() == 2 else torch.library.get_ctx().new_dynamic_size()
    return _results(tensors[0], widths_of(stages)[-1], num_targets, num_edges, reduce, with_state)


def network_gradients(
    tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int, num_targets: int, flow: str, reduce: str,
    wanted: Sequence[bool], winners: Tensor, grad_out: Tensor, grad_state: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """The gradients of a network's tensors; empty ones of those that are not wanted.

    Args:
        tensors, text, token, num_sources, num_targets, flow, reduce: As of `network_values`.
        wanted: Which gradients are wanted.
        winners: What that gave beside the values.
        grad_out: The gradient of the reduced values.
        grad_state: That of the values of edges, or None.
    """
    tensors = held_apart(tensors)
    stages, edges = read(text, tensors), Edges(token, num_sources, num_targets, flow)
    grad_out, grad_state = grad_out.contiguous(), None if grad_state is None else grad_state.contiguous()
    if reduce == 'max' and grad_state is None and _maps_winners_alone(stages, tensors):
        return _backward_of_winners(tensors, stages, edges, wanted, winners, grad_out)
    are_sums = reduce == 'sum' and grad_state is None
    tape = Tape(tensors, stages, edges, True, wanted, are_sums)
    for chunk in tape.chunks:
        if are_sums:
            tape.backward_of_sums(chunk, grad_out)
            continue
        values = tape.forward(chunk, with_last=False)
        _take_gradients(tape, chunk, reduce, winners, grad_out, grad_state)
        tape.backward(chunk, values)
    return tape.found()


def _take_gradients(
    tape: Tape, chunk: EdgeChunk, reduce: str, winners: Tensor, grad_out: Tensor, grad_state: Tensor | None
) -> None:
    """Writes the gradient of a chunk's values: that of the reduction, that of the values kept, or the sum of both."""
    grad = tape.grad_of_values(chunk)
    if reduce != 'none':
        tape.kernels.spread(tape.csr, chunk, grad_out, winners if reduce == 'max' else None, grad)
    if grad_state is not None:
        tape.kernels.take_edges(tape.csr, chunk, grad_state, grad, adds=reduce != 'none')


def _maps_winners_alone(stages: Sequence[EdgeStage], tensors: Sequence[Tensor]) -> bool:
    """Whether a map is last and its products with gradients of zero are left out: they are zero if all is finite."""
    if not isinstance(stages[-1], Map) or not edge_chunks_of(tensors[0].device).MAPS_WINNERS_ALONE:
        return False
    return all(is_finite(tensor) for tensor in tensors)


def _backward_of_winners(
    tensors: Sequence[Tensor],
    stages: Sequence[EdgeStage],
    edges: Edges,
    wanted: Sequence[bool],
    winners: Tensor,
    grad_out: Tensor,
) -> list[Tensor]:
    """Where a map is last, only its rows of winning edges and channels have a gradient: no product is needed."""
    last = stages[-1]
    of_last = [t for t in (last.weight, last.bias) if t is not None]
    before = [t for t in tensors if not any(t is other for other in of_last)]
    # those of the last stage are the last of all
    tape = Tape(before, stages[:-1], edges, True, wanted[: len(before)])
    summands = last.weight.new_zeros(tape.kernels.WEIGHT_PARTS, *last.weight.shape)
    grad_weight = torch.zeros_like(last.weight)
    for i, chunk in enumerate(tape.chunks, start=1):
        values = tape.forward(chunk)
        tape.kernels.map_adjoint_at_winners(
            tape.csr, chunk, grad_out, winners, last.weight, values[-1], tape.grad_of_values(chunk), summands
        )
        tape.backward(chunk, values)
        if i % SETTLED_AFTER == 0 or i == len(tape.chunks):
            grad_weight.add_(summands.sum(dim=0))
            summands.zero_()
    has_edges = tape.csr.indptr.diff() > 0
    of_bias = torch.where(winners.isnan(), winners, grad_out)
    found = [grad_weight, torch.where(has_edges.unsqueeze(1), of_bias, 0.0).sum(dim=0)]
    pairs = zip(found[: len(of_last)], wanted[len(before) :], strict=True)
    return [*tape.found(), *(grad if is_wanted else grad.new_empty(0) for grad, is_wanted in pairs)]


_edge_network_backward = torch.library.custom_op('pygfuse::edge_network_backward', mutates_args=(), tags=OF_EDGES)(
    network_gradients
)


@fake_of(_edge_network_backward)
def _(tensors, text, token, num_sources, num_targets, flow, reduce, wanted, winners, grad_out, grad_state):
    return [
        like if is_wanted else like.new_empty(0) for like, is_wanted in zip(like_operands(tensors), wanted, strict=True)
    ]


_edge_network.register_autograd(backward_of_operator, setup_context=keep)
