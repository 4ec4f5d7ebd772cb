"""The CUDA target: runs a call's walks on the GPU where its tensors are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from pygfuse.call.call import Call, Dropout, statistics_dtype
from pygfuse.codegen.philox import threshold_and_scale
from pygfuse.cuda import row_tiling as planning
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import LOAD_BYTES, Layout
from pygfuse.cuda.row_tiling import Tiling
from pygfuse.cuda.walks.backward import backward_body
from pygfuse.cuda.walks.forward import combine_body, dots_body, forward_body
from pygfuse.cuda.walks.random import factors_body
from pygfuse.cuda.walks.weights import weights_body
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Cut
from pygfuse.partial.paths.policy import path_of
from pygfuse.program.adjoint import BackwardPlan, backward_plans
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.program.trace import CHANNELS, HEADS, SCALAR

# teams that keep sums of their own for parameters: each costs memory, and a device runs some thousands at once
SUMMING_TEAMS = 4096


def _key(bound: BoundProgram, *rest: object) -> tuple[str, ...]:
    """What, beside layout and arguments, decides a walk's machine code."""
    texts = [trace.text('f') for trace in (bound.score, bound.message) if trace is not None]
    return (*texts, repr((bound.softmax, bound.present, bound.products, rest)))


@functools.lru_cache(maxsize=256)
def _forward_kernel(bound: BoundProgram, layout: Layout, reduce: str) -> Kernel:
    make = functools.partial(_made, forward_body, bound, (reduce,))
    return _kernel(make, layout, f'{bound.program.name} forward', _key(bound, reduce))


@functools.lru_cache(maxsize=256)
def _backward_kernel(bound: BoundProgram, layout: Layout, plan: BackwardPlan, reduce: str) -> Kernel:
    make = functools.partial(_made, backward_body, bound, (plan, reduce))
    extreme = reduce in ('max', 'min')
    return _kernel(make, layout, f'{bound.program.name} backward by {plan.side}', _key(bound, plan, extreme))


@functools.lru_cache(maxsize=256)
def _weights_kernel(bound: BoundProgram, layout: Layout) -> Kernel:
    make = functools.partial(_made, weights_body, bound, ())
    return _kernel(make, layout, f'{bound.program.name} weights', _key(bound))


def _made(body: Callable, bound: BoundProgram, rest: tuple, lanes: Any) -> Callable:
    return body(bound, lanes, *rest)


@functools.lru_cache(maxsize=256)
def _combine_kernel(layout: Layout, softmax: bool, reduce: str) -> Kernel:
    return _kernel(
        lambda lanes: combine_body(lanes, softmax, reduce), layout, 'rows of parts', (repr((softmax, reduce)),)
    )


@functools.lru_cache(maxsize=256)
def _dots_kernel(layout: Layout) -> Kernel:
    return _kernel(dots_body, layout, 'dots of rows', ())


@functools.lru_cache(maxsize=256)
def _factors_kernel(layout: Layout) -> Kernel:
    return _kernel(factors_body, layout, 'dropout factors', ())


def _kernel(make: Callable[[Any], Callable], layout: Layout, name: str, key: tuple[str, ...]) -> Kernel:
    return Kernel(make, layout, f'{name}, {layout.heads} x {layout.channels}, {layout.element}', (name, *key))


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where it does not begin at a multiple of the widest load."""
    return tensor if tensor.data_ptr() % LOAD_BYTES == 0 else tensor.clone()


def _tiling(call: Call, csr: Csr, values: int, split_channels: bool, rows: int) -> Tiling:
    device, degree = call.like().device, planning.typical_degree(csr.num_edges / max(1, csr.num_rows))
    return planning.tiling(_element(call), device, call.heads, call.channels, values, split_channels, rows, degree)


def _element(call: Call) -> torch.dtype:
    """The narrowest type of rows of channels: loads of 16 bytes hold most values of it."""
    tensors, bound = call.tensors, call.bound
    rows = (tensors[name] for name in bound.present if name in tensors and tensors[name].shape[1] == call.width)
    return min((tensor.dtype for tensor in rows), key=lambda dtype: dtype.itemsize, default=call.dtype)


def _operands(call: Call, side: str) -> tuple:
    """The operands as a walk by rows of `side` takes them."""
    other = SOURCE if side == TARGET else TARGET
    tensors, bound = call.tensors, call.bound

    def aligned(found: Collection[Tensor]) -> tuple[Tensor, ...]:
        return tuple(_aligned(tensor) for tensor in found)

    features = [call.products[name].features for name in bound.edge_products]
    return (
        *(aligned(call.operands(side, HEADS)), aligned(call.operands(side, CHANNELS))),
        *(aligned(call.operands(other, HEADS)), aligned(call.operands(other, CHANNELS))),
        *(aligned(call.operands(EDGE, HEADS)), aligned(call.operands(EDGE, SCALAR))),
        aligned([tensors[name] for name in bound.edge_rows]),
        aligned(features),
        aligned([call.products[name].weight for name in bound.edge_products]),
        tuple(tensor.shape[1] for tensor in features),
        *(aligned(call.operands(PARAMETER, HEADS)), aligned(call.operands(PARAMETER, CHANNELS))),
        tuple(float(call.scalars[name]) for name in bound.names(PARAMETER, SCALAR)),
    )


def _dropout(call: Call) -> tuple:
    if call.dropout is None:
        return None, None, None
    return _seed(call.dropout, call.like().device), *threshold_and_scale(call.dropout.probability)


def _seed(dropout: Dropout, device: torch.device) -> Tensor:
    """The seed where a kernel reads it: a captured graph draws anew in each replay."""
    seed = dropout.seed if isinstance(dropout.seed, Tensor) else torch.tensor(dropout.seed)
    return seed.to(device).view(1)


def forward(call: Call, out: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]``, and what its adjoint needs of it.

    That is, for softmax, a score near the greatest and the reciprocal of the sum of exponentials relative to it,
    ``[targets, 2, H]``; for a maximum or minimum the number of edges that share each value's gradient,
    ``[targets, H * C]``; else None.

    Args:
        call: What is computed.
        out: Where the output goes; by default a new tensor.
    """
    graph, like, csr = call.graph, call.like(), call.graph.csr
    wide = statistics_dtype(call.dtype)
    if out is None:
        out = like.new_empty(graph.num_targets, call.width, dtype=call.dtype)
    statistics = None
    if call.bound.softmax:
        statistics = like.new_empty(graph.num_targets, 2, call.heads, dtype=wide)
    elif call.reduce in ('max', 'min'):
        statistics = torch.empty_like(out, dtype=wide)
    rows = len(call.bound.names(SOURCE, CHANNELS)) + len(call.bound.edge_rows)
    tiling = _tiling(call, csr, planning.FORWARD_VALUES, call.bound.separable, rows)
    _walk_forward(call, csr, csr.index, tiling, _operands(call, TARGET), out, statistics)
    return out, statistics


def _walk_forward(
    call: Call, csr: Csr, index: Tensor, tiling: Tiling, operands: tuple, out: Tensor, statistics: Tensor | None
) -> None:
    """Walks the rows of `csr`; `index` names what is gathered at each place."""
    parts, device = planning.parts_of(csr, call.row_bytes), out.device
    wide = statistics_dtype(out.dtype)
    tops = call.width if call.reduce in ('max', 'min') else call.heads
    partial = tuple(out.new_empty(parts.num_slots, size, dtype=wide) for size in (call.width, tops, call.heads))
    kernel = _forward_kernel(call.bound, tiling.layout, call.reduce)
    kernel(
        *(device, kernel.blocks(parts.count), tiling.count),
        *(parts.count, tiling.tiles, parts.bounds, csr.indptr, index, csr.edge_id),
        *operands,
        *(call.heads, call.width, *_dropout(call), out, statistics, *partial),
    )
    if not parts.num_slots:
        return
    combine = _combine_kernel(tiling.layout, call.bound.softmax, call.reduce)
    combine(
        *(device, combine.blocks(len(parts.split_rows)), tiling.count),
        *(len(parts.split_rows), tiling.tiles, parts.split_rows, parts.split_indptr, parts.slots, csr.indptr),
        *(call.heads, call.width, *partial, out, statistics),
    )


def weights(call: Call, statistics: Tensor | None) -> Tensor:
    """The weight of each edge before dropout, ``[edge ids, H]``; 0 for ids of edges that are not walked.

    Args:
        call: A call of a program with a score.
        statistics: For softmax, the second result of `forward`.
    """
    csr, like = call.graph.csr, call.like()
    result = like.new_zeros(call.graph.num_edge_ids, call.heads, dtype=call.dtype)
    rows = len(call.bound.names(SOURCE, CHANNELS)) + len(call.bound.edge_rows)
    tiling, parts = _tiling(call, csr, planning.BACKWARD_VALUES, False, rows), planning.parts_of(csr, call.row_bytes)
    kernel = _weights_kernel(call.bound, tiling.layout)
    kernel(
        *(like.device, kernel.blocks(parts.count), tiling.count),
        *(parts.count, tiling.tiles, parts.bounds, csr.indptr, csr.index, csr.edge_id),
        *_operands(call, TARGET),
        *(call.heads, call.width, (statistics,) if call.bound.softmax else (), result),
    )
    return result


def backward(
    call: Call,
    out: Tensor,
    statistics: Tensor | None,
    grad_out: Tensor,
    needed: Collection[str],
    features: Collection[str] = (),
) -> dict[str, Tensor | Product]:
    """The gradients of the operands `needed`, by name, in the shapes of the operands.

    Weights are always computed again: reading them would take as long.

    Args:
        call: What `forward` was called with.
        out: Its first result.
        statistics: Its second result.
        grad_out: The gradient that reaches the output, contiguous.
        needed: Names of operands.
        features: Those of them that are products whose features need a gradient; else it is None.
    """
    path = path_of(call.graph, grad_out, call.row_bytes)
    out, grad_out = _aligned(out), _aligned(grad_out)
    delta = _head_dots(call, out, grad_out) if call.bound.softmax else None
    if call.reduce == 'mean':
        grad_out = (grad_out / call.graph.degree.clamp(min=1).unsqueeze(-1)).to(out.dtype)
    elif call.reduce in ('max', 'min'):
        grad_out = (grad_out / statistics.clamp(min=1)).to(out.dtype)
    if path is not None:
        # edges keep their ids, and so their operands, what dropout draws and where their gradients go
        call = dataclasses.replace(call, graph=path.part(call.graph))
    summed = call.bound.summed_sources
    if summed is not None and call.reduce in ('sum', 'mean'):
        return {summed: _sum_rows(call, call.graph.csc, call.graph.csc.index, grad_out)}
    normalisers = statistics if call.bound.softmax else None
    gradients: dict[str, Tensor | Product] = {}
    for plan in backward_plans(call.bound, needed, features):
        gradients |= _walk_backward(call, plan, out, normalisers, grad_out, delta)
    return gradients


def _head_dots(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """The dot of two rows over each head's channels, ``[rows, H]``."""
    tiling = planning.tiling(x.dtype, x.device, call.heads, call.channels, planning.FORWARD_VALUES)
    result = x.new_empty(x.shape[0], call.heads, dtype=statistics_dtype(x.dtype))
    kernel = _dots_kernel(tiling.layout)
    kernel(
        *(x.device, kernel.blocks(x.shape[0]), tiling.count),
        *(x.shape[0], tiling.tiles, x, y, call.heads, call.width, result),
    )
    return result


def _walk_backward(
    call: Call, plan: BackwardPlan, out: Tensor, normalisers: Tensor | None, grad_out: Tensor, delta: Tensor | None
) -> dict[str, Tensor | Product]:
    graph, like, bound = call.graph, call.like(), call.bound
    by_target = plan.side == TARGET
    edges, wide = graph.csr if by_target else graph.csc, statistics_dtype(call.dtype)
    gathered = len(bound.names(SOURCE if by_target else TARGET, CHANNELS)) + len(bound.edge_rows) + (not by_target)
    tiling = _tiling(call, edges, planning.BACKWARD_VALUES, False, gathered)
    parts, kernel = planning.parts_of(edges, call.row_bytes), _backward_kernel(bound, tiling.layout, plan, call.reduce)
    rows = [name for name in plan.edge_channels if name in bound.edge_rows]
    products = [name for name in plan.edge_channels if name in bound.edge_products]
    sums_over_edges = plan.parameters or plan.parameter_heads or products
    blocks = kernel.blocks(min(parts.count, SUMMING_TEAMS) if sums_over_edges else parts.count)
    workers = blocks * kernel.block // tiling.layout.lanes

    def zeros(*shape: int) -> Tensor:
        return like.new_zeros(shape, dtype=wide)

    def empty(*shape: int) -> Tensor:
        return like.new_empty(shape, dtype=wide)

    found = {name: torch.empty_like(call.tensors[name]) for name in (*plan.heads, *plan.channels)}
    # edges of the user that are not walked (self-loops that were replaced) have no gradient
    found |= {name: torch.zeros_like(call.tensors[name]) for name in (*plan.edges, *rows)}
    sizes = {name: call.products[name].features.shape[1] for name in bound.edge_products}
    weights = {name: zeros(workers, sizes[name], call.width) for name in products}
    features = {name: zeros(graph.num_edge_ids, tiling.count, sizes[name]) for name in plan.features}
    passed = {name: empty(graph.num_edges, call.heads) for name in plan.passed}
    sums = {name: zeros(workers, call.width) for name in plan.parameters}
    head_sums = {name: zeros(workers, call.heads) for name in plan.parameter_heads}
    edge_scalars = {name: zeros(graph.num_edge_ids, tiling.count) for name in plan.edge_scalars}
    partial_heads = tuple(empty(parts.num_slots, call.heads) for _ in plan.heads)
    partial_rows = tuple(empty(parts.num_slots, call.width) for _ in plan.channels)
    kernel(
        *(like.device, blocks, tiling.count),
        *(parts.count, tiling.tiles, parts.bounds, edges.indptr, edges.index, edges.edge_id),
        *_operands(call, plan.side),
        *(call.heads, call.width, tiling.count, *_dropout(call), grad_out, out, normalisers, delta),
        *(_named(found, plan.heads), _named(found, plan.channels), _named(found, plan.edges), _named(found, rows)),
        *(_named(weights, products), _named(features, plan.features), _named(passed, plan.passed)),
        *(_named(sums, plan.parameters), _named(edge_scalars, plan.edge_scalars)),
        *(_named(head_sums, plan.parameter_heads), partial_heads, partial_rows),
    )
    for name, partial in (*zip(plan.heads, partial_heads, strict=True), *zip(plan.channels, partial_rows, strict=True)):
        _combine_sums(edges, parts, partial, found[name])
    found |= {name: _sum_passed(call, values) for name, values in passed.items()}
    found |= {name: values.sum(dim=0, keepdim=True) for name, values in (sums | head_sums).items()}
    found |= {name: values.sum(dim=1, keepdim=True) for name, values in edge_scalars.items()}
    gradients: dict[str, Tensor | Product] = {
        name: tensor.to(call.tensors[name].dtype) for name, tensor in found.items()
    }
    for name, values in weights.items():
        given = call.products[name]
        of_features = features[name].sum(dim=1).to(given.features.dtype) if name in features else None
        gradients[name] = Product(of_features, values.sum(dim=0).to(given.weight.dtype))
    return gradients


def _named(tensors: dict[str, Tensor], names: Collection[str]) -> tuple[Tensor, ...]:
    return tuple(tensors[name] for name in names)


def _combine_sums(edges: Csr, parts: Cut, partial: Tensor, whole: Tensor) -> None:
    """Adds up what the parts left of the rows that lie in several."""
    if not parts.num_slots:
        return
    width = whole.shape[1]
    tiling = planning.tiling(partial.dtype, whole.device, 1, width, planning.FORWARD_VALUES, True)
    kernel = _combine_kernel(tiling.layout, False, 'sum')
    kernel(
        *(whole.device, kernel.blocks(len(parts.split_rows)), tiling.count),
        *(len(parts.split_rows), tiling.tiles, parts.split_rows, parts.split_indptr, parts.slots, edges.indptr),
        *(1, width, partial, partial, partial, whole, None),
    )


def _sum_passed(call: Call, passed: Tensor) -> Tensor:
    """Sums what a walk passed along its edges over the rows of the targets."""
    return _sum_rows(call, call.graph.csr, call.graph.place_in_csc, passed)


def _sum_rows(call: Call, csr: Csr, index: Tensor, x: Tensor) -> Tensor:
    """The sum, over the edges of each row of `csr`, of the rows of `x` that `index` names: the walk of neighbours."""
    width = x.shape[1]
    over = Call(NEIGHBOURS.bind(('x',)), call.graph, {'x': x}, {}, 1, width)
    tiling, result = _tiling(over, csr, planning.FORWARD_VALUES, True, 1), x.new_empty(csr.num_rows, width)
    _walk_forward(over, csr, index, tiling, _operands(over, TARGET), result, None)
    return result


def dropout_factors(rows: int, heads: int, dropout: Dropout, like: Tensor) -> Tensor:
    """The factors, 0 or ``1 / (1 - probability)``, that walks draw for edges 0 to ``rows - 1``: ``[rows, heads]``."""
    result = like.new_empty(rows, heads)
    tiling = planning.tiling(like.dtype, like.device, heads, 1, planning.FORWARD_VALUES)
    kernel = _factors_kernel(tiling.layout)
    kernel(
        *(like.device, kernel.blocks(rows), tiling.count),
        *(rows, tiling.tiles, heads, _seed(dropout, like.device), *threshold_and_scale(dropout.probability), result),
    )
    return result
