"""Scores of a vector of edges: the step that all walks have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.inlining import compiled, edge_line_prefetcher, edge_row_loader, edge_value_prefetcher
from pygfuse.program.program import EDGE, BoundProgram
from pygfuse.program.trace import HEADS, SCALAR

# how many edges ahead the rows of their other ends, and their features, are asked for
AHEAD = 16
# the same of whole rows of features, for which 16 took up to 1.4 times as long
_ROWS_AHEAD = 8


@functools.partial(inlined, fuses_products=False)
def above(score, top):
    """A score less a maximum of scores, where a product that ends the score is rounded as it was for the maximum.

    One instruction for both would keep digits that the maximum has lost, which are much of a great score's difference.
    """
    return score - top


def summed_later(layout: Layout) -> bool:
    """Whether sums over channels are taken of several edges at once."""
    return layout.step > 1


def head_values(layout: Layout, unsummed: bool) -> tuple[Callable, Callable, Callable]:
    """``buffer()``, ``store(buffer, k, value)`` for a value of edge k, and ``load(buffer)`` for all edges side by side.

    Args:
        layout: What is held of a row.
        unsummed: Whether the values that are stored are rows, of which the sums over channels are loaded.
    """
    if unsummed:
        return layout.rows_buffer, layout.store_unsummed, layout.sum_unsummed
    heads, store_heads, load_edges = layout.heads, layout.store_heads, layout.load_edges

    @inlined
    def store(buffer, k, value):
        store_heads(buffer, k * heads, value)

    @inlined
    def load(buffer):
        return load_edges(buffer, 0)

    return layout.buffer, store, load


def row_fetcher(layout: Layout) -> Callable:
    """``fetch(q, end, walked, rows, width, channel)``: asks for rows of the other end of an edge some places behind q.

    Where much is computed on an edge, a processor does not look so far ahead, and would wait for each row.
    """
    return _fetcher(layout.fetch_row)


def head_fetcher(layout: Layout) -> Callable:
    """``fetch(q, end, walked, values, stride, first)``: as `row_fetcher`, for a value of each head."""
    return _fetcher(layout.fetch_heads)


def _fetcher(fetch_values: Callable) -> Callable:
    @inlined
    def fetch(q, end, walked, values, stride, first):
        fetch_values(values, place_at(walked.gathered, min(q + AHEAD, end - 1)) * stride + first)

    return fetch


def edge_row_fetcher(bound: BoundProgram, layout: Layout) -> Callable:
    """``fetch(q, end, walked, operands, width, channel)``: asks for the features of an edge some places behind q.

    Edges are walked in another order than their features lie in memory, so that no processor guesses the place. Where
    little is computed on an edge, it reads some edges ahead of what it computes, and the first line of a row does.
    """
    if bound.message.is_long:
        fetch_row = layout.fetch_row

        @inlined
        def fetch(q, end, walked, operands, width, channel):
            edge = place_at(walked.edge_id, min(q + _ROWS_AHEAD, end - 1))
            fetch_row(operands.edge_rows, edge * width + channel)

        return fetch
    fetch_lines = edge_line_prefetcher(len(bound.edge_rows))

    @inlined
    def fetch(q, end, walked, operands, width, channel):
        fetch_lines(operands, place_at(walked.edge_id, min(q + AHEAD, end - 1)) * width + channel)

    return fetch


def edge_scorer(bound: BoundProgram, layout: Layout, sides: Mapping[str, str]) -> Callable:
    """``score(...)``: the scores of some of a row's edges side by side, and the values of heads they came from.

    Scores of heads are computed for all of them at once. Scores of channels are computed edge by edge, where the rows
    `fetched` are asked for, each from the rows of both ends, and pass through a buffer. Products of edges are `formed`
    for the chunk that begins with edge `chunk_first`.

    Args:
        bound: A program with a score.
        layout: What is held of a row.
        sides: Which side is resident, which gathered.
    """
    row_of_score = bound.score.before_sum() if summed_later(layout) else None
    score = compiled(bound.text(row_of_score or bound.score, 'score', sides))
    gather_edges, gather_scalars, step, load_row = (
        layout.gather_edges, layout.gather_scalars, layout.step, layout.load_row,
    )  # fmt: skip
    fetch_rows, values = row_fetcher(layout), (len(bound.names(EDGE, HEADS)), len(bound.names(EDGE, SCALAR)))
    fetch_values, has_values = edge_value_prefetcher(*values), any(values)
    make_buffer, store, load = head_values(layout, row_of_score is not None)
    load_edge_rows = edge_row_loader(layout, len(bound.edge_rows), len(bound.edge_products))

    of_heads = bound.score_is_of_heads

    @inlined
    def score_edges(
        q, end, walked, operands, own_heads, own_row, head_parameters, parameters, total_heads, width, head, channel,
        fetched, last_edge, formed, chunk_first,
    ):  # fmt: skip
        if of_heads:
            if has_values:
                for k in range(min(step, end - q)):
                    ahead = place_at(walked.edge_id, min(q + k + AHEAD, last_edge - 1))
                    fetch_values(operands, ahead, total_heads)
            others = gather_edges(operands.gathered_heads, walked.gathered, q, end, total_heads, head)
            with_heads = gather_edges(operands.edge_heads, walked.edge_id, q, end, total_heads, head)
            on_edges = with_heads + gather_scalars(operands.edge_scalars, walked.edge_id, q, end)
            found = score(own_heads, (), others, (), on_edges, (), head_parameters, (), operands.scalars)
            return found, others, on_edges
        buffer = make_buffer()
        for k in range(min(step, end - q)):
            fetch_rows(q + k, last_edge, walked, fetched, width, channel)
            other = load_row(operands.gathered_channels, place_at(walked.gathered, q + k) * width + channel)
            edge = place_at(walked.edge_id, q + k)
            row = load_edge_rows(operands, edge, width, channel, formed, q + k - chunk_first)
            store(buffer, k, score((), own_row, (), other, (), row, (), parameters, operands.scalars))
        return load(buffer), (), ()

    return score_edges
