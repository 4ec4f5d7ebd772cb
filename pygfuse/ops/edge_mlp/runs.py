"""Linear maps and activations that follow one another, as one step of a chunk where the device has a kernel for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp.operands import Operands
from pygfuse.ops.edge_mlp.stages import Begin, EdgeStage, Map, widths_of
from pygfuse.program.activation import Activation


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """Stages of a network that follow one another.

    Attributes:
        stages: Those.
        widths: Values of an edge before the first and after each.
        previous: The stage before the first, if there is one.
    """

    stages: Sequence[EdgeStage]
    widths: Sequence[int]
    previous: EdgeStage | None


def stretches_of(stages: Sequence[EdgeStage]) -> list[Stretch]:
    """A network in stretches: linear maps and activations that follow one another, and other stages one by one."""
    widths, found, first = [0, *widths_of(stages)], [], 0
    for i in range(1, len(stages) + 1):
        if i == len(stages) or not all(isinstance(stage, (Map, Activation)) for stage in stages[i - 1 : i + 1]):
            found.append(Stretch(stages[first:i], widths[first : i + 1], stages[first - 1] if first else None))
            first = i
    return found


def one_by_one(stretch: Stretch) -> list[Stretch]:
    """The stages of a stretch, each by itself."""
    befores = [stretch.previous, *stretch.stages]
    return [Stretch([stage], stretch.widths[i : i + 2], befores[i]) for i, stage in enumerate(stretch.stages)]


def is_run(stretch: Stretch, operands: Operands) -> bool:
    """Whether a stretch runs as one step."""
    is_one = operands.kernels.HAS_ROW_NETWORKS and isinstance(stretch.stages[0], (Map, Activation))
    return is_one and _network_of(stretch, operands).is_taken()


def _network_of(stretch: Stretch, operands: Operands, with_tangents: bool = False, values_alone: bool = False) -> Any:
    """The stages as the device's kernel takes them."""
    kernels, triples = operands.kernels, zip(stretch.stages, stretch.widths, stretch.widths[1:], strict=False)
    stages = [
        kernels.LinearMap(before, after) if isinstance(stage, Map) else kernels.Applied(stage, after)
        for stage, before, after in triples
    ]
    return kernels.RowNetwork(tuple(stages), operands.dtype, with_tangents, values_alone)


class Run:
    """A run of linear maps and activations on a chunk, in a kernel.

    Args:
        stretch: The stages.
        operands: What they read and differentiate.
        with_tangents: Whether tangents lie behind values, ``[2, edges, width]``.
        grads: Of how many of these somebody wants gradients before the first stage; a map, if not of all.
    """

    def __init__(self, stretch: Stretch, operands: Operands, with_tangents: bool, grads: int) -> None:
        self._stages, self._widths, self._operands = stretch.stages, stretch.widths, operands
        maps = [stage for stage in stretch.stages if isinstance(stage, Map)]
        self._copies, self._grads = 2 if with_tangents else 1, grads
        self._network = _network_of(stretch, operands, with_tangents, 0 < grads < self._copies)
        self._without_last = dataclasses.replace(self._network, stages=self._network.stages[:-1])
        self._weights, self._biases = ([getattr(stage, name) for stage in maps] for name in ('weight', 'bias'))
        self._transposed = [weight.t().contiguous() for weight in self._weights]
        self._buffers = self._new_buffers()
        begin = stretch.previous
        is_first = isinstance(self._stages[0], Map) and isinstance(begin, Begin) and not begin.has_ends
        # features of edges that the first stage takes as they are: their gradient is written in place
        self._begins_with = operands.edge_rows(begin.features) if is_first else None
        if operands.is_backward:
            self._grad_buffers = self._places_of_grads(grads > 0)
            self._of_weights, self._of_biases = (
                list(map(self._copies_of, tensors)) for tensors in (self._weights, self._biases)
            )

    def _buffer(self, width: int) -> Tensor:
        return self._operands.new_rows(self._copies * width).flatten()

    def _new_buffers(self) -> list[Tensor | None]:
        """A buffer for what is after each stage; None where an activation may take the memory of what is before it."""
        is_kept = self._operands.is_backward
        pairs = zip(self._stages, self._widths[1:], strict=True)
        return [self._buffer(width) if is_kept or isinstance(stage, Map) else None for stage, width in pairs]

    def _places_of_grads(self, is_wanted: bool) -> list[Tensor | None]:
        """Where the gradients before each map go: in place of its values, which its weight's gradient reads last.

        Those before the first stage have a buffer of their own, as these values are another step's.
        """
        first = self._buffer(self._widths[0]) if is_wanted and isinstance(self._stages[0], Map) else None
        pairs = zip(self._stages, [first, *self._buffers], strict=False)
        return [buffer for stage, buffer in pairs if isinstance(stage, Map)]

    def _copies_of(self, tensor: Tensor | None) -> Tensor | None:
        """Where parts of a chunk add the gradients of a tensor, each to its own copy."""
        wants = self._operands.wants(tensor)
        return tensor.new_zeros(self._operands.kernels.ROW_PARTS, *tensor.shape) if wants else None

    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        """The values after the last stage, with tangents if those before the first have them."""
        return self._run(self._network, chunk, before)

    def remember(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        """What `backward` takes: the values before each stage."""
        return self._run(self._without_last, chunk, before)

    def _run(self, network: Any, chunk: EdgeChunk, before: Tensor) -> Tensor:
        held, count = [before], len(network.stages)
        for buffer in self._buffers[:count]:
            held.append(held[-1] if buffer is None else buffer)
        network.forward(chunk.edges, held, self._transposed, self._biases)
        self._held = held[: len(self._stages)]
        return before if held[-1] is before else _rows_of(held[-1], self._widths[count], before)

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        """The gradients before the first stage, from those after the last, whose memory they may take."""
        grads = [*self._grad_buffers, grad.contiguous()]
        place = None if self._begins_with is None else self._begins_with.place()
        if place is not None:
            grads[0] = place
        self._network.backward(chunk.edges, self._held, self._weights, grads, self._of_weights, self._of_biases)
        if grads[0] is None:
            return grad
        if place is not None:
            return place.unsqueeze(0) if grad.dim() == 3 else place
        found = _rows_of(grads[0], self._weights[0].shape[1], grad)
        return found[: self._grads] if grad.dim() == 3 else found

    def end(self) -> None:
        """Adds the sums of all parts to the gradients of weights and biases."""
        tensors, found = [*self._weights, *self._biases], [*self._of_weights, *self._of_biases]
        for tensor, copies in zip(tensors, found, strict=True):
            if copies is not None:
                self._operands.gradient(tensor).add_(copies.sum(dim=0))


def _rows_of(buffer: Tensor, width: int, like: Tensor) -> Tensor:
    """A chunk's rows in a buffer, as many as `like` has."""
    rows = like.shape[:-1]
    return buffer[: rows.numel() * width].view(*rows, width)
