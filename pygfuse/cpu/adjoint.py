"""The adjoint of a call on a CPU: the walks of its plans, and what becomes of what they leave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from pygfuse._lib.pages import LEAST_BYTES, on_huge_pages
from pygfuse._lib.panels import pack
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.codegen import arguments as shared
from pygfuse.cpu import kernels
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.edges import paths
from pygfuse.cpu.edges.turns import turns_of
from pygfuse.cpu.edges.walked_edges import Walked, copies_of_heads, edges_of, nothing, rows_of_path, walked_by
from pygfuse.cpu.few_edges import listed
from pygfuse.cpu.few_edges.leading_rows import backward_of_leading_rows
from pygfuse.cpu.few_edges.single_part import decided, is_single_part, single_part_of
from pygfuse.cpu.nodes.rows import added_up, head_dots, total, zeros
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.row_sums import divisors, divisors_of, sum_rows
from pygfuse.cpu.vectors.panels import lanes_of
from pygfuse.cpu.walks.arguments import Added, Ends, Panels, Passed, RowsWalked, Sums
from pygfuse.cpu.walks.forward import ONE_PASS
from pygfuse.graph.coo import Coo
from pygfuse.graph.graph import Graph
from pygfuse.graph.listed import Listed
from pygfuse.mapping.choice import mapping_for, unsorted
from pygfuse.mapping.mapping import Cut, cut
from pygfuse.partial.paths.path import ExecutionPath
from pygfuse.partial.paths.policy import path_of
from pygfuse.program.adjoint import BackwardPlan, backward_plans
from pygfuse.program.library.neighbours import SCALED_NEIGHBOURS
from pygfuse.program.products import Product
from pygfuse.program.program import SOURCE, TARGET, BoundProgram

_plans = functools.lru_cache(maxsize=256)(backward_plans)
_SCALED = SCALED_NEIGHBOURS.bind(('x', 'factor'))


def backward(asked: Gradient) -> dict[str, Tensor | Product]:
    """The gradients of operands, by name, in the shapes of the operands."""
    call, graph, reduce = asked.call, asked.call.graph, asked.call.reduce
    coo = unsorted(graph, call.row_bytes, call.bound.softmax, reduce)
    path = path_of(graph, asked.grad_out, call.row_bytes) if coo is None else None
    found = backward_of_few(asked) if path is None else None
    if found is None and path is None and coo is None:
        found = backward_of_leading_rows(asked)
    if found is not None:
        return found
    summed = call.bound.summed_sources
    is_sum = summed is not None and path is None and reduce in ('sum', 'mean') and coo is None
    if is_sum and reduce == 'mean' and asked.grad_out.nbytes >= LEAST_BYTES:
        return {summed: _mean_transposed(call, asked.grad_out)}
    counts = None
    if reduce == 'mean':
        counts = divisors_of(graph) if coo is None else divisors(coo.degree())
    of_messages = _of_messages(asked, counts)
    if is_sum:
        return {summed: _sum_transposed(call, summed, of_messages)}
    of_targets = _of_targets(asked, of_messages)
    gradients: dict[str, Tensor | Product] = {}
    for plan in _plans_of(asked, coo is not None or copies_of_heads(call) > 0):
        gradients |= _walk(call, plan, walked_by(call, plan, path), path, of_targets)
    return gradients


def _plans_of(asked: Gradient, adds_heads: bool) -> tuple[BackwardPlan, ...]:
    return _plans(asked.call.bound, frozenset(asked.needed), frozenset(asked.features), adds_heads)


def _of_messages(asked: Gradient, counts: Tensor | None) -> Tensor:
    """The gradient of what the messages are reduced to, before means are divided or ties counted."""
    if asked.call.reduce == 'mean':
        return _divided(asked.grad_out, counts)
    # no edge attains NaN, and what is divided by 0 there goes nowhere
    return _divided(asked.grad_out, asked.statistics) if asked.call.reduce in ('max', 'min') else asked.grad_out


def _divided(grad_out: Tensor, counts: Tensor) -> Tensor:
    if grad_out.nbytes < LEAST_BYTES:
        return grad_out / counts
    return torch.div(grad_out, counts, out=on_huge_pages(grad_out.new_empty(grad_out.shape)))


def _of_targets(asked: Gradient, of_messages: Tensor) -> shared.OfTargets:
    """What walks of the adjoint read of targets."""
    call, out = asked.call, asked.out
    if not call.bound.softmax:
        return shared.OfTargets(of_messages, out, None, None)
    return shared.OfTargets(of_messages, out, asked.statistics, head_dots(out, asked.grad_out, call.heads))


def backward_of_few(asked: Gradient) -> dict[str, Tensor | Product] | None:
    """As `backward`, of the whole graph; None where its edges are not few, or not sorted."""
    call = asked.call
    if type(call.graph) is Listed:
        return listed.backward(asked)
    if not call.graph.is_sorted or not is_single_part(call.graph, call.row_bytes):
        return None
    single = single_part_of(call)
    of_messages = _of_messages(asked, divisors_of(call.graph) if call.reduce == 'mean' else None)
    summed = call.bound.summed_sources
    if summed is not None and call.reduce in ('sum', 'mean'):
        return {summed: single.sum_transposed(call.graph, of_messages)}
    of_targets = _of_targets(asked, of_messages)
    gradients: dict[str, Tensor | Product] = {}
    for plan in _plans_of(asked, True):
        gradients |= _walk(call, plan, single.walked(call, plan.side), None, of_targets)
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
    grad_out = grad_out / divisors_of(graph) if reduce == 'mean' else grad_out.contiguous()
    return decided(bound, heads, channels, reduce, grad_out.dtype).sum_transposed(graph, grad_out)


def _sum_transposed(call: Call, name: str, grad_out: Tensor) -> Tensor:
    """The adjoint of a sum of sources' rows: the same sum along the transpose, by forward's walk."""
    return _transposed(call, Call(call.bound, call.graph, {name: grad_out}, call.scalars, call.heads, call.channels))


def _mean_transposed(call: Call, grad_out: Tensor) -> Tensor:
    """The adjoint of a mean of sources' rows; a factor that goes along costs less than a divided copy of many rows."""
    factors = call.graph.memo.get_or_make(
        ('factors of means', grad_out.dtype), lambda: divisors_of(call.graph).to(grad_out.dtype).reciprocal()
    )
    operands = {'x': grad_out, 'factor': factors}
    return _transposed(call, Call(_SCALED, call.graph, operands, {}, heads=1, channels=call.width))


def _transposed(call: Call, sums: Call) -> Tensor:
    """The sums along the transpose, where a call walks along the graph."""
    edges, mapping = edges_of(call, SOURCE)
    found = on_huge_pages(sums.like.new_empty(call.graph.num_sources, call.width))
    sum_rows(sums, ONE_PASS, edges, cut(edges, mapping), found, None)
    return found


def _walk(
    call: Call,
    plan: BackwardPlan,
    walked: Walked,
    path: ExecutionPath | None,
    of_targets: shared.OfTargets,
) -> dict[str, Tensor | Product]:
    graph, like, bound = call.graph, call.like, call.bound
    edges, tiling, scattered = walked.edges, walked.tiling, isinstance(walked.edges, Coo)
    operands = operands_of(call, plan.side)
    turns = turns_of(call, plan, walked, operands, of_targets)
    pieces, carried = max(turn.pieces for turn in turns), len(turns) > 1
    num_rows, num_others = graph.num_targets, graph.num_sources
    if plan.side == SOURCE:
        num_rows, num_others = num_others, num_rows
    # rows that no path reaches are not walked, and blocks add to what is there
    result = like.new_empty if path is None and not carried else functools.partial(zeros, like)
    found: dict[str, Tensor | Product] = {}
    for name in (*plan.heads, *plan.channels):
        found[name] = on_huge_pages(result(*call.tensors[name].shape))
    # edges of the user that are not walked (self-loops that were replaced) have no gradient
    new_of_edges = like.new_empty if edges.num_edges == graph.num_edge_ids else functools.partial(zeros, like)
    rows = [name for name in plan.edge_channels if name in bound.edge_rows]
    for name in plan.edges:
        found[name] = zeros(like, *call.tensors[name].shape)
    for name in rows:
        found[name] = on_huge_pages(new_of_edges(*call.tensors[name].shape))
    products = [name for name in plan.edge_channels if name in bound.edge_products]
    weight_sums = _each(products, lambda name: zeros(like, pieces, *call.products[name].weight.shape))
    features = _each(plan.features, lambda name: _for_features(call.products[name], tiling.count, new_of_edges))
    passed = _each(plan.passed, lambda _: on_huge_pages(like.new_empty(edges.num_edges, call.heads)))
    added = _each(plan.added, lambda _: zeros(like, pieces, num_others, call.heads))
    sums = _each(plan.parameters, lambda _: zeros(like, pieces, call.width))
    head_sums = _each(plan.parameter_heads, lambda _: zeros(like, pieces, call.heads))
    new = functools.partial(zeros, like) if scattered else like.new_empty
    room = lambda width: new(walked.slots, width) if walked.slots or scattered else nothing(like.dtype)  # noqa: E731
    partial_heads = _each(plan.heads, lambda _: room(call.heads))
    partial_rows = _each(plan.channels, lambda _: room(call.width))
    edge_scalars = _each(plan.edge_scalars, lambda _: zeros(like, graph.num_edge_ids, tiling.count))
    kernel = kernels.backward_kernel(bound, tiling, plan, call.reduce, scattered, carried)
    arguments = (
        operands,
        shared.Row(call.heads, call.width),
        Ends(num_rows, num_others, edges.num_edges),
        draws_of(call),
        of_targets,
        shared.KeptWeights(call.weights),
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
        Panels(_each(plan.features, lambda name: pack(call.products[name].weight, lanes_of(like.dtype)))),
    )
    for turn in turns:
        kernel(turn.pieces * tiling.count, RowsWalked(tiling.tiles, turn.bounds, *turn.rows_of), *arguments)
    if scattered:
        copies = zip((*plan.heads, *plan.channels), (*partial_heads, *partial_rows), strict=True)
        found |= {name: added_up(values.view(pieces, num_rows, values.shape[1])) for name, values in copies}
    elif walked.slots and not carried:
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
    of_features = dict(zip(plan.features, features, strict=True))
    for name, values in zip(products, weight_sums, strict=True):
        of_rows, of_loops = of_features.get(name, (None, None))
        found[name] = Product(
            None if of_rows is None else _over_tiles(of_rows),
            total(values),
            None if of_loops is None or call.products[name].loops is None else _over_tiles(of_loops),
        )
    return found


def _for_features(product: Product, tiles: int, new: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """Room for the gradients of features and of those of loops: a row for each tile of channels."""
    (rows, size), loops = product.features.shape, 0 if product.loops is None else len(product.loops)
    return on_huge_pages(new(rows, tiles, size)), on_huge_pages(new(loops, tiles, size))


def _over_tiles(values: Tensor) -> Tensor:
    """The sum over tiles of channels."""
    return values.squeeze(1) if values.shape[1] == 1 else values.sum(dim=1)


def _each(names: Collection[str], make: Callable[[str], Tensor]) -> tuple[Tensor, ...]:
    """A tensor for each name; there are none of most kinds."""
    return tuple([make(name) for name in names]) if names else ()


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
