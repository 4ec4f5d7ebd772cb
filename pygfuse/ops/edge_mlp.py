"""Stages of a network on edges, tile by tile: what a deep EdgeConv computes without a tensor of edges x features.

On each edge (j, i) the value ``source_j + target_i`` goes through linear maps and activations, and is reduced over the
edges of a target or over all edges. Edges are taken in tiles that fit into cache, with the library's matrix
product for each; backward recomputes the tile. Saved are the operands, and for a maximum the place of the winning edge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_tiles_of
from pygfuse.mapping.edge_tiles import Tile, tiles_of
from pygfuse.ops.aggregate import Edges
from pygfuse.ops.batched import is_batched
from pygfuse.program.activation import Activation

# of the widest value of a tile
TILE_BYTES = 2**21
LEAST_EDGES = 256
# float32 loses digits in the long sums of a larger tile
MOST_EDGES = 8192
# sums over so many tiles join the sum of such sums: float32 would lose digits in one long sum
SETTLED_AFTER = 32
# a winning edge is kept by its place in the row, as a number of float32
PLACES_LIMIT = 2**24


@dataclasses.dataclass(frozen=True, eq=False)
class Map:
    """``values @ weight.t() + bias``."""

    weight: Tensor
    bias: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """``values * scale + shift``."""

    scale: Tensor
    shift: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Rectifier:
    """The values where they are positive, else times a slope for each channel."""

    slope: Tensor


EdgeStage = Map | Affine | Rectifier | Activation


def edge_reduce(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> Tensor:
    """The stages' values, reduced over each target's edges: ``[targets, channels]``, 0 where there are none.

    Args:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        stages: What happens to their sum on each edge.
        edges: The edges.
        reduce: ``'sum'`` or ``'max'``. Of several edges that have the largest value, the first gets the gradient.
    """
    text, tensors = _written(stages)
    out, _ = torch.ops.pygfuse.edge_reduce(
        source, target, tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow, reduce
    )
    return out


def edge_moments(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges) -> tuple[Tensor, Tensor]:
    """Mean ``[channels]`` and (biased) covariance ``[channels, channels]`` of the stages' values, in float64.

    Args:
        source: ``[sources, width]``.
        target: ``[targets, width]``.
        stages: What happens to their sum on each edge.
        edges: The edges, at least one.
    """
    text, tensors = _written(stages)
    mean, covariance = torch.ops.pygfuse.edge_moments(
        source, target, tensors, text, edges.token, edges.num_sources, edges.num_targets, edges.flow
    )
    return mean, covariance


_FIELDS = {'map': Map, 'affine': Affine, 'rectifier': Rectifier}
_NAMES = {kind: name for name, kind in _FIELDS.items()}


def _written(stages: Sequence[EdgeStage]) -> tuple[str, list[Tensor]]:
    """Stages as a text and the tensors in it, which can go through an operator."""
    words: list[str] = []
    tensors: list[Tensor] = []
    for stage in stages:
        if isinstance(stage, Activation):
            words.append(' '.join([stage.name, *map(repr, stage.numbers)]))
        else:
            words.append(_NAMES[type(stage)])
            tensors += _tensors(stage)
    return ';'.join(words), tensors


def _read(text: str, tensors: Sequence[Tensor]) -> list[EdgeStage]:
    """The reverse of `_written`."""
    left = iter(tensors)
    stages: list[EdgeStage] = []
    for word in text.split(';') if text else []:
        name, *numbers = word.split(' ')
        if name in _FIELDS:
            stages.append(_FIELDS[name](*[next(left) for _ in dataclasses.fields(_FIELDS[name])]))
        else:
            stages.append(Activation(name, tuple(float(number) for number in numbers)))
    return stages


class _Tape:
    """The stages run forward and backward on one tile at a time, in buffers that all tiles share.

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
        self.csr, self.kernels = edges.graph().csr, edge_tiles_of(source.device)
        widths = [source.shape[1]]
        for stage in self.stages:
            widths.append(stage.weight.shape[0] if isinstance(stage, Map) else widths[-1])
        size = min(MOST_EDGES, max(LEAST_EDGES, TILE_BYTES // (max(*widths, 1) * source.element_size())))
        self.tiles = tiles_of(self.csr, size)
        size = min(size, self.csr.num_edges)
        self.values = [source.new_empty(size, width) for width in widths]
        if backward:
            self.grad_source, self.grad_target = torch.zeros_like(self.source), torch.zeros_like(self.target)
            self.gradients = [[torch.zeros_like(t) for t in _tensors(stage)] for stage in self.stages]
            # an activation's gradient takes the place of that of its result
            self.grads = [source.new_empty(size, widths[-1])]
            for stage, width in zip(reversed(self.stages), reversed(widths[:-1]), strict=True):
                first = self.grads[0]
                self.grads.insert(0, source.new_empty(size, width) if isinstance(stage, Map) else first)

    @property
    def channels(self) -> int:
        """Values of an edge after all stages."""
        return self.values[-1].shape[1]

    def forward(self, tile: Tile) -> list[Tensor]:
        """The values before and after each stage."""
        values = [buffer[: tile.edges] for buffer in self.values]
        self.kernels.add_ends(self.csr, tile, self.source, self.target, values[0])
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

    def grad_of_values(self, tile: Tile) -> Tensor:
        """Where the gradient of a tile's values goes before `backward`."""
        return self.grads[-1][: tile.edges]

    def backward(self, tile: Tile, values: Sequence[Tensor]) -> None:
        """Adds the gradients that a tile gives to those of the operands."""
        grads = [buffer[: tile.edges] for buffer in self.grads]
        for i in reversed(range(len(self.stages))):
            self._adjoint(i, values[i], values[i + 1], grads[i], grads[i + 1])
        self.kernels.add_to_targets(self.csr, tile, grads[0], self.grad_target)
        self.kernels.add_to_sources(self.csr, tile, grads[0], self.grad_source)

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


def _tensors(stage: EdgeStage) -> list[Tensor]:
    return [] if isinstance(stage, Activation) else [getattr(stage, f.name) for f in dataclasses.fields(stage)]


# Reduction over each target's edges


@torch.library.custom_op('pygfuse::edge_reduce', mutates_args=())
def _edge_reduce(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str, reduce: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    tape = _Tape(source, target, _read(text, tensors), Edges(token, num_sources, num_targets, flow), False)
    out = source.new_zeros(num_targets, tape.channels)
    winners = torch.zeros_like(out) if reduce == 'max' else source.new_empty(0)
    for tile in tape.tiles:
        values = tape.forward(tile)[-1]
        if reduce == 'max':
            tape.kernels.keep_largest(tape.csr, tile, values, out, winners)
        else:
            tape.kernels.add_to_targets(tape.csr, tile, values, out)
    return out, winners


def _channels(source: Tensor, text: str, tensors: Sequence[Tensor]) -> int:
    maps = [stage for stage in _read(text, tensors) if isinstance(stage, Map)]
    return maps[-1].weight.shape[0] if maps else source.shape[1]


@_edge_reduce.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow, reduce):
    out = source.new_empty(num_targets, _channels(source, text, tensors))
    return out, torch.empty_like(out) if reduce == 'max' else source.new_empty(0)


@torch.library.custom_op('pygfuse::edge_reduce_backward', mutates_args=())
def _edge_reduce_backward(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str, reduce: str, winners: Tensor, grad_out: Tensor,
) -> list[Tensor]:  # fmt: skip
    stages, edges = _read(text, tensors), Edges(token, num_sources, num_targets, flow)
    grad_out = grad_out.contiguous()
    if reduce == 'max' and stages and isinstance(stages[-1], Map) and _all_finite(source, target, tensors):
        return _backward_of_winners(source, target, stages, edges, winners, grad_out)
    tape = _Tape(source, target, stages, edges, True)
    for tile in tape.tiles:
        values = tape.forward(tile)
        chosen = winners if reduce == 'max' else None
        tape.kernels.spread(tape.csr, tile, grad_out, chosen, tape.grad_of_values(tile))
        tape.backward(tile, values)
    return tape.found()


def _all_finite(source: Tensor, target: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether a product with a gradient of zero is zero, so that it can be left out."""
    return all(bool(tensor.isfinite().all()) for tensor in (source, target, *tensors))


def _backward_of_winners(
    source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges, winners: Tensor, grad_out: Tensor
) -> list[Tensor]:
    """Where a map is last, only its rows of winning edges and channels have a gradient: no product is needed."""
    weight = stages[-1].weight.contiguous()
    tape = _Tape(source, target, stages[:-1], edges, True)
    summands = weight.new_zeros(tape.kernels.WEIGHT_PARTS, *weight.shape)
    grad_weight = torch.zeros_like(weight)
    for i, tile in enumerate(tape.tiles, start=1):
        values = tape.forward(tile)
        tape.kernels.map_adjoint_at_winners(
            tape.csr, tile, grad_out, winners, weight, values[-1], tape.grad_of_values(tile), summands
        )
        tape.backward(tile, values)
        if i % SETTLED_AFTER == 0 or i == len(tape.tiles):
            grad_weight.add_(summands.sum(dim=0))
            summands.zero_()
    has_edges = tape.csr.indptr.diff() > 0
    of_bias = torch.where(winners.isnan(), winners, grad_out)
    return [*tape.found(), grad_weight, torch.where(has_edges.unsqueeze(1), of_bias, 0.0).sum(dim=0)]


def _like_operands(source: Tensor, target: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (source, target, *tensors)]


@_edge_reduce_backward.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow, reduce, winners, grad_out):
    return _like_operands(source, target, tensors)


# Moments over all edges


@torch.library.custom_op('pygfuse::edge_moments', mutates_args=())
def _edge_moments(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    tape = _Tape(source, target, _read(text, tensors), Edges(token, num_sources, num_targets, flow), False)
    mean = source.new_zeros(tape.channels, dtype=torch.float64)
    squares = source.new_zeros(tape.channels, tape.channels, dtype=torch.float64)
    count = 0
    for tile in tape.tiles:
        # each tile about its own mean, then merged: no cancellation wherever the values lie
        values = tape.forward(tile)[-1]
        middle = values.mean(dim=0)
        values.sub_(middle)
        squares.add_(values.t() @ values)
        # the mean as rounded leaves a rest
        rest = values.mean(dim=0).double()
        squares.addr_(rest, rest, alpha=-tile.edges)
        difference = middle.double() + rest - mean
        total = count + tile.edges
        squares.addr_(difference, difference, alpha=count * tile.edges / total)
        mean.add_(difference, alpha=tile.edges / total)
        count = total
    return mean, squares.div_(count)


@_edge_moments.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow):
    channels = _channels(source, text, tensors)
    mean = source.new_empty(channels, dtype=torch.float64)
    return mean, source.new_empty(channels, channels, dtype=torch.float64)


@torch.library.custom_op('pygfuse::edge_moments_backward', mutates_args=())
def _edge_moments_backward(
    source: Tensor, target: Tensor, tensors: Sequence[Tensor], text: str, token: Tensor, num_sources: int,
    num_targets: int, flow: str, mean: Tensor, grad_mean: Tensor, grad_covariance: Tensor,
) -> list[Tensor]:  # fmt: skip
    tape = _Tape(source, target, _read(text, tensors), Edges(token, num_sources, num_targets, flow), True)
    count, dtype = tape.csr.num_edges, source.dtype
    middle, constant = mean.to(dtype), (grad_mean / count).to(dtype)
    both_ways = ((grad_covariance + grad_covariance.t()) / count).to(dtype)
    for tile in tape.tiles:
        values = tape.forward(tile)
        torch.addmm(constant, values[-1] - middle, both_ways, out=tape.grad_of_values(tile))
        tape.backward(tile, values)
    return tape.found()


@_edge_moments_backward.register_fake
def _(source, target, tensors, text, token, num_sources, num_targets, flow, mean, grad_mean, grad_covariance):
    return _like_operands(source, target, tensors)


# Autograd


def _keep(ctx, inputs, output):
    source, target, tensors, text, token, *rest = inputs
    ctx.text, ctx.rest = text, rest
    ctx.count = len(tensors)
    ctx.save_for_backward(source, target, *tensors, token, _kept_of(output, rest))


def _reduce_of(rest: Sequence) -> str | None:
    """How values are reduced, from the arguments behind the edges' token; None for moments."""
    return rest[3] if len(rest) == 4 else None


def _kept_of(output: tuple[Tensor, Tensor], rest: Sequence) -> Tensor:
    """Of a maximum its winners, of moments the mean."""
    return output[0] if _reduce_of(rest) is None else output[1]


def _gradients(ctx, found: Sequence[Tensor | None]) -> tuple:
    of_source, of_target, *of_tensors = found
    return (of_source, of_target, of_tensors, None, None, *[None] * len(ctx.rest))


def _backward(ctx, first, second):
    source, target, *tensors, token, kept = ctx.saved_tensors
    operands = (source, target, tensors)
    if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or is_batched(first)):
        return _gradients(ctx, _by_reference(ctx, operands, token, kept, first, second))
    if _reduce_of(ctx.rest) is not None:
        found = torch.ops.pygfuse.edge_reduce_backward(*operands, ctx.text, token, *ctx.rest, kept, first)
    else:
        found = torch.ops.pygfuse.edge_moments_backward(*operands, ctx.text, token, *ctx.rest, kept, first, second)
    return _gradients(ctx, found)


def _by_reference(ctx, operands, token, kept, first, second) -> list[Tensor | None]:
    """The gradients by the reference, as functions of the operands again if gradients are enabled."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        source, target, *tensors = [t.view_as(t) for t in (operands[0], operands[1], *operands[2])]
        stages, edges = _read(ctx.text, tensors), Edges(token, *ctx.rest[:3])
        reduce = _reduce_of(ctx.rest)
        if reduce is not None:
            outputs, grads = reference_reduce(source, target, stages, edges, reduce, kept), first
        else:
            outputs, grads = reference_moments(source, target, stages, edges), (first, second)
        wanted = [t for t in (source, target, *tensors) if t.requires_grad]
        found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=with_graph, allow_unused=True))
    return [next(found) if t.requires_grad else None for t in (source, target, *tensors)]


_edge_reduce.register_autograd(_backward, setup_context=_keep)
_edge_moments.register_autograd(_backward, setup_context=_keep)


# Reference


def _reference_values(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges) -> Tensor:
    csr = edges.graph().csr
    values = source[csr.index.long()] + target[csr.rows()]
    for stage in stages:
        if isinstance(stage, Map):
            values = values @ stage.weight.t() + stage.bias
        elif isinstance(stage, Affine):
            values = values * stage.scale + stage.shift
        elif isinstance(stage, Rectifier):
            values = torch.where(values > 0, values, values * stage.slope)
        else:
            values = stage(values)
    return values


def reference_reduce(
    source: Tensor,
    target: Tensor,
    stages: Sequence[EdgeStage],
    edges: Edges,
    reduce: str,
    winners: Tensor | None = None,
) -> Tensor:
    """`edge_reduce` in plain torch, with values of all edges at once.

    With `winners`, the places of the winning edges in their rows, these alone have a gradient; else ties divide it.
    """
    values = _reference_values(source, target, stages, edges)
    csr = edges.graph().csr
    out = values.new_zeros(edges.num_targets, values.shape[1])
    if reduce == 'sum':
        return out.index_add(0, csr.rows(), values)
    if winners is None:
        return out.index_reduce(0, csr.rows(), values, 'amax', include_self=False)
    indptr = csr.indptr.long()
    filled = indptr.diff().nonzero().squeeze(1)
    winning = indptr[filled].unsqueeze(1) + winners[filled].nan_to_num(0.0).long()
    # where the largest is NaN, so is the gradient of all edges
    poison = torch.where(winners.isnan(), winners, 0.0)
    return out.index_copy(0, filled, values.gather(0, winning)) + out.index_add(
        0, csr.rows(), values * poison[csr.rows()]
    )


def reference_moments(
    source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges
) -> tuple[Tensor, Tensor]:
    """`edge_moments` in plain torch, with values of all edges at once."""
    values = _reference_values(source, target, stages, edges).double()
    mean = values.mean(dim=0)
    return mean, (values - mean).t() @ (values - mean) / values.shape[0]
