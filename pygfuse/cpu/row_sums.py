"""Sums over the edges of rows: the walk of a forward pass, which adjoints of sums take too."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.packing import Packed
from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cpu import kernels
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.edges.turns import blocks_of, gathered_by
from pygfuse.cpu.edges.walked_edges import needs_ids, nothing, threads_for, tiling_of, words_of
from pygfuse.cpu.nodes.rows import filled, zeros
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.walks.arguments import NumRows, Settled
from pygfuse.cpu.walks.forward import ONE_PASS, STATISTICS
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Cut, cut
from pygfuse.program.program import TARGET

# rows that are settled together
_ROWS_A_PART = 1024


def sum_rows(call: Call, form: str, csr: Csr, parts: Cut, out: Tensor, statistics: Tensor | None) -> None:
    """Writes the reduced rows of a call, or their statistics; one pass may take the edges in blocks.

    Args:
        call: The call.
        form: What is written, see `pygfuse.cpu.walks.forward`.
        csr: The edges by row.
        parts: How they are cut.
        out: ``[rows, H * C]``.
        statistics: As `pygfuse.cpu.backend.forward` returns them, or None.
    """
    # statistics belong to whole heads
    tiling = tiling_of(call, planning.FORWARD_REGISTERS, call.bound.separable and form != STATISTICS)
    operands = operands_of(call, TARGET)
    # tiles that have values in common would both add to them
    may_add = form == ONE_PASS and not planning.overlaps(tiling, call.width)
    blocks = blocks_of(call, csr, gathered_by(operands)) if may_add else ()
    carried = len(blocks) > 0
    partial = _states_of_rows(call, out) if carried else _partial_states(call, parts)
    row, results = shared.Row(call.heads, call.width), shared.Results(out, statistics)
    kernel = kernels.forward_kernel(call.bound, tiling, call.reduce, form, carried=carried)
    for edges, of_edges in [(block, cut(block)) for block in blocks] if carried else [(csr, parts)]:
        kernel(
            of_edges.count * tiling.count,
            words_of(edges, of_edges, tiling, needs_ids(call)),
            operands,
            row,
            NumRows(csr.num_rows),
            draws_of(call),
            results,
            partial,
            threads=threads_for(call, csr.num_edges),
        )
    if carried:
        _settle(call, csr, tiling, partial, results)
    elif parts.num_slots:
        kernels.combine_kernel(tiling, call.bound.softmax, call.reduce, form)(
            parts.num_split_rows * tiling.count,
            shared.SplitRows(tiling.tiles, parts.split_rows, parts.split_indptr, parts.slots),
            shared.RowPointer(csr.indptr),
            row,
            partial,
            results,
        )


def _states_of_rows(call: Call, out: Tensor) -> shared.PartialStates:
    """The states of all rows before any edge: a row's slot is its own, and its sums lie where its output will be."""
    like, rows, none = call.like, len(out), nothing(call.like.dtype)
    if call.reduce in ('max', 'min'):
        return shared.PartialStates(filled(out, -torch.inf), zeros(like, rows, call.width), none)
    filled(out, 0.0)
    if not call.bound.softmax:
        return shared.PartialStates(out, none, none)
    least = filled(like.new_empty(rows, call.heads), torch.finfo(like.dtype).min)
    return shared.PartialStates(out, least, zeros(like, rows, call.heads))


def _settle(call: Call, csr: Csr, tiling: Tiling, partial: shared.PartialStates, results: shared.Results) -> None:
    """Makes the output of the states that were carried from block to block; a sum is its own."""
    if call.reduce == 'sum' and not call.bound.softmax:
        return
    kernels.settle_kernel(tiling, call.bound.softmax, call.reduce)(
        -(-csr.num_rows // _ROWS_A_PART) * tiling.count,
        Settled(tiling.tiles, csr.indptr, csr.num_rows, _ROWS_A_PART),
        shared.Row(call.heads, call.width),
        partial,
        results,
    )


def divisors(degree: Tensor) -> Tensor:
    """What sums of rows are divided by for means, ``[rows, 1]``: the number of edges, or 1 where there are none."""
    return degree.clamp(min=1).unsqueeze(-1)


def divisors_of(graph: Graph) -> Tensor:
    """`divisors` of the targets of a graph, kept with it."""
    return graph.memo.get_or_make(('divisors of means',), lambda: divisors(graph.degree))


@functools.cache
def no_states(dtype: torch.dtype) -> Packed:
    """What a walk takes in place of `PartialStates` where no row lies in several parts."""
    return Packed(shared.PartialStates(*(nothing(dtype),) * 3))


def _partial_states(call: Call, parts: Cut) -> shared.PartialStates | Packed:
    """Room for the state of rows that lie in several parts."""
    like, slots = call.like, parts.num_slots
    if not slots:
        return no_states(like.dtype)
    tops = call.width if call.reduce in ('max', 'min') else call.heads
    return shared.PartialStates(*(like.new_empty(slots, size) for size in (call.width, tops, call.heads)))
