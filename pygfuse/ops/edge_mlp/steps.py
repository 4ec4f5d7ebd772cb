"""Each stage of a network on one chunk of edges: its values, and the gradients that it takes and gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.mapping.edge_chunks import EdgeChunk
from pygfuse.ops.edge_mlp import stages as kinds
from pygfuse.ops.edge_mlp.operands import Operands
from pygfuse.ops.edge_mlp.runs import Run, is_run, one_by_one, stretches_of
from pygfuse.ops.edge_mlp.stages import EdgeStage
from pygfuse.program.activation import Activation

_aten = torch.ops.aten


class Step:
    """A stage as a tape runs it.

    Args:
        stage: The stage.
        operands: What it reads and differentiates.
        width: Values of an edge after it.
        previous: The stage before it, if there is one.

    Attributes:
        overwrites: Whether its values may take the place of those before it when nothing is differentiated.
    """

    overwrites = True

    def __init__(self, stage: EdgeStage, operands: Operands, width: int, previous: EdgeStage | None) -> None:
        self.stage, self.operands, self.previous, self._width = stage, operands, previous, width
        self._buffer: Tensor | None = None

    def place(self, chunk: EdgeChunk, before: Tensor | None) -> Tensor:
        """Where the values after it go."""
        if self.overwrites and not self.operands.is_backward:
            return before
        if self._buffer is None:
            self._buffer = self.operands.new_rows(self._width)
        return self._buffer[: chunk.edges]

    def forward(self, chunk: EdgeChunk, before: Tensor | None) -> Tensor:
        """The values after it."""
        raise NotImplementedError

    def remember(self, chunk: EdgeChunk, before: Tensor | None) -> Tensor:
        """What `backward` takes for the values after it where nothing else reads them."""
        return self.forward(chunk, before)

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor | None:
        """The gradient of the values before it, from that of those after it, whose memory it may take."""
        raise NotImplementedError

    def end(self) -> None:
        """Adds what it has summed apart to the gradients, after the last chunk."""


class _Begin(Step):
    overwrites = False

    def forward(self, chunk: EdgeChunk, before: Tensor | None) -> Tensor:
        stage, operands = self.stage, self.operands
        if not stage.has_ends and operands.is_backward:
            # no step writes to what is before it then
            return operands.edge_rows(stage.features).values
        values = self.place(chunk, before)
        if stage.has_ends:
            operands.kernels.add_ends(operands.csr, chunk, stage.source, stage.target, values)
        if stage.features is None:
            return values
        features = operands.edge_rows(stage.features).values
        return values.add_(features) if stage.has_ends else values.copy_(features)

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> None:
        stage, operands = self.stage, self.operands
        operands.add_to_targets(chunk, stage.target, grad)
        operands.add_to_sources(chunk, stage.source, grad)
        if stage.features is not None:
            operands.edge_rows(stage.features).add(grad)


class _Map(Step):
    overwrites = False

    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return self.operands.kernels.mapped(before, self.stage.weight, self.stage.bias, self.place(chunk, before))

    def remember(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return before

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        operands, weight = self.operands, self.stage.weight
        operands.add_product(weight, grad, before)
        operands.add_total(self.stage.bias, grad)
        return grad if _begins_unwanted(self.previous, operands) else operands.kernels.mapped_back(grad, weight)


def _begins_unwanted(begin: EdgeStage | None, operands: Operands) -> bool:
    """Whether a stage is the first, and of features of edges of which nobody wants a gradient."""
    return _is_features(begin) and operands.edge_rows(begin.features).gradient is None


def _is_features(stage: EdgeStage | None) -> bool:
    """Whether values after a stage are features of edges."""
    return isinstance(stage, kinds.Begin) and not stage.has_ends


class _Affine(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return torch.addcmul(self.stage.shift, before, self.stage.scale, out=self.place(chunk, before))

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        self.operands.add_total(self.stage.scale, grad, before)
        self.operands.add_total(self.stage.shift, grad)
        return grad.mul_(self.stage.scale)


class _Rectifier(Step):
    overwrites = False

    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        after = torch.mul(before, self.stage.slope, out=self.place(chunk, before))
        return torch.where(before > 0, before, after, out=after)

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        self.operands.add_total(self.stage.slope, grad, before.clamp(max=0))
        return grad.mul_(torch.where(before > 0, 1.0, self.stage.slope))


class _Activation(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        after = self.place(chunk, before)
        self.operands.kernels.activated(self.stage, before, after)
        return after

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        self.stage.adjoint(grad, before, after, grad)
        return grad


class _Normalise(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        stage = self.stage
        after, *self._statistics = torch.native_layer_norm(
            before, before.shape[1:], stage.weight, stage.bias, stage.eps
        )
        return after

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        weight, bias = self.stage.weight, self.stage.bias
        wanted = [True, self.operands.wants(weight), self.operands.wants(bias)]
        found, of_weight, of_bias = _aten.native_layer_norm_backward(
            grad, before, before.shape[1:], *self._statistics, weight, bias, wanted
        )
        for tensor, gradient in ((weight, of_weight), (bias, of_bias)):
            if gradient is not None:
                self.operands.gradient(tensor).add_(gradient)
        return found


class _Plus(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        features, weight = self.operands.edge_rows(self.stage.features).values, self.stage.weight
        if weight is None:
            return torch.add(before, features, out=self.place(chunk, before))
        # the adjoint of an activation reads its result, and features are the user's; others are not read any more
        is_read = isinstance(self.previous, Activation) or _is_features(self.previous)
        values = self.place(chunk, before).copy_(before) if is_read else before
        return self.operands.kernels.add_mapped(features, weight, values)

    def remember(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return before

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        rows, weight, kernels = self.operands.edge_rows(self.stage.features), self.stage.weight, self.operands.kernels
        if weight is None:
            rows.add(grad)
        else:
            self.operands.add_product(weight, grad, rows.values)
            if rows.gradient is not None:
                rows.add(kernels.mapped_back(grad, weight))
        return grad


class _Times(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        after, operands = self.place(chunk, before), self.operands
        operands.kernels.times(operands.csr, chunk, before, self._factors(), after)
        return after

    def _factors(self) -> tuple[Tensor | None, ...]:
        features = self.stage.features
        rows = None if features is None else self.operands.edge_rows(features).values
        return self.stage.source, rows, None, None

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        return times_back(self.stage, self.operands, chunk, before, self._factors(), grad)


def times_back(
    stage: kinds.Times,
    operands: Operands,
    chunk: EdgeChunk,
    before: Tensor,
    factors: tuple[Tensor | None, ...],
    grad: Tensor,
) -> Tensor:
    """The gradients before a product with factors, of values or of values and tangents; the factors' are added."""
    rows = None if stage.features is None else operands.edge_rows(stage.features)
    of_source = grad.new_empty(before.shape[-2:]) if operands.wants(stage.source) else None
    of_features = torch.zeros_like(rows.values) if operands.wants(stage.features) else None
    operands.kernels.times_back(operands.csr, chunk, before, factors, grad, of_source, of_features)
    if of_source is not None:
        operands.add_to_sources(chunk, stage.source, of_source)
    if of_features is not None:
        rows.add(of_features)
    return grad


class _Drop(Step):
    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return self._dropped(before, self.place(chunk, before))

    def remember(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        return before

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        return self._dropped(grad, grad)

    def _dropped(self, values: Tensor, out: Tensor) -> Tensor:
        marks = self.operands.edge_rows(self.stage.features).values
        self.operands.kernels.dropped(values, marks, self.stage.draws, out)
        return out


class Contraction(Step):
    overwrites = False

    def __init__(self, stage: EdgeStage, operands: Operands, width: int, previous: EdgeStage | None) -> None:
        super().__init__(stage, operands, width, previous)
        self._gathered: Tensor | None = None
        self._products: Tensor | None = None

    def forward(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        products = self.remember(chunk, before)
        return self.operands.kernels.mapped(products, self.stage.weight, None, self.place(chunk, before))

    def remember(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        operands, gathered = self.operands, self._sources_of(chunk)
        operands.kernels.add_ends(operands.csr, chunk, self.stage.source, None, gathered)
        products = self._products_of(chunk.edges).unflatten(1, (-1, gathered.shape[1]))
        torch.mul(before.unsqueeze(2), gathered.unsqueeze(1), out=products[:, : before.shape[1]])
        if products.shape[1] > before.shape[1]:
            products[:, -1] = gathered
        return products.flatten(1)

    def _sources_of(self, chunk: EdgeChunk) -> Tensor:
        """Where a row for each edge's source goes."""
        if self._gathered is None:
            self._gathered = self.operands.new_rows(self.stage.source.shape[1])
        return self._gathered[: chunk.edges]

    def _products_of(self, count: int) -> Tensor:
        """Where products go, of as many edges or targets."""
        if self._products is None or len(self._products) < count:
            self._products = self.operands.new_products(count, self.stage.weight.shape[1])
        return self._products[:count]

    def backward(self, chunk: EdgeChunk, before: Tensor, after: Tensor, grad: Tensor) -> Tensor:
        stage, operands, gathered = self.stage, self.operands, self._sources_of(chunk)
        products = self._products_of(chunk.edges)
        operands.add_product(stage.weight, grad, products)
        of_products = operands.kernels.mapped_back(grad, stage.weight).unflatten(1, (-1, gathered.shape[1]))
        of_factors = of_products[:, : before.shape[1]]
        of_source = torch.bmm(before.unsqueeze(1), of_factors).squeeze(1)
        if of_products.shape[1] > before.shape[1]:
            of_source.add_(of_products[:, -1])
        operands.add_to_sources(chunk, stage.source, of_source)
        return of_factors.mul_(gathered.unsqueeze(1)).sum(dim=2)

    # where the values after it are added up by target: as they are linear in the products, these are, and mapped after

    def sums_products(self, chunk: EdgeChunk) -> bool:
        """Whether that takes less: a chunk has fewer rows than edges."""
        return self.operands.kernels.SUMS_PRODUCTS and chunk.rows < chunk.edges

    def add_sums(self, chunk: EdgeChunk, before: Tensor, out: Tensor) -> None:
        """Adds the sums of the values after it to the rows of a chunk."""
        self.operands.kernels.add_mapped(self._sums(chunk, before), self.stage.weight, _rows(out, chunk))

    def backward_of_sums(self, chunk: EdgeChunk, before: Tensor, grad_out: Tensor) -> Tensor:
        """The gradient of the values before it, from that of the sums of those after it."""
        stage, operands, kernels = self.stage, self.operands, self.operands.kernels
        grad, of_values = _rows(grad_out, chunk), torch.empty_like(before)
        of_source = self._sources_of(chunk) if operands.wants(stage.source) else None
        operands.add_product(stage.weight, grad, self._sums(chunk, before))
        of_sums = kernels.mapped_back(grad, stage.weight)
        kernels.sum_products_back(operands.csr, chunk, stage.source, before, of_sums, of_values, of_source)
        operands.add_to_sources(chunk, stage.source, of_source)
        return of_values

    def _sums(self, chunk: EdgeChunk, before: Tensor) -> Tensor:
        sums = self._products_of(chunk.rows)
        self.operands.kernels.sum_products(self.operands.csr, chunk, self.stage.source, before, sums)
        return sums


def _rows(of_targets: Tensor, chunk: EdgeChunk) -> Tensor:
    return of_targets[chunk.row : chunk.row + chunk.rows]


_STEPS = {
    kinds.Begin: _Begin,
    kinds.Map: _Map,
    kinds.Affine: _Affine,
    kinds.Rectifier: _Rectifier,
    Activation: _Activation,
    kinds.Normalise: _Normalise,
    kinds.Plus: _Plus,
    kinds.Times: _Times,
    kinds.Drop: _Drop,
    kinds.Contract: Contraction,
}


def steps_of(stages: Sequence[EdgeStage], operands: Operands) -> list[Step | Run]:
    """The stages as a tape runs them."""
    found: list[Step | Run] = []
    for stretch in stretches_of(stages):
        if is_run(stretch, operands):
            skips = isinstance(stretch.stages[0], kinds.Map) and _begins_unwanted(stretch.previous, operands)
            found.append(Run(stretch, operands, False, 0 if skips else 1))
        else:
            each = one_by_one(stretch)
            found += [_STEPS[type(s.stages[0])](s.stages[0], operands, s.widths[1], s.previous) for s in each]
    return found
