"""The walk that writes the weights of edges."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.walks.arguments import WEIGHTS
from pygfuse.cpu.walks.edge_products import EdgeProducts
from pygfuse.cpu.walks.parts import piece_of, row_at, rows_of
from pygfuse.cpu.walks.score import above, edge_scorer
from pygfuse.program import vocabulary
from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram


def weights_body(bound: BoundProgram, layout: Layout) -> Callable:
    """The walk that writes each edge's weight, before dropout, at the edge's id; of a softmax it reads the statistics.

    Args:
        bound: A program with a score.
        layout: What is held of a row.
    """
    softmax, score, exp = bound.softmax, edge_scorer(bound, layout, BY_TARGET), vocabulary.exp
    step, load_heads, load_row = layout.step, layout.load_heads, layout.load_row
    repeat, scatter_edges = layout.repeat, layout.scatter_edges
    with_products, products = len(bound.edge_products) > 0, EdgeProducts(layout, len(bound.edge_products))
    formed_room, fill = products.room, products.fill

    @WEIGHTS.of
    def weights(part, walked, operands, total_heads, width, statistics, result):
        _, piece, head, channel = piece_of(part, walked.tiles)
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = repeat(load_heads(operands.parameter_heads, head))
        first_row, end_row, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
        formed, chunk_first, chunk_last = formed_room(), first_edge, first_edge
        for v in range(first_row, end_row):
            begin, end, _, _ = row_at(v, piece, walked.indptr, first_edge, last_edge)
            own_heads = repeat(load_heads(operands.resident_heads, v * total_heads + head))
            own_row = load_row(operands.resident_channels, v * width + channel)
            if softmax:
                top = repeat(load_heads(statistics, 2 * v * total_heads + head))
                factor = repeat(load_heads(statistics, (2 * v + 1) * total_heads + head))
            for q in range(begin, end, step):
                if with_products and min(q + step, end) > chunk_last:
                    chunk_first, chunk_last = q, fill(operands, walked.edge_id, q, last_edge, width, channel, formed)
                s, _, _ = score(
                    q, end, walked, operands, own_heads, own_row, head_parameters, parameter_rows,
                        total_heads, width, head, channel, operands.gathered_channels, last_edge, formed, chunk_first,
                )  # fmt: skip
                if softmax:
                    s = exp(above(s, top)) * factor
                scatter_edges((result,), walked.edge_id, q, end, total_heads, head, (s,))

    return weights
