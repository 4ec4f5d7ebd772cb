"""Aggregation over a HAG on a GPU: each level is a graph, walked as any other.

The sources of a level's graph are the nodes of the graph and behind them, in one tensor, all aggregation nodes; its
targets are the rows of the level. Values of aggregation nodes are written where the levels above read them, in float32
for narrower types. Nothing of them is saved.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from pygfuse._lib.memo import Memo
from pygfuse.call.call import Call, statistics_dtype
from pygfuse.cuda import backend
from pygfuse.graph.graph import Graph
from pygfuse.hag.hag import Hag
from pygfuse.hag.rows import Rows
from pygfuse.program.library.extreme_gradient import WINNERS
from pygfuse.program.library.neighbours import NEIGHBOURS


def sums(hag: Hag, x: Tensor, factors: Tensor | None, row_factors: Tensor | None) -> Tensor:
    """The sum over each target's neighbours; see `pygfuse.cpu.hag.sums`."""
    inner, final = _levels(hag, x.device)
    values = _with_aggregations(hag, x if factors is None else x * factors.unsqueeze(1))
    for level, rows in inner:
        _neighbours(level, values, 'sum', values[rows])
    out = _neighbours(final, values, 'sum')
    return (out if row_factors is None else out * row_factors.unsqueeze(1)).to(x.dtype)


def extremes(hag: Hag, x: Tensor, smallest: bool) -> tuple[Tensor, Tensor]:
    """The maximum (or minimum) over each target's neighbours, and what torch divides the gradient of each by; see
    `pygfuse.cpu.hag.extremes`."""
    (inner, final), reduce = _levels(hag, x.device), 'min' if smallest else 'max'
    values = _with_aggregations(hag, x)
    ties = torch.ones_like(values)
    for level, rows in inner:
        _neighbours(level, values, reduce, values[rows])
        _winners(level, values[rows], values, ties, ties[rows])
    out = _neighbours(final, values, reduce)
    # torch counts the zero that a row begins with among the ties, although it takes no part
    attained = _winners(final, out, values, ties) + (out == 0)
    return out.to(x.dtype), attained.to(x.dtype)


def extremes_backward(hag: Hag, x: Tensor, out: Tensor, ties: Tensor, grad_out: Tensor, smallest: bool) -> Tensor:
    """The gradient of `x` from the results of `extremes`; see `pygfuse.cpu.hag.extremes_backward`."""
    values = _with_aggregations(hag, x)
    for level, rows in _levels(hag, x.device)[0]:
        _neighbours(level, values, 'min' if smallest else 'max', values[rows])
    inner, final = _levels(hag.reversed, x.device)
    found = _with_aggregations(hag.reversed, out)
    found[hag.num_targets :] = values[hag.num_sources :].flip(0)
    grads = _with_aggregations(hag.reversed, grad_out / ties.clamp(min=1))
    for level, rows in inner:
        _winners(level, found[rows], found, grads, grads[rows])
    return _winners(final, values[: hag.num_sources], found, grads).to(x.dtype)


def _levels(hag: Hag, device: torch.device) -> tuple[list[tuple[Graph, slice]], Graph]:
    """The levels of aggregation nodes with the places of their rows behind the nodes, and the targets."""
    there = hag.memo.get_or_make(('memo', device), lambda: Memo(device))
    return there.get_or_make(('levels',), lambda: _levels_on(hag, device))


def _levels_on(hag: Hag, device: torch.device) -> tuple[list[tuple[Graph, slice]], Graph]:
    inner = []
    for first, last in itertools.pairwise(hag.level_pointer):
        rows = slice(hag.num_sources + first, hag.num_sources + last)
        inner.append((_level(hag, hag.aggregations.slice(first, last), device), rows))
    return inner, _level(hag, hag.targets, device)


def _level(hag: Hag, rows: Rows, device: torch.device) -> Graph:
    inputs = rows.index.long() + hag.num_sources * rows.of_aggregations()
    edges = torch.stack([inputs, rows.rows()]).to(device)
    nodes = hag.num_sources + hag.num_aggregation_nodes
    return Graph.of(edges, num_sources=nodes, num_targets=rows.num_rows)


def _with_aggregations(hag: Hag, x: Tensor) -> Tensor:
    """Rows of nodes and room for those of aggregation nodes behind them."""
    dtype = statistics_dtype(x.dtype)
    values = x.new_empty(x.shape[0] + hag.num_aggregation_nodes, x.shape[1], dtype=dtype)
    values[: x.shape[0]] = x
    return values


def _neighbours(level: Graph, values: Tensor, reduce: str, out: Tensor | None = None) -> Tensor:
    """The sum or extreme of each row's inputs."""
    call = Call(NEIGHBOURS.bind(('x',)), level, {'x': values}, {}, 1, values.shape[1], reduce)
    return backend.forward(call, out)[0]


def _winners(level: Graph, own: Tensor, found: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
    """The sum, over each row's inputs that equal the row in `found`, of theirs in `values`."""
    operands = {'own': own, 'found': found, 'value': values}
    return backend.forward(Call(WINNERS.bind(tuple(operands)), level, operands, {}, 1, own.shape[1]), out)[0]
