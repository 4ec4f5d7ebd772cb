"""What stages on few edges do to a block of channels, edge by edge: sums of both ends, products, and their adjoints."""

from __future__ import annotations

from pygfuse.cpu.few_edges.pieces import of_block
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout


def begun(block: Layout) -> Function:
    """``begin(first, last, targets, sources, width, column, source, target, features, out)``."""
    text = """
def begin(first, last, targets, sources, width, column, source, target, features, out):
    for e in range(first, last):
        row = row_full(0.0)
        if target is not None:
            row = load_row(target, targets[e] * width + column)
        if source is not None:
            row = row + load_row(source, sources[e] * width + column)
        if features is not None:
            row = row + load_row(features, e * width + column)
        store_row(out, e * width + column, row)
    return
"""
    return of_block(text, block)


def scattered(block: Layout) -> Function:
    """``scatter(first, last, targets, sources, width, column, grad, of_source, of_target, of_features)``."""
    text = """
def scatter(first, last, targets, sources, width, column, grad, of_source, of_target, of_features):
    for e in range(first, last):
        row = load_row(grad, e * width + column)
        if of_target is not None:
            here = targets[e] * width + column
            store_row(of_target, here, load_row(of_target, here) + row)
        if of_source is not None:
            there = sources[e] * width + column
            store_row(of_source, there, load_row(of_source, there) + row)
        if of_features is not None:
            store_row(of_features, e * width + column, row)
    return
"""
    return of_block(text, block)


def total(block: Layout) -> Function:
    """``total(first, last, width, column, values, more, out)``: ``values``, and ``more`` if it is there."""
    text = """
def total(first, last, width, column, values, more, out):
    for e in range(first, last):
        row = load_row(values, e * width + column)
        if more is not None:
            row = row + load_row(more, e * width + column)
        store_row(out, e * width + column, row)
    return
"""
    return of_block(text, block)


def times(block: Layout) -> Function:
    """``times(first, last, sources, width, column, source, features, size, values, out)``."""
    text = """
def times(first, last, sources, width, column, source, features, size, values, out):
    for e in range(first, last):
        row = load_row(values, e * width + column)
        if source is not None:
            row = row * load_row(source, sources[e] * width + column)
        if features is not None:
            if size == width:
                row = row * load_row(features, e * width + column)
            else:
                row = row * features[e]
        store_row(out, e * width + column, row)
    return
"""
    return of_block(text, block)


def dropped(block: Layout) -> Function:
    """``drop(first, last, width, column, marks, draws, values, out)``: `out` may be `values`, its own adjoint."""
    text = """
def drop(first, last, width, column, marks, draws, values, out):
    key, probability = load_row(draws, column), load_row(draws, width + column)
    for e in range(first, last):
        factor = dropout_factor(row_full(marks[e]), key, probability)
        store_row(out, e * width + column, load_row(values, e * width + column) * factor)
    return
"""
    return of_block(text, block)


def times_back(block: Layout) -> Function:
    """``back(first, last, sources, width, column, source, features, size, values, grad, of_source, of_rows)``.

    Gradients after a product become those before; those of rows of sources are added, those of features written.
    """
    text = """
def back(first, last, sources, width, column, source, features, size, values, grad, of_source, of_rows):
    for e in range(first, last):
        at = e * width + column
        row, value = load_row(grad, at), load_row(values, at)
        factor = row_full(1.0)
        if features is not None:
            if size == width:
                factor = load_row(features, at)
            else:
                factor = row_full(1.0) * features[e]
        other = row_full(1.0)
        if source is not None:
            other = load_row(source, sources[e] * width + column)
        if of_source is not None:
            there = sources[e] * width + column
            store_row(of_source, there, load_row(of_source, there) + row * value * factor)
        if of_rows is not None:
            store_row(of_rows, at, row * value * other)
        store_row(grad, at, row * factor * other)
    return
"""
    return of_block(text, block)
