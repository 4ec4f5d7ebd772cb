"""Sums over the edges of rows: the walk of a forward pass, which adjoints of sums take too."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.packing import Packed
from pygfuse.cpu import kernels
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.walked_edges import needs_ids, nothing, threads_for, tiling_of, words_of
from pygfuse.cpu.walks.arguments import NumRows
from pygfuse.cpu.walks.forward import STATISTICS
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Cut
from pygfuse.program.program import TARGET


def sum_rows(call: Call, form: str, csr: Csr, parts: Cut, out: Tensor, statistics: Tensor | None) -> None:
    """Writes the reduced rows of a call, or their statistics.

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
