"""Aggregation over a HAG on the CPU: one walk a level.

Values of aggregation nodes live in memory that the layers of a model take in turn; nothing of them is saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.hag import component_sum_body, extreme_body, sum_body, winners_body
from pygfuse.graph.csr import Csr
from pygfuse.hag.components import component_bounds
from pygfuse.hag.hag import Hag
from pygfuse.hag.rows import Rows
from pygfuse.mapping.mapping import Cut, cut


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """Rows that are aggregated by one walk.

    Attributes:
        csr: Their inputs.
        middle: Where each row's aggregation nodes begin.
        first, last: Their numbers among aggregation nodes; of targets, None.
    """

    csr: Csr
    middle: Tensor
    first: int | None = None
    last: int | None = None

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)


def _level(rows: Rows, first: int | None = None, last: int | None = None) -> Level:
    return Level(Csr(rows.indptr, rows.index, None), rows.middle, first, last)


def _levels(hag: Hag) -> tuple[list[Level], Level]:
    """The levels of aggregation nodes, and the targets."""
    return hag.memo.get_or_make(('levels',), lambda: _cut_levels(hag))


def _cut_levels(hag: Hag) -> tuple[list[Level], Level]:
    bounds = itertools.pairwise(hag.level_pointer)
    inner = [_level(hag.aggregations.slice(first, last), first, last) for first, last in bounds]
    return inner, _level(hag.targets)


@contextlib.contextmanager
def _workspace(hag: Hag, like: Tensor, count: int) -> Iterator[Tensor]:
    """Room for `count` values of each aggregation node, ``[count, nodes, width]``, given back for the next layer."""
    # a list's append and pop are atomic: several threads may ask
    free = hag.workspaces.setdefault((count, like.dtype, like.shape[1]), [])
    try:
        values = free.pop()
    except IndexError:
        values = on_huge_pages(like.new_empty(count, hag.num_aggregation_nodes, like.shape[1]))
    try:
        yield values
    finally:
        free.append(values)


@functools.lru_cache(maxsize=64)
def _kernel(body: Callable, layout: Layout, *options: object) -> Kernel:
    name = f'{body.__name__.removesuffix("_body")} of a HAG, {layout.channels}, {layout.element}'
    return Kernel(body(layout, *options), name, (repr((layout.row, options)),))


def _run(
    body: Callable, options: tuple, level: Level, registers: int, width: int, given: tuple, out: tuple[Tensor, ...]
) -> Iterator[tuple[int, list[Tensor]]]:
    """Runs a walk that writes rows of `out`; returns the rows that lie in several parts with their partial results,
    one stack of rows for each tensor of `out`."""
    tiling = planning.tiling(out[0].dtype, 1, width, registers, True)
    parts = cut(level.csr)
    partial = tuple(tensor.new_empty(parts.num_slots, width) for tensor in out)
    _kernel(body, tiling.layout, *options)(
        parts.count * tiling.count,
        *(tiling.tiles, parts.bounds, level.csr.indptr, level.middle, level.csr.index),
        *(*given, width, *out, *partial),
    )
    return _pieces(parts, partial)


def _pieces(parts: Cut, partial: tuple[Tensor, ...]) -> Iterator[tuple[int, list[Tensor]]]:
    bounds = parts.split_indptr.tolist()
    for i, row in enumerate(parts.split_rows.tolist()):
        slots = parts.slots[bounds[i] : bounds[i + 1]]
        yield row, [tensor[slots] for tensor in partial]


def _total(pieces: Tensor) -> Tensor:
    """The sum of pieces in their order, whatever the number of threads."""
    return functools.reduce(torch.add, pieces)


def sums(hag: Hag, x: Tensor, factors: Tensor | None, row_factors: Tensor | None) -> Tensor:
    """The sum over each target's neighbours, ``[targets, width]``.

    Args:
        hag: The HAG.
        x: ``[sources, width]``, contiguous.
        factors: What each source's row is multiplied by, ``[sources]``, or None.
        row_factors: What each target's sum is multiplied by, ``[targets]``, or None.
    """
    inner, final = _levels(hag)
    out = on_huge_pages(x.new_empty(hag.num_targets, x.shape[1]))
    parts = component_bounds(hag)
    with _workspace(hag, x, 1) as (values,):
        if parts is not None:
            _sum_components(hag, parts, x, factors, values, row_factors, out)
            return out
        for level in inner:
            _sum_level(level, x, factors, values, None, values[level.rows])
        _sum_level(final, x, factors, values, row_factors, out)
    return out


def _sum_components(
    hag: Hag, bounds: Tensor, x: Tensor, factors: Tensor | None, values: Tensor, row_factors: Tensor | None, out: Tensor
) -> None:
    width = x.shape[1]
    tiling = planning.tiling(x.dtype, 1, width, planning.FORWARD_REGISTERS, True)
    rows = [tensor for part in (hag.aggregations, hag.targets) for tensor in (part.indptr, part.middle, part.index)]
    _kernel(component_sum_body, tiling.layout)(
        bounds.shape[0] * tiling.count,
        *(tiling.tiles, bounds.view(-1), hag.depth, *rows, x, factors, values, row_factors, width, out),
    )


def _sum_level(
    level: Level, x: Tensor, factors: Tensor | None, values: Tensor, row_factors: Tensor | None, out: Tensor
) -> None:
    given = (x, factors, values, row_factors)
    width = x.shape[1]
    for row, (pieces,) in _run(sum_body, (), level, planning.FORWARD_REGISTERS, width, given, (out,)):
        total = _total(pieces)
        out[row] = total if row_factors is None else total * row_factors[row]


def extremes(hag: Hag, x: Tensor, smallest: bool) -> tuple[Tensor, Tensor]:
    """The maximum (or minimum) over each target's neighbours, and the number of edges among which torch divides the
    gradient of each, both ``[targets, width]``; the number is 0 where no edge attains it (NaN)."""
    _, final = _levels(hag)
    out, ties = (on_huge_pages(x.new_empty(hag.num_targets, x.shape[1])) for _ in range(2))
    with _workspace(hag, x, 2) as (values, value_ties):
        _inner_extremes(hag, x, smallest, values, value_ties)
        _extreme_level(final, x, values, value_ties, smallest, out, ties)
    return out, ties


def _inner_extremes(hag: Hag, x: Tensor, smallest: bool, values: Tensor, ties: Tensor) -> None:
    for level in _levels(hag)[0]:
        _extreme_level(level, x, values, ties, smallest, values[level.rows], ties[level.rows])


def _extreme_level(
    level: Level, x: Tensor, values: Tensor, value_ties: Tensor, smallest: bool, out: Tensor, ties: Tensor
) -> None:
    is_last = level.first is None
    given, width = (x, values, value_ties, is_last), x.shape[1]
    whole = (out, ties)
    pieces = _run(extreme_body, (smallest,), level, planning.BACKWARD_REGISTERS, width, given, whole)
    for row, (found, theirs) in pieces:
        best = found.amin(0) if smallest else found.amax(0)
        out[row], ties[row] = best, _total(torch.where(found == best, theirs, 0.0))
        if is_last:
            ties[row] += best == 0


def extremes_backward(hag: Hag, x: Tensor, out: Tensor, ties: Tensor, grad_out: Tensor, smallest: bool) -> Tensor:
    """The gradient of `x`, from the results of `extremes` and the gradient that reaches the first.

    The values of aggregation nodes are computed anew.
    """
    shared, grad_x = (on_huge_pages(torch.empty_like(like)) for like in (out, x))
    torch.div(grad_out, ties, out=shared)
    inner, final = _levels(hag.reversed)
    with _workspace(hag, x, 2) as (values, value_ties), _workspace(hag.reversed, x, 1) as (value_grads,):
        _inner_extremes(hag, x, smallest, values, value_ties)
        values = values.flip(0)
        for level in inner:
            own, found = values[level.rows], value_grads[level.rows]
            _winner_level(level, own, out, shared, values, value_grads, found)
        _winner_level(final, x, out, shared, values, value_grads, grad_x)
    return grad_x


def _winner_level(
    level: Level, own: Tensor, out: Tensor, grads: Tensor, values: Tensor, value_grads: Tensor, found: Tensor
) -> None:
    given = (own, out, grads, values, value_grads)
    for row, (pieces,) in _run(winners_body, (), level, planning.BACKWARD_REGISTERS, out.shape[1], given, (found,)):
        found[row] = _total(pieces)
