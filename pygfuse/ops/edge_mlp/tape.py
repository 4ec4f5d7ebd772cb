"""The stages of a network run on one chunk of edges at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse.mapping.edge_chunks import EdgeChunk, chunks_of
from pygfuse.ops.edge_mlp.stages import Affine, EdgeStage, Map, Rectifier, tensors_of
from pygfuse.ops.edges import Edges

# of the widest value of a chunk
CHUNK_BYTES = 2**21
LEAST_EDGES = 256
# float32 loses digits in the long sums of a larger chunk
MOST_EDGES = 8192


class Tape:
    """The stages run forward and backward on one chunk at a time, in buffers that all chunks share.

    Args:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        stages: The stages.
        edges: The edges.
        backward: Whether `backward` will be called.
    """

    def __init__(
        self, source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges, backward: bool
    ) -> None:
        self.source, self.target, self.stages = source.contiguous(), target.contiguous(), list(stages)
        self.csr, self.kernels = edges.graph().csr, edge_chunks_of(source.device)
        widths = [source.shape[1]]
        for stage in self.stages:
            widths.append(stage.weight.shape[0] if isinstance(stage, Map) else widths[-1])
        size = min(MOST_EDGES, max(LEAST_EDGES, CHUNK_BYTES // (max(*widths, 1) * source.element_size())))
        self.chunks = chunks_of(self.csr, size)
        size = min(size, self.csr.num_edges)
        self.values = [source.new_empty(size, width) for width in widths]
        if backward:
            self.grad_source, self.grad_target = torch.zeros_like(self.source), torch.zeros_like(self.target)
            self.gradients = [[torch.zeros_like(t) for t in tensors_of(stage)] for stage in self.stages]
            # an activation's gradient takes the place of that of its result
            self.grads = [source.new_empty(size, widths[-1])]
            for stage, width in zip(reversed(self.stages), reversed(widths[:-1]), strict=True):
                first = self.grads[0]
                self.grads.insert(0, source.new_empty(size, width) if isinstance(stage, Map) else first)

    @property
    def channels(self) -> int:
        """Values of an edge after all stages."""
        return self.values[-1].shape[1]

    def forward(self, chunk: EdgeChunk) -> list[Tensor]:
        """The values before and after each stage."""
        values = [buffer[: chunk.edges] for buffer in self.values]
        self.kernels.add_ends(self.csr, chunk, self.source, self.target, values[0])
        for stage, before, after in zip(self.stages, values, values[1:], strict=False):
            if isinstance(stage, Map):
                torch.addmm(stage.bias, before, stage.weight.t(), out=after)
            elif isinstance(stage, Affine):
                torch.addcmul(stage.shift, before, stage.scale, out=after)
            elif isinstance(stage, Rectifier):
                torch.mul(before, stage.slope, out=after)
                torch.where(before > 0, before, after, out=after)
            else:
                stage.into(before, after)
        return values

    def grad_of_values(self, chunk: EdgeChunk) -> Tensor:
        """Where the gradient of a chunk's values goes before `backward`."""
        return self.grads[-1][: chunk.edges]

    def backward(self, chunk: EdgeChunk, values: Sequence[Tensor]) -> None:
        """Adds the gradients that a chunk gives to those of the operands."""
        grads = [buffer[: chunk.edges] for buffer in self.grads]
        for i in reversed(range(len(self.stages))):
            self._adjoint(i, values[i], values[i + 1], grads[i], grads[i + 1])
        self.kernels.add_to_targets(self.csr, chunk, grads[0], self.grad_target)
        self.kernels.add_to_sources(self.csr, chunk, grads[0], self.grad_source)

    def _adjoint(self, i: int, before: Tensor, after: Tensor, grad_before: Tensor, grad: Tensor) -> None:
        stage, gradients = self.stages[i], self.gradients[i]
        if isinstance(stage, Map):
            gradients[0].addmm_(grad.t(), before)
            gradients[1].add_(grad.sum(dim=0))
            torch.mm(grad, stage.weight, out=grad_before)
        elif isinstance(stage, Affine):
            gradients[0].add_((grad * before).sum(dim=0))
            gradients[1].add_(grad.sum(dim=0))
            grad.mul_(stage.scale)
        elif isinstance(stage, Rectifier):
            gradients[0].add_((grad * before.clamp(max=0)).sum(dim=0))
            grad.mul_(torch.where(before > 0, 1.0, stage.slope))
        else:
            stage.adjoint(grad, before, after, grad)

    def found(self) -> list[Tensor]:
        """The gradients of source, target and the stages' tensors."""
        return [self.grad_source, self.grad_target, *(tensor for some in self.gradients for tensor in some)]
