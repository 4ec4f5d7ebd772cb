"""The CPU target: runs a call's walks."""

from __future__ import annotations

import functools
from collections.abc import Collection

import torch
from torch import Tensor

from pygfuse.call import Call
from pygfuse.cpu import plan as planning
from pygfuse.cpu import vertex_balanced
from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.random import threshold_and_scale
from pygfuse.cpu.rows import head_dots
from pygfuse.cpu.vertex_balanced import BackwardPlan
from pygfuse.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.trace import CHANNELS, HEADS, SCALAR


@functools.lru_cache(maxsize=256)
def _forward_kernel(bound: BoundProgram, tiling: planning.Tiling, mean: bool) -> Kernel:
    layout = tiling.layout
    texts = [trace.text('f') for trace in (bound.score, bound.message) if trace is not None]
    return Kernel(
        vertex_balanced.forward_body(bound, layout, mean),
        f'{bound.program.name} forward, {layout.heads} x {layout.channels}, {layout.element}',
        (*texts, str(bound.softmax), str(mean), str(layout.row), str(layout.edges), repr(bound.present)),
    )


@functools.lru_cache(maxsize=256)
def _backward_kernel(bound: BoundProgram, tiling: planning.Tiling, key: str, plan: BackwardPlan) -> Kernel:
    layout = tiling.layout
    texts = [trace.text('f') for trace in (bound.score, bound.message) if trace is not None]
    return Kernel(
        vertex_balanced.backward_body(bound, layout, plan),
        f'{bound.program.name} backward by {plan.side}, {layout.heads} x {layout.channels}, {layout.element}',
        (*texts, str(bound.softmax), str(layout.row), str(layout.edges), repr(bound.present), key),
    )


@functools.lru_cache(maxsize=256)
def _passed_sum_kernel(tiling: planning.Tiling) -> Kernel:
    layout = tiling.layout
    return Kernel(
        vertex_balanced.passed_sum_body(layout),
        f'row sums, {layout.heads}, {layout.element}',
        (str(layout.edges),),
    )


def _tiling(call: Call, registers: int, split_channels: bool) -> planning.Tiling:
    grouped = call.bound.score_is_of_heads
    return planning.tiling(call.like().dtype, call.heads, call.channels, registers, split_channels, grouped)


def _scalars(call: Call) -> tuple[float, ...]:
    return tuple(float(call.scalars[name]) for name in call.bound.names(PARAMETER, SCALAR))


def _dropout(call: Call) -> tuple:
    if call.dropout is None:
        return None, None, None
    return call.dropout.seed, *threshold_and_scale(call.dropout.probability)


def forward(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]`` and, for softmax, the log-sum-exp of the scores ``[targets, H]``."""
    graph, like = call.graph, call.like()
    csr = graph.csr
    out = like.new_empty(graph.num_targets, call.width)
    logsumexp = like.new_empty(graph.num_targets, call.heads) if call.bound.softmax else None
    tiling = _tiling(call, planning.FORWARD_REGISTERS, call.bound.separable)
    parts = csr.parts()
    _forward_kernel(call.bound, tiling, call.mean)(
        (len(parts) - 1) * tiling.count,
        tiling.tiles, parts, csr.indptr, csr.index, csr.edge_id,
        call.operands(TARGET, HEADS), call.operands(TARGET, CHANNELS),
        call.operands(SOURCE, HEADS), call.operands(SOURCE, CHANNELS),
        call.operands(EDGE, HEADS), call.operands(PARAMETER, CHANNELS), _scalars(call),
        call.heads, call.width, *_dropout(call), out, logsumexp,
    )  # fmt: skip
    return out, logsumexp


def backward(
    call: Call, out: Tensor, logsumexp: Tensor | None, grad_out: Tensor, needed: Collection[str]
) -> dict[str, Tensor]:
    """The gradients of the operands `needed`, by name, in the shapes of the operands.

    Args:
        call: What `forward` was called with.
        out: Its first result.
        logsumexp: Its second result.
        grad_out: The gradient that reaches the output; for a mean, already divided by the rows' numbers of edges.
        needed: Names of operands.
    """
    delta = head_dots(out, grad_out, call.heads) if call.bound.softmax else None
    gradients: dict[str, Tensor] = {}
    for plan in planning.backward_plans(call.bound, needed):
        gradients |= _walk(call, plan, logsumexp, grad_out, delta)
    return gradients


def _walk(
    call: Call, plan: BackwardPlan, logsumexp: Tensor | None, grad_out: Tensor, delta: Tensor | None
) -> dict[str, Tensor]:
    graph, like = call.graph, call.like()
    edges = graph.csr if plan.side == TARGET else graph.csc
    other = SOURCE if plan.side == TARGET else TARGET
    tiling = _tiling(call, planning.BACKWARD_REGISTERS, False)
    parts = edges.parts()
    pieces = len(parts) - 1
    found = {name: torch.empty_like(call.tensors[name]) for name in (*plan.heads, *plan.channels)}
    found |= {name: torch.zeros_like(call.tensors[name]) for name in plan.edges}
    passed = tuple(like.new_empty(graph.num_edges, call.heads) for _ in plan.passed)
    sums = tuple(like.new_zeros(pieces, call.width) for _ in plan.parameters)
    _backward_kernel(call.bound, tiling, plan.key(), plan)(
        pieces * tiling.count,
        tiling.tiles, parts, edges.indptr, edges.index, edges.edge_id,
        call.operands(plan.side, HEADS), call.operands(plan.side, CHANNELS),
        call.operands(other, HEADS), call.operands(other, CHANNELS),
        call.operands(EDGE, HEADS), call.operands(PARAMETER, CHANNELS), _scalars(call),
        call.heads, call.width, graph.num_edges, *_dropout(call), grad_out, logsumexp, delta,
        tuple(found[name] for name in plan.heads), tuple(found[name] for name in plan.channels),
        tuple(found[name] for name in plan.edges), passed, sums,
    )  # fmt: skip
    for name, values in zip(plan.passed, passed, strict=True):
        found[name] = _sum_passed(call, tiling, values)
    for name, values in zip(plan.parameters, sums, strict=True):
        found[name] = values.sum(dim=0, keepdim=True)
    return found


def _sum_passed(call: Call, tiling: planning.Tiling, passed: Tensor) -> Tensor:
    csr = call.graph.csr
    parts = csr.parts()
    result = passed.new_empty(call.graph.num_targets, call.heads)
    _passed_sum_kernel(tiling)(
        (len(parts) - 1) * tiling.count,
        tiling.tiles, parts, csr.indptr, call.graph.place_in_csc, call.heads, call.graph.num_edges, passed, result,
    )  # fmt: skip
    return result
