"""The values of a network on edges, reduced over each target's edges, as a PyTorch operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.finite import is_finite
from pygfuse.ops.edge_mlp.autograd import backward, keep
from pygfuse.ops.edge_mlp.stages import EdgeStage, Map, channels_of, like_operands, read
from pygfuse.ops.edge_mlp.tape import Tape
from pygfuse.ops.edges import Edges

# sums over so many chunks join the sum of such sums: float32 would lose digits in one long sum
SETTLED_AFTER = 32


@torch.library.custom_op('pygfuse::edge_reduce', mutates_args=())
def _edge_reduce(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str, reduce: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    tape = Tape(source, target, read(text, tensors), Edges(token, num_sources, num_targets, flow), False)
    out = source.new_zeros(num_targets, tape.channels)
    winners = torch.zeros_like(out) if reduce == 'max' else source.new_empty(0)
    for chunk in tape.chunks:
        values = tape.forward(chunk)[-1]
        if reduce == 'max':
            tape.kernels.keep_largest(tape.csr, chunk, values, out, winners)
        else:
            tape.kernels.add_to_targets(tape.csr, chunk, values, out)
    return out, winners


@_edge_reduce.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow, reduce):
    out = source.new_empty(num_targets, channels_of(source, read(text, tensors)))
    return out, torch.empty_like(out) if reduce == 'max' else source.new_empty(0)


@torch.library.custom_op('pygfuse::edge_reduce_backward', mutates_args=())
def _edge_reduce_backward(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str, reduce: str, winners: Tensor, grad_out: Tensor,
) -> list[Tensor]:  # fmt: skip
    stages, edges = read(text, tensors), Edges(token, num_sources, num_targets, flow)
    grad_out = grad_out.contiguous()
    if reduce == 'max' and stages and isinstance(stages[-1], Map) and _all_finite(source, target, tensors):
        return _backward_of_winners(source, target, stages, edges, winners, grad_out)
    tape = Tape(source, target, stages, edges, True)
    for chunk in tape.chunks:
        values = tape.forward(chunk)
        chosen = winners if reduce == 'max' else None
        tape.kernels.spread(tape.csr, chunk, grad_out, chosen, tape.grad_of_values(chunk))
        tape.backward(chunk, values)
    return tape.found()


def _all_finite(source: Tensor, target: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether a product with a gradient of zero is zero, so that it can be left out."""
    return all(is_finite(tensor) for tensor in (source, target, *tensors))


def _backward_of_winners(
    source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges, winners: Tensor, grad_out: Tensor
) -> list[Tensor]:
    """Where a map is last, only its rows of winning edges and channels have a gradient: no product is needed."""
    weight = stages[-1].weight.contiguous()
    tape = Tape(source, target, stages[:-1], edges, True)
    summands = weight.new_zeros(tape.kernels.WEIGHT_PARTS, *weight.shape)
    grad_weight = torch.zeros_like(weight)
    for i, chunk in enumerate(tape.chunks, start=1):
        values = tape.forward(chunk)
        tape.kernels.map_adjoint_at_winners(
            tape.csr, chunk, grad_out, winners, weight, values[-1], tape.grad_of_values(chunk), summands
        )
        tape.backward(chunk, values)
        if i % SETTLED_AFTER == 0 or i == len(tape.chunks):
            grad_weight.add_(summands.sum(dim=0))
            summands.zero_()
    has_edges = tape.csr.indptr.diff() > 0
    of_bias = torch.where(winners.isnan(), winners, grad_out)
    return [*tape.found(), grad_weight, torch.where(has_edges.unsqueeze(1), of_bias, 0.0).sum(dim=0)]


@_edge_reduce_backward.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow, reduce, winners, grad_out):
    return like_operands(source, target, tensors)


_edge_reduce.register_autograd(backward, setup_context=keep)
