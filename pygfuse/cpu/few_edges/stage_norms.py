"""Layer normalisations of a block of edges: sums over all blocks of a row's channels, and then each block.

What is summed of an edge is a number in memory, which the first block of channels begins.
"""

from __future__ import annotations

from pygfuse.cpu.few_edges.pieces import of_block
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.program.vocabulary import sqrt


def summed(block: Layout) -> Function:
    """``add(first, last, width, column, values, sums)``."""
    text = """
def add(first, last, width, column, values, sums):
    for e in range(first, last):
        found = total(load_row(values, e * width + column))
        if column > 0:
            found = found + sums[e]
        sums[e] = found
    return
"""
    return of_block(text, block, total=block.total)


def squared(block: Layout) -> Function:
    """``add(first, last, width, column, share, values, sums, squares)``: of what values are beside their mean.

    As everywhere here, `share` is one number's of a row, 1 / width.
    """
    text = """
def add(first, last, width, column, share, values, sums, squares):
    for e in range(first, last):
        row = load_row(values, e * width + column) - row_full(sums[e]) * share
        found = total(row * row)
        if column > 0:
            found = found + squares[e]
        squares[e] = found
    return
"""
    return of_block(text, block, total=block.total)


def normalised(block: Layout) -> Function:
    """``write(first, last, width, column, share, values, sums, squares, eps, weight, bias, out)``."""
    text = """
def write(first, last, width, column, share, values, sums, squares, eps, weight, bias, out):
    for e in range(first, last):
        scale = row_full(1.0) / sqrt(row_full(squares[e]) * share + eps)
        row = (load_row(values, e * width + column) - row_full(sums[e]) * share) * scale
        if weight is not None:
            row = row * load_row(weight, column)
        if bias is not None:
            row = row + load_row(bias, column)
        store_row(out, e * width + column, row)
    return
"""
    return of_block(text, block, sqrt=sqrt)


def summed_back(block: Layout) -> Function:
    """``add(first, last, width, column, share, values, sums, squares, eps, weight, grad, of_all, of_normed)``.

    Sums of the gradients of normalised values, and of these times the values.
    """
    text = """
def add(first, last, width, column, share, values, sums, squares, eps, weight, grad, of_all, of_normed):
    for e in range(first, last):
        scale = row_full(1.0) / sqrt(row_full(squares[e]) * share + eps)
        normed = (load_row(values, e * width + column) - row_full(sums[e]) * share) * scale
        row = load_row(grad, e * width + column)
        if weight is not None:
            row = row * load_row(weight, column)
        first_found, second_found = total(row), total(row * normed)
        if column > 0:
            first_found, second_found = first_found + of_all[e], second_found + of_normed[e]
        of_all[e] = first_found
        of_normed[e] = second_found
    return
"""
    return of_block(text, block, total=block.total, sqrt=sqrt)


def normalised_back(block: Layout) -> Function:
    """``back(first, last, width, column, share, values, sums, squares, eps, weight, grad, of_all, of_normed, of_weight,
    of_bias)``.

    Gradients after a normalisation become those before; those of its weight and bias are added.
    """
    text = """
def back(
    first, last, width, column, share, values, sums, squares, eps, weight, grad, of_all, of_normed, of_weight, of_bias
):
    weights, biases = row_full(0.0), row_full(0.0)
    for e in range(first, last):
        at = e * width + column
        scale = row_full(1.0) / sqrt(row_full(squares[e]) * share + eps)
        normed = (load_row(values, at) - row_full(sums[e]) * share) * scale
        row = load_row(grad, at)
        weights, biases = weights + row * normed, biases + row
        if weight is not None:
            row = row * load_row(weight, column)
        row = row - row_full(of_all[e]) * share - normed * (row_full(of_normed[e]) * share)
        store_row(grad, at, row * scale)
    if of_weight is not None:
        store_row(of_weight, column, load_row(of_weight, column) + weights)
    if of_bias is not None:
        store_row(of_bias, column, load_row(of_bias, column) + biases)
    return
"""
    return of_block(text, block, sqrt=sqrt)
