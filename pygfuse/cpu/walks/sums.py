"""The sums of what the adjoint's walk leaves of rows that lie in several parts, or passes along edges."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.codegen.combination import writers
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.arguments import COMBINE_SUMS, PASSED_SUM
from pygfuse.cpu.walks.inlining import add_tuples, copies
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.parts import piece_of, row_walkers


def combine_sums_body(layout: Layout, num_heads: int, num_rows: int) -> Callable:
    """Adds up what the parts left of the rows that lie in several, in the order of edges."""
    load_heads, load_row, store_heads, store_row = (
        layout.load_heads, layout.load_row, layout.store_heads, layout.store_row,
    )  # fmt: skip
    heads_full, row_full = layout.heads_full, layout.row_full
    copy_heads, copy_rows = copies(num_heads), copies(num_rows)

    @COMBINE_SUMS.of
    def combine_sums(part, left, total_heads, width, sums):
        _, split, head, channel = piece_of(part, left.tiles)
        v = left.split_rows[split]
        head_sums, row_sums = copy_heads(heads_full(0.0)), copy_rows(row_full(0.0))
        for k in range(left.split_indptr[split], left.split_indptr[split + 1]):
            head_sums = add_tuples(head_sums, load_heads(sums.partial_heads, left.slots[k] * total_heads + head))
            row_sums = add_tuples(row_sums, load_row(sums.partial_rows, left.slots[k] * width + channel))
        store_heads(sums.heads, v * total_heads + head, head_sums)
        store_row(sums.rows, v * width + channel, row_sums)

    return combine_sums


def passed_sum_body(layout: Instructions) -> Callable:
    """Sums what a walk passed along its edges over the rows of the other side.

    `position` holds, for each edge in this side's order, where the walk wrote it.
    """
    step, heads = layout.step, layout.heads
    gather_edges, mask_edges, edges_full = layout.gather_edges, layout.mask_edges, layout.edges_full
    sum_edges, (write_heads, _) = layout.sum_edges, writers(layout)
    rows_of, row_at = row_walkers(scattered=False)

    @PASSED_SUM.of
    def passed_sum(part, walked):
        tile, piece, head, _ = piece_of(part, walked.tiles)
        first_row, end_row, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
        for i in range(first_row, end_row):
            v, begin, end, is_whole, slot = row_at(i, walked.rows, piece, walked.indptr, first_edge, last_edge)
            total = edges_full(0.0)
            for q in range(begin, end, step):
                found = gather_edges(walked.passed, walked.position, q, end, heads, tile * walked.num_walked * heads)
                total = total + mask_edges(found, end - q, 0.0)
            write_heads(
                v,
                slot,
                is_whole,
                head,
                walked.total_heads,
                sum_edges(total),
                walked.grad_heads,
                walked.partial_heads,
            )

    return passed_sum
