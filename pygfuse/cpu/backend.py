"""The CPU's backend: runs a call's walks."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.pages import on_huge_pages
from pygfuse.call.call import Call, Dropout
from pygfuse.codegen import arguments as shared
from pygfuse.cpu import kernels
from pygfuse.cpu import row_tiling as planning
from pygfuse.cpu.adjoint import backward, backward_of_few, sum_of_few  # noqa: F401  part of what a backend has
from pygfuse.cpu.edges.walked_edges import edges_of, tiling_of, words_of
from pygfuse.cpu.few_edges import listed
from pygfuse.cpu.few_edges.single_part import is_single_part, single_part_of
from pygfuse.cpu.nodes.rows import added_up, zeros
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.random import dropout_factors as draw_factors
from pygfuse.cpu.row_sums import divisors, sum_rows
from pygfuse.cpu.walks.arguments import NumRows, Weights
from pygfuse.cpu.walks.forward import GIVEN, ONE_PASS, STATISTICS
from pygfuse.graph.coo import Coo
from pygfuse.graph.listed import Listed
from pygfuse.mapping.choice import mapping_for
from pygfuse.mapping.mapping import cut, scattered_bounds
from pygfuse.program.program import TARGET


def forward(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output ``[targets, H * C]``, and what its adjoint needs of it.

    That is, for softmax, a score near the greatest and the reciprocal of the sum of exponentials relative to it,
    ``[targets, 2, H]`` (one number, their log-sum-exp, would lose a great score's digits); for a maximum or minimum the
    number of edges that share each value's gradient, ``[targets, H * C]``; else None.
    """
    if type(call.graph) is Listed:
        return listed.forward(call)
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
        sum_rows(call, form, edges, cut(edges, mapping), out, statistics)
    return out, statistics


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
    return out / divisors(coo.degree()) if call.reduce == 'mean' else out


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
    kernels.weights_kernel(call.bound, tiling, call.reduce)(
        parts.count * tiling.count,
        words_of(csr, parts, tiling, True),
        operands_of(call, TARGET),
        shared.Row(call.heads, call.width),
        Weights(statistics if call.bound.softmax else None, result),
    )
    return result


def dropout_factors(rows: int, heads: int, dropout: Dropout, like: Tensor) -> Tensor:
    """The factors, 0 or ``1 / (1 - probability)``, that walks draw for edges 0 to ``rows - 1``: ``[rows, heads]``."""
    return draw_factors(rows, heads, dropout, like.dtype)
