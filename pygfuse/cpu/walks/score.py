"""Scores of a vector of edges: the step that all walks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pygfuse.cpu.inlining import compiled, edge_row_loader
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.memory import place_at
from pygfuse.cpu.translation.functions import inlined
from pygfuse.program.program import BoundProgram


def edge_scorer(bound: BoundProgram, layout: Layout, sides: Mapping[str, str]) -> Callable:
    """``score(...)``: the scores of some of a row's edges side by side, and the values of heads they came from.

    Scores of heads are computed for all of them at once. Scores of channels are computed edge by edge, each from
    the rows of both ends, and pass through the few bytes of `buffer`. Products of edges are `formed` for the chunk that
    begins with edge `chunk_first`.

    Args:
        bound: A program with a score.
        layout: What is held of a row.
        sides: Which side is resident, which gathered.
    """
    score = compiled(bound.text(bound.score, 'score', sides))
    gather_edges, gather_scalars, heads, step = layout.gather_edges, layout.gather_scalars, layout.heads, layout.step
    load_row, load_edges, store_heads = layout.load_row, layout.load_edges, layout.store_heads
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))

    of_heads = bound.score_is_of_heads

    @inlined
    def score_edges(
        q, end, walked, operands, own_heads, own_row, head_parameters, parameters, total_heads, width, head, channel,
        buffer, formed, chunk_first,
    ):  # fmt: skip
        if of_heads:
            others = gather_edges(operands.gathered_heads, walked.gathered, q, end, total_heads, head)
            with_heads = gather_edges(operands.edge_heads, walked.edge_id, q, end, total_heads, head)
            on_edges = with_heads + gather_scalars(operands.edge_scalars, walked.edge_id, q, end)
            found = score(own_heads, (), others, (), on_edges, (), head_parameters, (), operands.scalars)
            return found, others, on_edges
        for k in range(min(step, end - q)):
            other = load_row(operands.gathered_channels, place_at(walked.gathered, q + k) * width + channel)
            edge = place_at(walked.edge_id, q + k)
            row = load_edge_rows(operands, edge, width, channel, formed, q + k - chunk_first)
            store_heads(buffer, k * heads, score((), own_row, (), other, (), row, (), parameters, operands.scalars))
        return load_edges(buffer, 0), (), ()

    return score_edges
