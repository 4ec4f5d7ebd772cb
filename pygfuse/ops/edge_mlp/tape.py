"""The stages of a network run on one chunk of edges at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk, chunks_of
from pygfuse.ops.edge_mlp.operands import Operands
from pygfuse.ops.edge_mlp.stages import Contract, EdgeStage, features_of, widest_of, widths_of
from pygfuse.ops.edge_mlp.steps import Contraction, steps_of
from pygfuse.ops.edges import Edges


class StagedTape:
    """Stages that run on one chunk at a time; what their values are is a subclass's to say.

    Args:
        operands: What they read and differentiate.
        steps: The stages as they run.
    """

    def __init__(self, operands: Operands, steps: Sequence[Any]) -> None:
        self._operands, self._steps = operands, steps

    def grad_of_values(self, chunk: EdgeChunk) -> Tensor:
        """Where the gradient of a chunk's values goes before `backward`."""
        raise NotImplementedError

    def backward(self, chunk: EdgeChunk, values: Sequence[Tensor]) -> None:
        """Adds the gradients that a chunk gives to those of the operands."""
        self._differentiate(chunk, values, self.grad_of_values(chunk))

    def _differentiate(self, chunk: EdgeChunk, values: Sequence[Tensor], grad: Tensor) -> None:
        """The same of the first steps, as many as there are values, from the gradient of the last of these."""
        before = [None, *values]
        for i in reversed(range(len(values))):
            grad = self._steps[i].backward(chunk, before[i], values[i], grad)
        for rows in self._operands.all_edge_rows():
            rows.end(chunk)

    def found(self) -> list[Tensor]:
        """The gradients of all tensors, in their order."""
        for step in self._steps:
            step.end()
        return self._operands.found()


class Tape(StagedTape):
    """The stages run forward and backward on one chunk at a time, in buffers that all chunks share.

    Args:
        tensors: All tensors in the stages, contiguous, no two of which are one object; at least one.
        stages: The stages.
        edges: The edges.
        is_backward: Whether `backward` will be called.
        wanted: Of which somebody wants a gradient, a bool for each tensor; None: of all.
        are_sums: Whether the values are added up by target, and wanted for nothing else.

    Attributes:
        channels: Values of an edge after all stages.
        chunks: The chunks of the edges.
        csr: The edges by target.
        kernels: The kernels on chunks.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        stages: Sequence[EdgeStage],
        edges: Edges,
        is_backward: bool,
        wanted: Sequence[bool] | None = None,
        are_sums: bool = False,
    ) -> None:
        self.csr = edges.graph().csr
        size = _size_of_sums(stages, self.csr) if are_sums else None
        if size is None:
            size = edge_chunks_of(tensors[0].device).chunk_size(widest_of(stages) * tensors[0].element_size())
        self.chunks, self.channels = chunks_of(self.csr, size), widths_of(stages)[-1]
        size = min(size, self.csr.num_edges)
        wanted = [True] * len(tensors) if wanted is None else wanted
        operands = Operands(tensors, features_of(stages), self.csr, size, is_backward, wanted)
        super().__init__(operands, steps_of(stages, operands))
        self.kernels = operands.kernels
        self._grad = operands.new_rows(self.channels) if is_backward else None

    def forward(self, chunk: EdgeChunk, with_last: bool = True) -> list[Tensor]:
        """The values after each stage; without `is_backward`, those after the last alone are right.

        Args:
            chunk: The chunk.
            with_last: Whether somebody reads those after the last, or `backward` alone follows.
        """
        values = self._before_last(chunk)
        last, before = self._steps[-1], values[-1] if values else None
        values.append(last.forward(chunk, before) if with_last else last.remember(chunk, before))
        return values

    def _before_last(self, chunk: EdgeChunk) -> list[Tensor]:
        """The values after each stage but the last."""
        for rows in self._operands.all_edge_rows():
            rows.begin(chunk)
        values: list[Tensor] = []
        for step in self._steps[:-1]:
            values.append(step.forward(chunk, values[-1] if values else None))
        return values

    def add_sums(self, chunk: EdgeChunk, out: Tensor) -> None:
        """Adds the values of a chunk to the rows of their targets in `out`."""
        if self._sums_products(chunk):
            self._steps[-1].add_sums(chunk, self._before_last(chunk)[-1], out)
        else:
            self.kernels.add_to_targets(self.csr, chunk, self.forward(chunk)[-1], out)

    def backward_of_sums(self, chunk: EdgeChunk, grad_out: Tensor) -> None:
        """Adds the gradients that a chunk gives, from those of the rows of `add_sums`."""
        if self._sums_products(chunk):
            values = self._before_last(chunk)
            self._differentiate(chunk, values, self._steps[-1].backward_of_sums(chunk, values[-1], grad_out))
            return
        values = self.forward(chunk, with_last=False)
        self.kernels.spread(self.csr, chunk, grad_out, None, self.grad_of_values(chunk))
        self.backward(chunk, values)

    def _sums_products(self, chunk: EdgeChunk) -> bool:
        last = self._steps[-1]
        return isinstance(last, Contraction) and last.sums_products(chunk)

    def grad_of_values(self, chunk: EdgeChunk) -> Tensor:
        """Where the gradient of a chunk's values goes before `backward`."""
        return self._grad[: chunk.edges]


def _size_of_sums(stages: Sequence[EdgeStage], csr: Csr) -> int | None:
    """Edges of a chunk whose products are added up by target before they are mapped; None where they are not."""
    last = stages[-1]
    kernels = edge_chunks_of(last.weight.device) if isinstance(last, Contract) else None
    if kernels is None or not kernels.SUMS_PRODUCTS:
        return None
    of_values, of_products = widest_of(stages[:-1]), last.weight.shape[1]
    item = last.weight.element_size()
    return kernels.chunk_size_of_sums(of_values * item, of_products * item, csr.num_edges // max(csr.num_rows, 1))
