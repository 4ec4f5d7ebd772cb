"""Each stage of a network on one chunk of edges together with its tangent, and the adjoint of both.

Values and tangents of a chunk lie behind one another, ``[2, edges, width]``, so that a linear map takes one product for
both, forward and backward.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp import stages as kinds
from pygfuse.ops.edge_mlp.operands import Operands
from pygfuse.ops.edge_mlp.reference import applied_alone
from pygfuse.ops.edge_mlp.runs import Run, is_run, one_by_one, stretches_of
from pygfuse.ops.edge_mlp.stages import EdgeStage
from pygfuse.ops.edge_mlp.steps import times_back
from pygfuse.ops.edge_mlp.tangents import Tangents
from pygfuse.ops.within_torch.lazy_values import in_memory
from pygfuse.program.activation import Activation


class TangentStep:
    """A stage as a tape of values and tangents runs it.

    Args:
        stage: The stage.
        operands: What it reads, and where its gradients go.
        tangents: The tangents of what it reads.
        width: Values of an edge after it.
        previous: The stage before it, if there is one.
    """

    def __init__(
        self, stage: EdgeStage, operands: Operands, tangents: Tangents, width: int, previous: EdgeStage | None
    ) -> None:
        self.stage, self.operands, self.tangents, self._width = stage, operands, tangents, width
        self.previous = previous
        self._buffer: Tensor | None = None

    def place(self, chunk: EdgeChunk) -> Tensor:
        """Where the values and tangents after it go."""
        if self._buffer is None:
            self._buffer = self.operands.new_rows(2 * self._width).flatten()
        return self._buffer[: 2 * chunk.edges * self._width].view(2, chunk.edges, self._width)

    def forward(self, chunk: EdgeChunk, before: Tensor | None) -> Tensor:
        """The values and tangents after it."""
        raise NotImplementedError

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor | None:
        """The gradients of those before it, from those of those after it, whose memory it may take."""
        raise NotImplementedError

    def end(self) -> None:
        """Adds what it has summed apart to the gradients, after the last chunk."""


class _Begin(TangentStep):
    def forward(self, chunk: EdgeChunk, before: None) -> Tensor:
        stage, operands, tangents, both = self.stage, self.operands, self.tangents, self.place(chunk)
        features = None if stage.features is None else operands.edge_rows(stage.features).values
        ends = stage.source, stage.target
        for into, source, target, rows in (
            (both[0], *ends, features),
            (both[1], *map(tangents.of, ends), tangents.rows_of(stage.features)),
        ):
            if source is not None or target is not None:
                operands.kernels.add_ends(operands.csr, chunk, source, target, into)
                if rows is not None:
                    into.add_(rows)
            elif rows is not None:
                into.copy_(rows)
            else:
                into.zero_()
        return both

    def backward(self, chunk: EdgeChunk, before: None, after: Tensor, grad: Tensor) -> None:
        stage, operands, of_values = self.stage, self.operands, grad[0]
        operands.add_to_targets(chunk, stage.target, of_values)
        operands.add_to_sources(chunk, stage.source, of_values)
        if stage.features is not None:
            operands.edge_rows(stage.features).add(of_values)


class _Map(TangentStep):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        weight, bias, kernels = self.stage.weight, self.stage.bias, self.operands.kernels
        both = kernels.mapped(before.flatten(0, 1), weight, None, self.place(chunk).flatten(0, 1))
        both = both.unflatten(0, before.shape[:2])
        if bias is not None:
            both[0].add_(bias)
        if self.tangents.of(weight) is not None:
            kernels.add_mapped(before[0], self.tangents.of(weight), both[1])
        if self.tangents.of(bias) is not None:
            both[1].add_(self.tangents.of(bias))
        return both

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        operands, weight, rows = self.operands, self.stage.weight, grad.flatten(0, 1)
        operands.add_product(weight, rows, before.flatten(0, 1))
        operands.add_total(self.stage.bias, grad[0])
        if isinstance(self.previous, kinds.Begin):
            # nobody asks for the gradients of tangents there
            found = operands.kernels.mapped_back(grad[0], weight).unsqueeze(0)
        else:
            found = operands.kernels.mapped_back(rows, weight).unflatten(0, grad.shape[:2])
        if self.tangents.of(weight) is not None:
            found[0].add_(operands.kernels.mapped_back(grad[1], self.tangents.of(weight)))
        return found


class _Activation(TangentStep):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        both, kernels = self.place(chunk), self.operands.kernels
        if kernels.HAS_TANGENTS:
            kernels.activated_with_tangent(self.stage, before, both)
            return both
        self.stage.into(before[0], both[0])
        # its derivative, as that of each value depends on this value alone, is its own transpose
        self.stage.adjoint(before[1], before[0], both[0], both[1])
        return both

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        kernels = self.operands.kernels
        if kernels.HAS_TANGENTS:
            kernels.activated_with_tangent_back(self.stage, before, grad)
            return grad
        with torch.enable_grad():
            values = before[0].detach().requires_grad_()
            result = self.stage(values)
            (tangent,) = torch.autograd.grad(result, values, before[1], create_graph=True)
            results = [r for r in (result, tangent) if r.requires_grad]
            (of_values,) = torch.autograd.grad(results, values, grad[: len(results)].unbind())
        self.stage.adjoint(grad[1], before[0], after[0], grad[1])
        grad[0].copy_(of_values)
        return grad


class _Plus(TangentStep):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        features, weight, kernels = self.stage.features, self.stage.weight, self.operands.kernels
        both = self.place(chunk).copy_(before)
        rows, tangent = self.operands.edge_rows(features).values, self.tangents.rows_of(features)
        for into, some in ((both[0], rows), (both[1], tangent)):
            if some is not None and weight is None:
                into.add_(some)
            elif some is not None:
                kernels.add_mapped(some, weight, into)
        if self.tangents.of(weight) is not None:
            kernels.add_mapped(rows, self.tangents.of(weight), both[1])
        return both

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        operands, features, weight = self.operands, self.stage.features, self.stage.weight
        rows, tangent = operands.edge_rows(features), self.tangents.rows_of(features)
        if weight is None:
            rows.add(grad[0])
            return grad
        operands.add_product(weight, grad[0], rows.values)
        if tangent is not None:
            operands.add_product(weight, grad[1], tangent)
        if operands.wants(features):
            rows.add(operands.kernels.mapped_back(grad[0], weight))
            if self.tangents.of(weight) is not None:
                rows.add(operands.kernels.mapped_back(grad[1], self.tangents.of(weight)))
        return grad


class _Times(TangentStep):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        both, operands = self.place(chunk), self.operands
        operands.kernels.times(operands.csr, chunk, before, self._factors(), both)
        return both

    def _factors(self) -> tuple[Tensor | None, ...]:
        source, features = self.stage.source, self.stage.features
        rows = None if features is None else self.operands.edge_rows(features).values
        return source, rows, self.tangents.of(source), self.tangents.rows_of(features)

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        return times_back(self.stage, self.operands, chunk, before, self._factors(), grad)


class _Drop(TangentStep):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return self._dropped(before, self.place(chunk))

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        return self._dropped(grad, grad)

    def _dropped(self, both: Tensor, out: Tensor) -> Tensor:
        marks = self.operands.edge_rows(self.stage.features).values
        for values, place in zip(both, out, strict=True):
            self.operands.kernels.dropped(values, marks, self.stage.draws, place)
        return out


class _ByTorch(TangentStep):
    """A stage that torch differentiates on each chunk, once for its tangent and once more."""

    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        fields = {field.name: getattr(self.stage, field.name) for field in dataclasses.fields(self.stage)}
        self._own = {name: held for name, held in fields.items() if isinstance(held, Tensor)}
        own = [self._on_edges(chunk, name, held) for name, held in self._own.items()]
        own_tangents = [self._on_edges(chunk, name, self.tangents.of(held)) for name, held in self._own.items()]
        with torch.enable_grad():
            self._read = [t.detach().requires_grad_() for t in (before[0], *own)]
            self._moved = before[1].detach().requires_grad_()
            given = dict(zip(self._own, self._read[1:], strict=True))
            result = applied_alone(dataclasses.replace(self.stage, **given), self._read[0])
            # the product with the Jacobian as the gradient of that with its transpose
            along = torch.zeros_like(result).requires_grad_()
            back = torch.autograd.grad(result, self._read, along, create_graph=True)
            pairs = [pair for pair in zip(back, (self._moved, *own_tangents), strict=True) if pair[1] is not None]
            back, moved = zip(*pairs, strict=True)
            (tangent,) = torch.autograd.grad(back, along, moved, create_graph=True)
        self._results = result, tangent
        return torch.stack([result.detach(), tangent.detach()])

    def _on_edges(self, chunk: EdgeChunk, name: str, tensor: Tensor | None) -> Tensor | None:
        if name != 'source' or tensor is None:
            return tensor
        rows = tensor.new_empty(chunk.edges, tensor.shape[1])
        self.operands.kernels.add_ends(self.operands.csr, chunk, tensor, None, rows)
        return rows

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        leaves = [*self._read, self._moved]
        of_values, *of_own, of_tangent = torch.autograd.grad(self._results, leaves, grad.unbind(), allow_unused=True)
        self._results = self._read = self._moved = None
        for (name, held), found in zip(self._own.items(), of_own, strict=True):
            if name == 'source':
                self.operands.add_to_sources(chunk, held, in_memory(found).contiguous())
            elif self.operands.wants(held):
                self.operands.gradient(held).add_(found)
        return torch.stack([of_values, of_tangent])


_STEPS = {
    kinds.Begin: _Begin,
    kinds.Map: _Map,
    Activation: _Activation,
    kinds.Plus: _Plus,
    kinds.Times: _Times,
    kinds.Drop: _Drop,
    kinds.Affine: _ByTorch,
    kinds.Rectifier: _ByTorch,
    kinds.Normalise: _ByTorch,
    kinds.Contract: _ByTorch,
}


def tangent_steps_of(stages: Sequence[EdgeStage], operands: Operands, tangents: Tangents) -> list[TangentStep | Run]:
    """The stages as a tape of values and tangents runs them."""
    found: list[TangentStep | Run] = []
    for stretch in stretches_of(stages):
        parameters = [t for stage in stretch.stages if isinstance(stage, kinds.Map) for t in (stage.weight, stage.bias)]
        if is_run(stretch, operands) and all(tangents.of(t) is None for t in parameters):
            # nobody asks for the gradients of tangents at the beginning
            begins = isinstance(stretch.stages[0], kinds.Map) and isinstance(stretch.previous, kinds.Begin)
            found.append(Run(stretch, operands, True, 1 if begins else 2))
        else:
            each = one_by_one(stretch)
            found += [_STEPS[type(s.stages[0])](s.stages[0], operands, tangents, s.widths[1], s.previous) for s in each]
    return found
