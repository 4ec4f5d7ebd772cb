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
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.rows import filled, zeros
from pygfuse.cpu.walked_edges import needs_ids, nothing, threads_for, tiling_of, words_of
from pygfuse.cpu.walks.arguments import NumRows, Settled
from pygfuse.cpu.walks.forward import STATISTICS
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Cut, cut
from pygfuse.program.program import TARGET

# rows that are settled together
_ROWS_A_PART = 1024


def sum_rows(
    call: Call,
    form: str,
    csr: Csr,
    parts: Cut,
    out: Tensor,
    statistics: Tensor | None,
    blocks: tuple[Csr, ...] = (),
) -> None:
    """Writes the reduced rows of a call, or their statistics.

    Args:
        call: The call.
        form: What is written, see `pygfuse.cpu.walks.forward`.
        csr: The edges by row.
        parts: How they are cut.
        out: ``[rows, H * C]``.
        statistics: As `pygfuse.cpu.backend.forward` returns them, or None.
        blocks: The same edges in blocks, in which one pass may take them.
    """
    # statistics belong to whole heads
    tiling = tiling_of(call, planning.FORWARD_REGISTERS, call.bound.separable and form != STATISTICS)
    if blocks and not planning.overlaps(tiling, call.width):
        _sum_blocks(call, csr, blocks, tiling, shared.Results(out, statistics))
        return
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


def _sum_blocks(call: Call, csr: Csr, blocks: tuple[Csr, ...], tiling: Tiling, results: shared.Results) -> None:
    """As `sum_rows`, along one block of edges after another: each goes on with what those before it found of a row."""
    softmax, is_sum = call.bound.softmax, call.reduce == 'sum' and not call.bound.softmax
    partial = _states_of_rows(call, results.out)
    kernel = kernels.forward_kernel(call.bound, tiling, call.reduce, carried=True)
    for block in blocks:
        of_block = cut(block)
        kernel(
            of_block.count * tiling.count,
            words_of(block, of_block, tiling, needs_ids(call)),
            operands_of(call, TARGET),
            shared.Row(call.heads, call.width),
            NumRows(csr.num_rows),
            draws_of(call),
            results,
            partial,
            threads=threads_for(call, csr.num_edges),
        )
    if not is_sum:
        kernels.settle_kernel(tiling, softmax, call.reduce)(
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
