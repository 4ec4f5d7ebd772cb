"""The walks over one level of a HAG.

A row aggregates rows of two places: first nodes of the graph, then aggregation nodes of the levels before.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pygfuse.codegen.combination import writers
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.parts import piece_of, row_at, rows_of
from pygfuse.program import vocabulary


def sum_body(layout: Instructions) -> Callable:
    """Sums. Rows of nodes are multiplied by `node_factors`, results by `row_factors`, where these are given."""
    load_row, row_full, (_, write_row) = layout.load_row, layout.row_full, writers(layout)

    def sums(part, tiles, bounds, indptr, middle, index, nodes, node_factors, values, row_factors, width, out, partial):
        _, piece, _, channel = piece_of(part, tiles)
        first_row, end_row, first_edge, last_edge = rows_of(piece, bounds, indptr)
        for v in range(first_row, end_row):
            begin, end, is_whole, slot = row_at(v, piece, indptr, first_edge, last_edge)
            change = min(max(place_at(middle, v), begin), end)
            result = row_full(0.0)
            for q in range(begin, change):
                u = place_at(index, q)
                row = load_row(nodes, u * width + channel)
                if node_factors is not None:
                    row = row * node_factors[u]
                result = result + row
            for q in range(change, end):
                result = result + load_row(values, place_at(index, q) * width + channel)
            if row_factors is not None and is_whole:
                result = result * row_factors[v]
            write_row(v, slot, is_whole, channel, width, result, out, partial)

    return sums


def component_sum_body(layout: Instructions) -> Callable:
    """All levels of sums in one walk: a part is a run of components, so that no other part needs what it computes.

    `bounds` holds, for each part, the first row and the end of each level of aggregation nodes, then of targets.
    """
    load_row, store_row, row_full = layout.load_row, layout.store_row, layout.row_full

    def component_sums(
        part, tiles, bounds, num_levels, inner_indptr, inner_middle, inner_index, indptr, middle, index,
        nodes, node_factors, values, row_factors, width, out,
    ):  # fmt: skip
        _, piece, _, channel = piece_of(part, tiles)
        for level in range(num_levels + 1):
            at = 2 * (piece * (num_levels + 1) + level)
            if level < num_levels:
                begins, changes, inputs, results = inner_indptr, inner_middle, inner_index, values
            else:
                begins, changes, inputs, results = indptr, middle, index, out
            for v in range(bounds[at], bounds[at + 1]):
                change = place_at(changes, v)
                result = row_full(0.0)
                for q in range(place_at(begins, v), change):
                    u = place_at(inputs, q)
                    row = load_row(nodes, u * width + channel)
                    if node_factors is not None:
                        row = row * node_factors[u]
                    result = result + row
                for q in range(change, place_at(begins, v + 1)):
                    result = result + load_row(values, place_at(inputs, q) * width + channel)
                if row_factors is not None and level == num_levels:
                    result = result * row_factors[v]
                store_row(results, v * width + channel, result)

    return component_sums


def extreme_body(layout: Instructions, smallest: bool) -> Callable:
    """Maxima (or minima), and the number of edges of the graph that attain each: of aggregation nodes it is given.

    For targets (`is_last`) torch counts the zero that a row begins with among the ties, although it takes no part.
    """
    load_row, row_full, (_, write_row) = layout.load_row, layout.row_full, writers(layout)
    maximum, equal = vocabulary.maximum, vocabulary.equal

    def extremes(
        part, tiles, bounds, indptr, middle, index, nodes, values, value_ties, is_last, width, out, ties_out, partial,
        partial_ties,
    ):  # fmt: skip
        _, piece, _, channel = piece_of(part, tiles)
        first_row, end_row, first_edge, last_edge = rows_of(piece, bounds, indptr)
        for v in range(first_row, end_row):
            begin, end, is_whole, slot = row_at(v, piece, indptr, first_edge, last_edge)
            change = min(max(place_at(middle, v), begin), end)
            result, ties = row_full(-np.inf), row_full(0.0)
            for q in range(begin, change):
                found = load_row(nodes, place_at(index, q) * width + channel)
                if smallest:
                    found = -found
                best = maximum(found, result)
                ties = equal(found, best, equal(result, best, ties, 0.0) + 1.0, ties)
                result = best
            for q in range(change, end):
                found = load_row(values, place_at(index, q) * width + channel)
                theirs = load_row(value_ties, place_at(index, q) * width + channel)
                if smallest:
                    found = -found
                best = maximum(found, result)
                ties = equal(found, best, equal(result, best, ties, 0.0) + theirs, ties)
                result = best
            if smallest:
                result = -result
            if is_whole:
                if end == begin:
                    result = row_full(0.0)
                if is_last:
                    ties = equal(result, 0.0, ties + 1.0, ties)
            write_row(v, slot, is_whole, channel, width, (result, ties), (out, ties_out), (partial, partial_ties))

    return extremes


def winners_body(layout: Instructions) -> Callable:
    """The adjoint of maxima and minima, along the reversed HAG: a gradient goes to whatever equals the result.

    As in torch, which multiplies with a mask, NaN has NaN for all that it was taken of.
    """
    load_row, row_full, (_, write_row) = layout.load_row, layout.row_full, writers(layout)
    equal = vocabulary.equal

    @inlined
    def of_winner(value, own, grad):
        return equal(value, own, grad, equal(value, value, grad - grad, value))

    def winners(
        part, tiles, bounds, indptr, middle, index, own, outs, grads, values, value_grads, width, result_grads, partial
    ):
        _, piece, _, channel = piece_of(part, tiles)
        first_row, end_row, first_edge, last_edge = rows_of(piece, bounds, indptr)
        for v in range(first_row, end_row):
            begin, end, is_whole, slot = row_at(v, piece, indptr, first_edge, last_edge)
            change = min(max(place_at(middle, v), begin), end)
            mine, result = load_row(own, v * width + channel), row_full(0.0)
            for q in range(begin, change):
                at = place_at(index, q) * width + channel
                result = result + of_winner(load_row(outs, at), mine, load_row(grads, at))
            for q in range(change, end):
                at = place_at(index, q) * width + channel
                result = result + of_winner(load_row(values, at), mine, load_row(value_grads, at))
            write_row(v, slot, is_whole, channel, width, result, result_grads, partial)

    return winners
