"""Sums along few edges as they come: one kernel on the calling thread checks them, counts them and adds them up.

Nothing is sorted and nothing kept, so that edges that are new cost what others cost. A row's edges are added in their
order, whatever was done with them before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pygfuse.codegen.launch_lines import LaunchLines
from pygfuse.codegen.packing import integers_that_stand_for
from pygfuse.cpu.compilation.in_turn import InTurn, OnThreads
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.few_edges.told_launches import write_told
from pygfuse.cpu.nodes.zero_rows import line_of, looks
from pygfuse.cpu.row_tiling import FORWARD_REGISTERS
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import numbers_at
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES, NUMPY_TYPES
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.ends import ends_of, is_any_outside
from pygfuse.program.sums_along_edges import MEAN, NORMALISED, NORMALISED_WITH_LOOPS, WEIGHTED
from pygfuse.program.vocabulary import sqrt


def _body(layout: Layout, dtype: torch.dtype, reduce: str, transposed: bool, begun: bool) -> Callable:
    element = NUMPY_TYPES[dtype]
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full
    load_number, store_number = layout.load_heads, layout.store_heads
    mean, with_loops = reduce == MEAN, reduce == NORMALISED_WITH_LOOPS
    normalised = with_loops or reduce == NORMALISED
    divided, multiplied, weighted = mean and not transposed, mean and transposed, reduce == WEIGHTED
    counted, loops = mean or normalised, int(with_loops)
    number_at = numbers_at(ELEMENT_TYPES[torch.int64])
    channels, (are_zero, _) = layout.channels, looks(line_of(ELEMENT_TYPES[dtype]))

    def add_along_edges(
        part, starts, edges, target_row, num_targets, num_sources, width, x, weights, itself, scale, out, address
    ):
        start, num_added = starts[part], number_at(address)
        targets, sources, num_edges = ends_of(edges, target_row)
        num_added[0] = -1
        if is_any_outside(targets, sources, num_edges, num_targets, num_sources):
            return
        factors = np.empty(num_targets if counted else 1, element)
        if counted:
            for v in range(num_targets):
                factors[v] = loops
            for edge in range(num_edges):
                if not with_loops or targets[edge] != sources[edge]:
                    factors[targets[edge]] += 1.0
            for v in range(num_targets):
                if not divided and factors[v] > 0.0:
                    count = load_number(factors, v)
                    store_number(factors, v, 1.0 / sqrt(count) if normalised else 1.0 / count)
        num_rows = num_sources if transposed else num_targets
        for v in range(num_rows):
            at = v * width + start
            row = load_row(out, at) if begun else row_full(0.0)
            if with_loops:
                row = row + load_row(x, at) * (factors[v] * factors[v])
            if itself is not None and not divided:
                row = row + load_row(itself, at) * scale
            store_row(out, at, row)
        # where the loss reads the first nodes only, as of a sampled neighbourhood
        last = start + channels
        skips = transposed and num_targets > 0 and are_zero(x, num_targets - 1, num_targets, width, start, last)
        is_zero = np.empty(num_targets if skips else 1, np.int64)
        if skips:
            for v in range(num_targets):
                is_zero[v] = are_zero(x, v, v + 1, width, start, last)
        added = 0
        for edge in range(num_edges):
            target, source = targets[edge], sources[edge]
            if with_loops and target == source:
                continue
            added += 1
            if skips and is_zero[target]:
                continue
            here, there = target, source
            if transposed:
                here, there = source, target
            row = load_row(x, there * width + start)
            if normalised:
                row = row * (factors[source] * factors[target])
            if multiplied:
                row = row * factors[target]
            if weighted:
                row = row * weights[edge]
            store_row(out, here * width + start, load_row(out, here * width + start) + row)
        if divided:
            for v in range(num_rows):
                row = load_row(out, v * width + start)
                if factors[v] > 0.0:
                    row = row / factors[v]
                if itself is not None:
                    row = row + load_row(itself, v * width + start) * scale
                store_row(out, v * width + start, row)
        num_added[0] = added + loops * num_rows

    return add_along_edges


_NUMBERS = 'target_row', 'num_targets', 'num_sources', 'num_added'


class Summed(NamedTuple):
    """A sum along few edges, but for their numbers.

    Attributes:
        dtype, width: Of rows.
        reduce: How edges are added up.
        transposed: Whether rows of targets are added at sources.
        with_itself: Whether each row is added to its own sum, ``itself`` times.
        begun: Whether sums are added to rows that are there.
    """

    dtype: torch.dtype
    width: int
    reduce: str
    transposed: bool = False
    with_itself: bool = False
    begun: bool = False


def write_sum(lines: LaunchLines, summed: Summed, x: str = 'x', out: str = 'out') -> None:
    """Writes lines that add up, and set ``num_added``, the number of edges.

    They read ``edge_index``, ``target_row``, ``num_targets``, ``num_sources`` and, where they are weighted or each row
    is added to its own sum, ``weights`` and ``itself``. They raise an IndexError if an edge names a node that is not
    there.

    Args:
        lines: Where they are written.
        summed: The sum.
        x, out: The names of the rows and of the sums, contiguous.
    """
    dtype = summed.dtype
    named: dict[str, object] = {x: torch.empty(0, dtype=dtype, device='cpu')}
    named[out] = torch.empty(0, dtype=dtype, device='cpu')
    named['edge_index'] = torch.empty(0, dtype=torch.int64, device='cpu')
    named |= integers_that_stand_for(_NUMBERS)
    named |= {'itself': float('0.5')} if summed.with_itself else {}
    named |= {'weights': torch.empty(0, dtype=dtype, device='cpu')} if summed.reduce == WEIGHTED else {}
    own = named[x] if summed.with_itself else None
    of_rows = named[x], named.get('weights'), own, named.get('itself'), named[out]
    of_edges = [named[name] for name in ('edge_index', *_NUMBERS[:3])]
    for layout, starts in blocks(dtype, summed.width, FORWARD_REGISTERS):
        key = str(layout.row), summed.reduce, str(summed.transposed), str(summed.begun)
        name = f'{summed.reduce} along few edges, {layout.channels}, {layout.element}'
        kernel = Kernel(_body(layout, dtype, summed.reduce, summed.transposed, summed.begun), name, key)
        arguments = starts, *of_edges, summed.width, *of_rows, named['num_added']
        launch = OnThreads(kernel.untested(arguments))
        write_told(lines, launch, starts.numel(), arguments, named, 'num_added', (x, out))


@functools.lru_cache(maxsize=256)
def _written(summed: Summed) -> Callable[..., int]:
    lines = LaunchLines(InTurn)
    write_sum(lines, summed)
    return lines.function('edge_index, target_row, num_targets, num_sources, x, weights, itself, out', 'num_added')


def add_along_edges(
    x: Tensor,
    edge_index: Tensor,
    target_row: int,
    num_targets: int,
    num_sources: int,
    reduce: str,
    transposed: bool = False,
    itself: float | None = None,
    begun: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, int]:
    """The sums at all targets of rows of sources, or the adjoint of that, and how many edges were added.

    Args:
        x: Rows of sources, of the adjoint those of targets, ``[nodes, width]``, at least one channel wide.
        edge_index: ``[2, edges]``.
        target_row: Which of its rows holds the targets.
        num_targets: Number of targets.
        num_sources: Number of sources; where both are normalised, they are the same nodes.
        reduce: How edges are added up.
        transposed: Whether rows of targets are added at sources.
        itself: How many times each row is added to its own sum, where sources and targets are the same nodes.
        begun: Contiguous rows to which an adjoint is added in place; None for rows of zeros.
        weights: A number for each edge, contiguous, of the type of `x`, where edges are weighted.

    Raises:
        IndexError: If an edge names a node that is not there. Nothing has been read by it.
    """
    # hooks of saved tensors may have laid them out otherwise
    if edge_index.dtype is not torch.int64 or not edge_index.is_contiguous():
        edge_index = edge_index.to(torch.int64).contiguous()
    x = x if x.is_contiguous() else x.contiguous()
    width = x.shape[1]
    out = x.new_empty(num_sources if transposed else num_targets, width) if begun is None else begun
    summed = Summed(x.dtype, width, reduce, transposed, itself is not None, begun is not None)
    added = _written(summed)(edge_index, target_row, num_targets, num_sources, x, weights, itself, out)
    return out, added
