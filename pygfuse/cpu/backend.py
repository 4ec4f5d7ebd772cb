"""The CPU target: runs a call's walks."""

from __future__ import annotations

import functools
from collections.abc import Collection

import torch
from torch import Tensor

from pygfuse.call.call import Call, Dropout
from pygfuse.codegen import arguments as shared
from pygfuse.cpu import kernels, paths
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.launch import Packed
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.pages import on_huge_pages
from pygfuse.cpu.random import dropout_factors as draw_factors
from pygfuse.cpu.rows import added_up, head_dots, total, zeros
from pygfuse.cpu.single_part import decided, is_single_part, single_part_of
from pygfuse.cpu.walked_edges import (
    Walked,
    copies_of_heads,
    edges_of,
    needs_ids,
    nothing,
    rows_of_path,
    threads_for,
    tiling_of,
    walked_by,
    words_of,
)
from pygfuse.cpu.walks.arguments import (
    Added,
    Ends,
    KeptWeights,
    NumRows,
    Passed,
    RowsWalked,
    Sums,
    Weights,
)
from pygfuse.cpu.walks.forward import GIVEN, ONE_PASS, STATISTICS
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.choice import mapping_for, unsorted
from pygfuse.mapping.mapping import Cut, cut, scattered_bounds
from pygfuse.partial.paths.path import ExecutionPath
from pygfuse.partial.paths.policy import path_of
from pygfuse.program.adjoint import BackwardPlan, backward_plans
from pygfuse.program.products import Product
from pygfuse.program.program import SOURCE, TARGET, BoundProgram

_plans = functools.lru_cache(maxsize=256)(backward_plans)


def forward(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]``, and what its adjoint needs of it.

    That is, for softmax, a score near the greatest and the reciprocal of the sum of exponentials relative to it,
    ``[targets, 2, H]`` (one number, their log-sum-exp, would lose a great score's digits); for a maximum or minimum the
    number of edges that share each value's gradient, ``[targets, H * C]``; else None.
    """
    if is_single_part(call.graph, call.row_bytes):
        return single_part_of(call).forward(call)
    edges, mapping = edges_of(call, TARGET)
    if isinstance(edges, Coo):
        return _sum_scattered(call, edges), None
    like = call.like
    out = on_huge_pages(like.new_empty(call.graph.num_targets, call.width))
    statistics = None
    if call.bound.softmax:
        statistics = like.new_empty(call.graph.num_targets, 2, call.heads)
    elif call.reduce in ('max', 'min'):
        statistics = on_huge_pages(torch.empty_like(out))
    two_pass = mapping.two_pass and call.bound.softmax
    for form in (STATISTICS, GIVEN) if two_pass else (ONE_PASS,):
        _sum_rows(call, form, edges, cut(edges, mapping), out, statistics)
    return out, statistics


def _sum_rows(call: Call, form: str, csr: Csr, parts: Cut, out: Tensor, statistics: Tensor | None) -> None:
    # statistics belong to whole heads
    tiling = tiling_of(call, planning.FORWARD_REGISTERS, call.bound.separable and form != STATISTICS)
    partial = _partial_states(call, parts)
    kernels.forward_kernel(call.bound, tiling, call.reduce, form)(
        parts.count * tiling.count,
        words_of(csr, parts, tiling, needs_ids(call)),
        operands_of(call, TARGET),
        shared.Row(call.heads, call.width),
        NumRows(csr.num_rows),
        draws_of(call),
        shared.Results(out, statistics),
        partial,
        threads=threads_for(call, csr.num_edges),
    )
    if not parts.num_slots:
        return
    kernels.combine_kernel(tiling, call.bound.softmax, call.reduce, form)(
        parts.num_split_rows * tiling.count,
        shared.SplitRows(tiling.tiles, parts.split_rows, parts.split_indptr, parts.slots),
        shared.RowPointer(csr.indptr),
        shared.Row(call.heads, call.width),
        partial,
        shared.Results(out, statistics),
    )


def _sum_scattered(call: Call, coo: Coo) -> Tensor:
    """The output from edges in no order: each part adds to its own copy of all rows, and the copies are added up."""
    bounds = scattered_bounds(coo)
    copies = zeros(call.like, len(bounds) // 2 - 1, coo.num_rows, call.width)
    of_values = call.like.dtype, call.heads, call.channels, planning.FORWARD_REGISTERS, call.bound.separable
    for tiling in planning.apart(*of_values):
        kernels.forward_kernel(call.bound, tiling, call.reduce, scattered=True)(
            len(copies) * tiling.count,
            shared.WalkedEdges(tiling.tiles, bounds, indptr=coo.rows, gathered=coo.index, edge_id=None),
            operands_of(call, TARGET),
            shared.Row(call.heads, call.width),
            NumRows(coo.num_rows),
            draws_of(call),
            shared.Results(None, None),
            shared.PartialStates(copies, None, None),
        )
    out = added_up(copies)
    return out / _divisors(coo.degree()) if call.reduce == 'mean' else out


def _divisors(degree: Tensor) -> Tensor:
    return degree.clamp(min=1).unsqueeze(-1)


def _divisors_of(graph: Graph) -> Tensor:
    return graph.memo.get_or_make(('divisors of means',), lambda: _divisors(graph.degree))


def weights(call: Call, statistics: Tensor | None) -> Tensor:
    """The weight of each edge before dropout, ``[edge ids, H]``; 0 for ids of edges that are not walked.

    Args:
        call: A call of a program with a score.
        statistics: For softmax, the second result of `forward`.
    """
    csr = call.graph.csr
    result = zeros(call.like, call.graph.num_edge_ids, call.heads)
    tiling = tiling_of(call, planning.BACKWARD_REGISTERS, False)
    parts = cut(csr, mapping_for(csr, call.row_bytes))
    kernels.weights_kernel(call.bound, tiling)(
        parts.count * tiling.count,
        words_of(csr, parts, tiling, True),
        operands_of(call, TARGET),
        shared.Row(call.heads, call.width),
        Weights(statistics if call.bound.softmax else None, result),
    )
    return result


@functools.cache
def _no_states(dtype: torch.dtype) -> Packed:
    return Packed(shared.PartialStates(*(nothing(dtype),) * 3))


def _partial_states(call: Call, parts: Cut) -> shared.PartialStates | Packed:
    """Room for the state of rows that lie in several parts."""
    like, slots = call.like, parts.num_slots
    if not slots:
        return _no_states(like.dtype)
    tops = call.width if call.reduce in ('max', 'min') else call.heads
    return shared.PartialStates(*(like.new_empty(slots, size) for size in (call.width, tops, call.heads)))


def backward(
    call: Call,
    out: Tensor,
    statistics: Tensor | None,
    grad_out: Tensor,
    needed: Collection[str],
    features: Collection[str] = (),
) -> dict[str, Tensor | Product]:
    """The gradients of the operands `needed`, by name, in the shapes of the operands.

    Args:
        call: What `forward` was called with.
        out: Its first result.
        statistics: Its second result.
        grad_out: The gradient that reaches the output, contiguous.
        needed: Names of operands.
        features: Those of them that are products whose features need a gradient; else it is None.
    """
    bound, graph, reduce = call.bound, call.graph, call.reduce
    delta = head_dots(out, grad_out, call.heads) if bound.softmax else None
    single = single_part_of(call) if graph.is_sorted and is_single_part(graph, call.row_bytes) else None
    coo = unsorted(graph, call.row_bytes, bound.softmax, reduce)
    path = path_of(graph, grad_out, call.row_bytes) if coo is None else None
    single = single if path is None else None
    if reduce == 'mean':
        grad_out = grad_out / (_divisors(coo.degree()) if coo is not None else _divisors_of(graph))
    elif reduce in ('max', 'min'):
        # no edge attains NaN, and what is divided by 0 there goes nowhere
        grad_out = grad_out / statistics
    summed = bound.summed_sources
    if summed is not None and path is None and reduce in ('sum', 'mean') and coo is None:
        found = _sum_transposed(call, summed, grad_out) if single is None else single.sum_transposed(graph, grad_out)
        return {summed: found}
    normalisers = statistics if bound.softmax else None
    gradients: dict[str, Tensor | Product] = {}
    adding = single is not None or coo is not None or copies_of_heads(call) > 0
    for plan in _plans(bound, frozenset(needed), frozenset(features), adding):
        walked = walked_by(call, plan, path) if single is None else single.walked(call, plan.side)
        gradients |= _walk(call, plan, walked, path, out, normalisers, grad_out, delta)
    return gradients


def sum_of_few(
    bound: BoundProgram, heads: int, channels: int, reduce: str, graph: Graph, grad_out: Tensor
) -> Tensor | None:
    """The adjoint of a sum or mean of sources' rows over few edges; None where these are more, or not sorted.

    Args:
        bound, heads, channels, reduce, graph: Those of the call.
        grad_out: The gradient that reaches the output, ``[targets, H * C]``.
    """
    if not graph.is_sorted or not is_single_part(graph, heads * channels * grad_out.element_size()):
        return None
    grad_out = grad_out / _divisors_of(graph) if reduce == 'mean' else grad_out.contiguous()
    return decided(bound, heads, channels, reduce, grad_out.dtype).sum_transposed(graph, grad_out)


def _sum_transposed(call: Call, name: str, grad_out: Tensor) -> Tensor:
    """The adjoint of a sum of sources' rows: the same sum along the transpose, by forward's walk."""
    edges, mapping = edges_of(call, SOURCE)
    found = on_huge_pages(grad_out.new_empty(call.graph.num_sources, call.width))
    transposed = Call(call.bound, call.graph, {name: grad_out}, call.scalars, call.heads, call.channels)
    _sum_rows(transposed, ONE_PASS, edges, cut(edges, mapping), found, None)
    return found


def _walk(
    call: Call,
    plan: BackwardPlan,
    walked: Walked,
    path: ExecutionPath | None,
    out: Tensor,
    normalisers: Tensor | None,
    grad_out: Tensor,
    delta: Tensor | None,
) -> dict[str, Tensor | Product]:
    graph, like, bound = call.graph, call.like, call.bound
    edges, tiling, pieces, scattered = walked.edges, walked.tiling, walked.pieces, isinstance(walked.edges, Coo)
    num_rows, num_others = graph.num_targets, graph.num_sources
    if plan.side == SOURCE:
        num_rows, num_others = num_others, num_rows
    # rows that no path reaches are not walked
    result = like.new_empty if path is None else functools.partial(zeros, like)
    found: dict[str, Tensor | Product] = {}
    for name in (*plan.heads, *plan.channels):
        found[name] = on_huge_pages(result(call.tensors[name].shape))
    rows = [name for name in plan.edge_channels if name in bound.edge_rows]
    for name in (*plan.edges, *rows):
        # edges of the user that are not walked (self-loops that were replaced) have no gradient
        found[name] = zeros(like, *call.tensors[name].shape)
    products = [name for name in plan.edge_channels if name in bound.edge_products]
    weight_sums = tuple([zeros(like, pieces, *call.products[name].weight.shape) for name in products])
    features = tuple(
        [zeros(like, graph.num_edge_ids, tiling.count, call.products[name].features.shape[1]) for name in plan.features]
    )
    passed = tuple([on_huge_pages(like.new_empty(edges.num_edges, call.heads)) for _ in plan.passed])
    added = tuple([zeros(like, pieces, num_others, call.heads) for _ in plan.added])
    sums = tuple([zeros(like, pieces, call.width) for _ in plan.parameters])
    head_sums = tuple([zeros(like, pieces, call.heads) for _ in plan.parameter_heads])
    new = functools.partial(zeros, like) if scattered else like.new_empty
    partial_heads = tuple([new(walked.slots, call.heads) for _ in plan.heads])
    partial_rows = tuple([new(walked.slots, call.width) for _ in plan.channels])
    edge_scalars = tuple([zeros(like, graph.num_edge_ids, tiling.count) for _ in plan.edge_scalars])
    kernels.backward_kernel(bound, tiling, plan, call.reduce, scattered)(
        pieces * tiling.count,
        RowsWalked(tiling.tiles, walked.bounds, *walked.rows_of),
        operands_of(call, plan.side),
        shared.Row(call.heads, call.width),
        Ends(num_rows, num_others, edges.num_edges),
        draws_of(call),
        shared.OfTargets(grad_out, out, normalisers, delta),
        KeptWeights(call.weights),
        shared.Gradients(
            grad_heads=tuple([found[name] for name in plan.heads]),
            grad_channels=tuple([found[name] for name in plan.channels]),
            grad_edges=tuple([found[name] for name in plan.edges]),
            grad_edge_rows=tuple([found[name] for name in rows]),
            grad_weights=weight_sums,
            grad_features=features,
            grad_passed=passed,
            grad_parameters=sums,
            grad_edge_scalars=edge_scalars,
            grad_parameter_heads=head_sums,
            partial_heads=partial_heads,
            partial_rows=partial_rows,
        ),
        Added(added),
    )
    if scattered:
        copies = zip((*plan.heads, *plan.channels), (*partial_heads, *partial_rows), strict=True)
        found |= {name: added_up(values.view(pieces, num_rows, values.shape[1])) for name, values in copies}
    elif walked.slots:
        resident = (tuple(found[name] for name in plan.heads), tuple(found[name] for name in plan.channels))
        _combine_sums(call, tiling, walked.parts, (partial_heads, partial_rows), resident)
    for name, values in zip(plan.added, added, strict=True):
        found[name] = added_up(values)
    for name, values in zip(plan.passed, passed, strict=True):
        found[name] = _sum_passed(call, tiling, path, values)
    for name, values in zip((*plan.parameters, *plan.parameter_heads), (*sums, *head_sums), strict=True):
        found[name] = total(values).unsqueeze(0)
    for name, values in zip(plan.edge_scalars, edge_scalars, strict=True):
        found[name] = values.sum(dim=1, keepdim=True)
    of_features = {name: values.sum(dim=1) for name, values in zip(plan.features, features, strict=True)}
    for name, values in zip(products, weight_sums, strict=True):
        found[name] = Product(of_features.get(name), total(values))
    return found


def _combine_sums(call: Call, tiling: planning.Tiling, parts: Cut, partial: tuple, whole: tuple) -> None:
    """Adds partial sums of heads and of rows into the rows that lie in several parts."""
    kernels.combine_sums_kernel(tiling, len(whole[0]), len(whole[1]))(
        parts.num_split_rows * tiling.count,
        shared.SplitRows(tiling.tiles, parts.split_rows, parts.split_indptr, parts.slots),
        shared.Row(call.heads, call.width),
        Sums(*partial, *whole),
    )


def _sum_passed(call: Call, tiling: planning.Tiling, path: ExecutionPath | None, passed: Tensor) -> Tensor:
    graph = call.graph
    mapping = mapping_for(graph.csr, call.row_bytes)
    parts = cut(graph.csr, mapping)
    new = passed.new_empty if path is None else functools.partial(zeros, passed)
    result = on_huge_pages(new(graph.num_targets, call.heads))
    if path is None:
        rows_of = nothing(graph.csr.indptr.dtype), graph.csr.indptr, graph.place_in_csc
    else:
        edges, parts = rows_of_path(call, path, TARGET, parts, mapping)
        rows_of = edges.rows, edges.indptr, paths.place_by_source(path, graph)
    partial = passed.new_empty(parts.num_slots, call.heads)
    kernels.passed_sum_kernel(tiling)(
        parts.count * tiling.count,
        Passed(
            *(tiling.tiles, parts.bounds, *rows_of),
            total_heads=call.heads,
            num_walked=len(passed),
            passed=passed,
            grad_heads=result,
            partial_heads=partial,
        ),
    )
    if parts.num_slots:
        _combine_sums(call, tiling, parts, ((partial,), ()), ((result,), ()))
    return result


def dropout_factors(rows: int, heads: int, dropout: Dropout, like: Tensor) -> Tensor:
    """The factors, 0 or ``1 / (1 - probability)``, that walks draw for edges 0 to ``rows - 1``: ``[rows, heads]``."""
    return draw_factors(rows, heads, dropout, like.dtype)
