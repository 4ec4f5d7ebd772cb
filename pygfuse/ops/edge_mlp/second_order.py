"""The gradient of a gradient of a network on edges, chunk by chunk.

The gradients ``g`` of a network's operands, given that of its results, are a function of the operands and of what they
were given. The gradient of ``g`` along tangents ``t`` of the operands is that of ``<grad, results changed along t>``, a
sum over edges again: one pass takes each chunk's values and tangents forward and both back. Nothing of edges is kept
but what the user gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse.mapping.edge_chunks import EdgeChunk, chunks_of
from pygfuse.ops.edge_mlp.operands import Operands
from pygfuse.ops.edge_mlp.stages import features_of, held_apart, read, widest_of, widths_of
from pygfuse.ops.edge_mlp.tangent_steps import tangent_steps_of
from pygfuse.ops.edge_mlp.tangents import Tangents
from pygfuse.ops.edge_mlp.tape import StagedTape
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.lazy_values import given_values


class Network(NamedTuple):
    """A network on edges but for its tensors: what its operator takes beside them."""

    text: str
    num_sources: int
    num_targets: int
    flow: str
    reduce: str

    def edges(self, token: Tensor) -> Edges:
        return Edges(token, self.num_sources, self.num_targets, self.flow)


def twice_differentiable(
    network: Network,
    token: Tensor,
    operands: Sequence[Tensor],
    grads: tuple[Tensor, Tensor | None],
    compute: Callable[[], Sequence[Tensor | None]],
    by_operators: Callable[..., Sequence[Tensor | None]],
) -> list[Tensor | None]:
    """The gradients of a network's operands, as functions of these and of the gradients of its results.

    Args:
        network: The network; its values are summed or kept edge by edge.
        token: What stands for its edges.
        operands: Its tensors.
        grads: The gradients of the sums and of the values of edges, None where nobody reads the latter.
        compute: Gives the gradients.
        by_operators: The same by PyTorch's operators, of `operands` and `grads`: for derivatives of yet a higher order.
    """
    return list(_Gradients.apply(network, compute, by_operators, token, *grads, *operands))


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, network, compute, by_operators, token, grad_out, grad_state, *operands):
        ctx.network, ctx.by_operators = network, by_operators
        ctx.save_for_backward(token, grad_out, grad_state, *operands)
        ctx.set_materialize_grads(False)
        return tuple(compute())

    @staticmethod
    @given_values
    def backward(ctx, *tangents):
        token, grad_out, grad_state, *operands = ctx.saved_tensors
        if all(tangent is None for tangent in tangents):
            return (None,) * (6 + len(operands))
        needed = ctx.needs_input_grad[4:]
        grads = grad_out, grad_state
        if torch.is_grad_enabled() or any(t is not None and is_batched(t) for t in (*grads, *tangents)):
            found = _by_operators(ctx.by_operators, grads, operands, tangents, needed)
        else:
            found = _in_chunks(ctx.network, token, grads, operands, tangents, needed)
        return None, None, None, None, *found


def _by_operators(
    gradients: Callable[..., Sequence[Tensor | None]],
    grads: Sequence[Tensor | None],
    operands: Sequence[Tensor],
    tangents: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    with torch.enable_grad():
        given = [None if t is None else t.view_as(t) for t in (*grads, *operands)]
        first = gradients(given[2:], given[:2])
        pairs = [(g, t) for g, t in zip(first, tangents, strict=True) if t is not None and g is not None]
        results, along = zip(*pairs, strict=True)
        wanted = [t for t, is_needed in zip(given, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(results, wanted, along, create_graph=True, allow_unused=True))
    return [next(found) if is_needed else None for is_needed in needed]


def _in_chunks(
    network: Network,
    token: Tensor,
    grads: Sequence[Tensor | None],
    operands: Sequence[Tensor],
    tangents: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    grad_out, grad_state = (None if grad is None else grad.contiguous() for grad in grads)
    tape = _Tape(network, token, operands, tangents, needed[2:])
    is_summed = network.reduce == 'sum'
    of_out = torch.zeros_like(grad_out) if needed[0] else None
    of_state = torch.zeros_like(grad_state) if needed[1] else None
    for chunk in tape.chunks:
        values = tape.forward(chunk)
        _, changed = values[-1]
        if of_out is not None and is_summed:
            tape.kernels.add_to_targets(tape.csr, chunk, changed, of_out)
        if of_state is not None:
            tape.kernels.put_edges(tape.csr, chunk, changed, of_state)
        of_values, of_tangents = tape.grad_of_values(chunk)
        of_values.zero_()
        if is_summed:
            tape.kernels.spread(tape.csr, chunk, grad_out, None, of_tangents)
        if grad_state is not None:
            tape.kernels.take_edges(tape.csr, chunk, grad_state, of_tangents, adds=is_summed)
        tape.backward(chunk, values)
    found = zip(tape.found(), needed[2:], strict=True)
    return [of_out, of_state, *(grad if is_needed else None for grad, is_needed in found)]


class _Tape(StagedTape):
    """The stages with tangents of their operands, forward and backward on one chunk at a time."""

    def __init__(
        self,
        network: Network,
        token: Tensor,
        operands: Sequence[Tensor],
        tangents: Sequence[Tensor | None],
        needed: Sequence[bool],
    ) -> None:
        tensors = held_apart(operands)
        stages = read(network.text, tensors)
        self.csr = network.edges(token).graph().csr
        size = edge_chunks_of(tensors[0].device).chunk_size(widest_of(stages) * tensors[0].element_size())
        self.chunks = chunks_of(self.csr, size)
        size = min(size, self.csr.num_edges)
        operands = Operands(tensors, features_of(stages), self.csr, size, True, needed)
        given = [None if t is None else t.contiguous().detach() for t in tangents]
        self._tangents = Tangents(operands, tensors, given, size)
        super().__init__(operands, tangent_steps_of(stages, operands, self._tangents))
        self.kernels = operands.kernels
        self._channels = widths_of(stages)[-1]
        self._grads = operands.new_rows(2 * self._channels).flatten()

    def forward(self, chunk: EdgeChunk) -> list[Tensor]:
        """The values and tangents after each stage."""
        self._tangents.begin(chunk)
        for rows in self._operands.all_edge_rows():
            rows.begin(chunk)
        values: list[Tensor] = []
        for step in self._steps:
            values.append(step.forward(chunk, values[-1] if values else None))
        return values

    def grad_of_values(self, chunk: EdgeChunk) -> Tensor:
        """Where the gradients of the last values and tangents go before `backward`."""
        return self._grads[: 2 * chunk.edges * self._channels].view(2, chunk.edges, self._channels)
