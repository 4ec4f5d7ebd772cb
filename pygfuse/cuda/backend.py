"""The CUDA backend: runs a call's walks on the GPU where its tensors are."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch
from torch import Tensor

from pygfuse.call.call import Call, Dropout, statistics_dtype
from pygfuse.call.gradient import Gradient
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.operands import names_of
from pygfuse.codegen.philox import threshold_and_scale
from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cuda import kernels
from pygfuse.cuda import row_tiling as planning
from pygfuse.cuda.combination import combine, num_slots
from pygfuse.cuda.layout import LOAD_BYTES
from pygfuse.cuda.walks.arguments import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    NumTiles,
    Sizes,
    Weights,
)
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Cut, forced
from pygfuse.partial.paths.policy import path_of
from pygfuse.program.adjoint import BackwardPlan, backward_plans
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.products import Product
from pygfuse.program.program import SOURCE, TARGET
from pygfuse.program.trace import CHANNELS

# teams that keep sums of their own for parameters: each costs memory, and a device runs some thousands at once
SUMMING_TEAMS = 4096


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where it does not begin at a multiple of the widest load."""
    return tensor if tensor.data_ptr() % LOAD_BYTES == 0 else tensor.clone()


def _tiling(
    call: Call, csr: Csr, values: int, split_channels: bool, rows: int, overlapping: bool = True, summed: int = 1
) -> Tiling:
    degree = planning.typical_degree(csr.num_edges / max(1, csr.num_rows))
    shape = _element(call), call.like.device, call.heads, call.channels
    return planning.tiling(*shape, values, split_channels, rows, degree, overlapping, summed)


def _element(call: Call) -> torch.dtype:
    """The narrowest type of rows of channels: loads of 16 bytes hold most values of it."""
    tensors, bound = call.tensors, call.bound
    rows = (tensors[name] for name in bound.present if name in tensors and tensors[name].shape[1] == call.width)
    return min((tensor.dtype for tensor in rows), key=lambda dtype: dtype.itemsize, default=call.dtype)


def _operands(call: Call, side: str) -> shared.Operands:
    """The operands as a walk by rows of `side` takes them."""
    products = call.products
    item = {
        'edge_features': lambda name: _aligned(products[name].features),
        'edge_weights': lambda name: _aligned(products[name].weight),
        'scalars': lambda name: float(call.scalars[name]),
    }
    names = names_of(call.bound, side)._asdict().items()
    return shared.Operands(
        *(tuple(map(item.get(field, lambda name: _aligned(call.tensors[name])), found)) for field, found in names)
    )


def _sizes(operands: shared.Operands) -> Sizes:
    return Sizes(tuple(features.shape[1] for features in operands.edge_features))


def _draws(call: Call) -> shared.Draws:
    if call.dropout is None:
        return shared.Draws(None, None, None)
    return shared.Draws(_seed(call.dropout, call.like.device), *threshold_and_scale(call.dropout.probability))


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
    graph, like, csr = call.graph, call.like, call.graph.csr
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
    call: Call,
    csr: Csr,
    index: Tensor,
    tiling: Tiling,
    operands: shared.Operands,
    out: Tensor,
    statistics: Tensor | None,
) -> None:
    """Walks the rows of `csr`; `index` names what is gathered at each place."""
    parts, device = planning.parts_of(csr, call.row_bytes), out.device
    wide = statistics_dtype(out.dtype)
    tops = call.width if call.reduce in ('max', 'min') else call.heads
    sizes = (call.width, tops, call.heads)
    partial = shared.PartialStates(*(out.new_empty(num_slots(parts), size, dtype=wide) for size in sizes))
    chosen = forced()
    two_pass = chosen is not None and chosen.two_pass and call.bound.softmax
    kernel = kernels.forward_kernel(call.bound, tiling.layout, call.reduce, two_pass)
    kernel(
        *(device, kernel.blocks(parts.count), tiling.count),
        parts.count,
        *FORWARD(
            shared.WalkedEdges(tiling.tiles, parts.bounds, csr.indptr, index, csr.edge_id),
            operands,
            _sizes(operands),
            shared.Row(call.heads, call.width),
            _draws(call),
            shared.Results(out, statistics),
            partial,
        ),
    )
    of_row = shared.Row(call.heads, call.width)
    combine(parts, csr, tiling, of_row, partial, shared.Results(out, statistics), call.bound.softmax, call.reduce)


def weights(call: Call, statistics: Tensor | None) -> Tensor:
    """The weight of each edge before dropout, ``[edge ids, H]``; 0 for ids of edges that are not walked.

    Args:
        call: A call of a program with a score.
        statistics: For softmax, the second result of `forward`.
    """
    csr, like = call.graph.csr, call.like
    result = like.new_zeros(call.graph.num_edge_ids, call.heads, dtype=call.dtype)
    rows = len(call.bound.names(SOURCE, CHANNELS)) + len(call.bound.edge_rows)
    tiling, parts = _tiling(call, csr, planning.BACKWARD_VALUES, False, rows), planning.parts_of(csr, call.row_bytes)
    kernel = kernels.weights_kernel(call.bound, tiling.layout, call.reduce)
    kernel(
        *(like.device, kernel.blocks(parts.count), tiling.count),
        parts.count,
        *WEIGHTS(
            shared.WalkedEdges(tiling.tiles, parts.bounds, csr.indptr, csr.index, csr.edge_id),
            operands := _operands(call, TARGET),
            _sizes(operands),
            shared.Row(call.heads, call.width),
            Weights((statistics,) if call.bound.softmax else (), result),
        ),
    )
    return result


def backward_of_few(*call: object) -> None:
    """Few edges are walked as many are; see `pygfuse.cpu.backend.backward_of_few`."""


def sum_of_few(*call: object) -> None:
    """Few edges are walked as many are; see `pygfuse.cpu.backend.sum_of_few`."""


def backward(asked: Gradient) -> dict[str, Tensor | Product]:
    """The gradients of operands, by name, in the shapes of the operands."""
    call, out, statistics, grad_out = asked.call, asked.out, asked.statistics, asked.grad_out
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
    for plan in backward_plans(call.bound, asked.needed, asked.features):
        gradients |= _walk_backward(call, plan, out, normalisers, grad_out, delta)
    return gradients


def _head_dots(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """The dot of two rows over each head's channels, ``[rows, H]``."""
    tiling = planning.tiling(x.dtype, x.device, call.heads, call.channels, planning.FORWARD_VALUES)
    result = x.new_empty(x.shape[0], call.heads, dtype=statistics_dtype(x.dtype))
    kernel = kernels.dots_kernel(tiling.layout)
    kernel(
        *(x.device, kernel.blocks(x.shape[0]), tiling.count),
        *(x.shape[0], tiling.tiles, x, y, call.heads, call.width, result),
    )
    return result


def _walk_backward(
    call: Call, plan: BackwardPlan, out: Tensor, normalisers: Tensor | None, grad_out: Tensor, delta: Tensor | None
) -> dict[str, Tensor | Product]:
    graph, like, bound = call.graph, call.like, call.bound
    by_target = plan.side == TARGET
    edges, wide = graph.csr if by_target else graph.csc, statistics_dtype(call.dtype)
    gathered = len(bound.names(SOURCE if by_target else TARGET, CHANNELS)) + len(bound.edge_rows) + (not by_target)
    of_tiles = plan.is_separable(bound), gathered, not plan.adds_up(bound), len(plan.parameters)
    tiling = _tiling(call, edges, planning.BACKWARD_VALUES, *of_tiles)
    parts, kernel = (
        planning.parts_of(edges, call.row_bytes),
        kernels.backward_kernel(bound, tiling.layout, plan, call.reduce, call.weights is not None),
    )
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
    partial_heads = tuple(empty(num_slots(parts), call.heads) for _ in plan.heads)
    partial_rows = tuple(empty(num_slots(parts), call.width) for _ in plan.channels)
    kernel(
        *(like.device, blocks, tiling.count),
        parts.count,
        *BACKWARD(
            shared.WalkedEdges(tiling.tiles, parts.bounds, edges.indptr, edges.index, edges.edge_id),
            operands := _operands(call, plan.side),
            _sizes(operands),
            shared.Row(call.heads, call.width),
            NumTiles(tiling.count),
            _draws(call),
            shared.OfTargets(grad_out, out, normalisers, delta),
            shared.KeptWeights(call.weights),
            shared.Gradients(
                grad_heads=_named(found, plan.heads),
                grad_channels=_named(found, plan.channels),
                grad_edges=_named(found, plan.edges),
                grad_edge_rows=_named(found, rows),
                grad_weights=_named(weights, products),
                grad_features=_named(features, plan.features),
                grad_passed=_named(passed, plan.passed),
                grad_parameters=_named(sums, plan.parameters),
                grad_edge_scalars=_named(edge_scalars, plan.edge_scalars),
                grad_parameter_heads=_named(head_sums, plan.parameter_heads),
                partial_heads=partial_heads,
                partial_rows=partial_rows,
            ),
        ),
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
    width = whole.shape[1]
    tiling = planning.tiling(partial.dtype, whole.device, 1, width, planning.FORWARD_VALUES, True)
    states = shared.PartialStates(partial, partial, partial)
    combine(parts, edges, tiling, shared.Row(1, width), states, shared.Results(whole, None))


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
    kernel = kernels.factors_kernel(tiling.layout)
    kernel(
        *(like.device, kernel.blocks(rows), tiling.count),
        *(rows, tiling.tiles, heads, _seed(dropout, like.device), *threshold_and_scale(dropout.probability), result),
    )
    return result
