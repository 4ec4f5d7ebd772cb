"""Mean and covariance of the values of a network on edges, as a PyTorch operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.ops.edge_mlp.autograd import backward_of_operator, keep
from pygfuse.ops.edge_mlp.stages import EdgeStage, held_apart, like_operands, read, widths_of, written
from pygfuse.ops.edge_mlp.tape import Tape
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.kept_memory import fake_of
from pygfuse.ops.within_torch.tags import OF_EDGES


def edge_moments(stages: Sequence[EdgeStage], edges: Edges) -> tuple[Tensor, Tensor]:
    """Mean ``[channels]`` and (biased) covariance ``[channels, channels]`` of the stages' values, in float64.

    Args:
        stages: What happens on an edge; the first is a `Begin`.
        edges: The edges, at least one.
    """
    text, tensors = written(stages)
    mean, covariance = torch.ops.pygfuse.edge_moments(
        tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow
    )
    return mean, covariance


@torch.library.custom_op('pygfuse::edge_moments', mutates_args=(), tags=OF_EDGES)
def _edge_moments(
    tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int, num_targets: int, flow: str
) -> tuple[Tensor, Tensor]:
    tensors = held_apart(tensors)
    tape = Tape(tensors, read(text, tensors), Edges(token, num_sources, num_targets, flow), False)
    # a graph's token is on a CPU
    mean = tensors[0].new_zeros(tape.channels, dtype=torch.float64)
    squares = tensors[0].new_zeros(tape.channels, tape.channels, dtype=torch.float64)
    count = 0
    for chunk in tape.chunks:
        # each chunk about its own mean, then merged: no cancellation wherever the values lie
        values = tape.forward(chunk)[-1]
        middle = values.mean(dim=0)
        values.sub_(middle)
        squares.add_(values.t() @ values)
        # the mean as rounded leaves a rest
        rest = values.mean(dim=0).double()
        squares.addr_(rest, rest, alpha=-chunk.edges)
        difference = middle.double() + rest - mean
        total = count + chunk.edges
        squares.addr_(difference, difference, alpha=count * chunk.edges / total)
        mean.add_(difference, alpha=chunk.edges / total)
        count = total
    return mean, squares.div_(count)


@fake_of(_edge_moments)
def _(tensors, text, token, num_sources, num_targets, flow):
    channels = widths_of(read(text, tensors))[-1]
    mean = tensors[0].new_empty(channels, dtype=torch.float64)
    return mean, tensors[0].new_empty(channels, channels, dtype=torch.float64)


@torch.library.custom_op('pygfuse::edge_moments_backward', mutates_args=(), tags=OF_EDGES)
def _edge_moments_backward(
    tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int, num_targets: int, flow: str,
    mean: Tensor, grad_mean: Tensor, grad_covariance: Tensor,
) -> list[Tensor]:  # fmt: skip
    tensors = held_apart(tensors)
    tape = Tape(tensors, read(text, tensors), Edges(token, num_sources, num_targets, flow), True)
    count, dtype = tape.csr.num_edges, tensors[0].dtype
    middle, constant = mean.to(dtype), (grad_mean / count).to(dtype)
    both_ways = ((grad_covariance + grad_covariance.t()) / count).to(dtype)
    for chunk in tape.chunks:
        values = tape.forward(chunk)
        torch.addmm(constant, values[-1] - middle, both_ways, out=tape.grad_of_values(chunk))
        tape.backward(chunk, values)
    return tape.found()


@fake_of(_edge_moments_backward)
def _(tensors, text, token, num_sources, num_targets, flow, mean, grad_mean, grad_covariance):
    return like_operands(tensors)


_edge_moments.register_autograd(backward_of_operator, setup_context=keep)
