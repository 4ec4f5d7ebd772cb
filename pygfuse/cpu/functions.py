"""Small functions made for a program, to be inlined into its walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np

from pygfuse import vocabulary
from pygfuse.cpu.layout import Layout


def compiled(text: str, **scope: object) -> Callable:
    """The function of a text that speaks the vocabulary."""
    names = {**vocabulary.WORDS, **scope}
    exec(text, names)
    return numba.njit(names[text.split('(')[0].removeprefix('def ')], error_model='numpy')


def tuple_sum(length: int) -> Callable:
    """A function that adds two tuples of `length` tiles item by item."""
    items = ''.join(f'a[{i}] + b[{i}], ' for i in range(length))
    return compiled(f'def add(a, b):\n    return ({items})')


def copies(length: int) -> Callable:
    """A function that repeats a value `length` times, as a tuple."""
    return compiled(f'def copy(value):\n    return ({"value, " * length})')


def spread(layout: Layout, names: Sequence[str], used: Sequence[str]) -> Callable:
    """A function that makes rows of the gradients of the operands `used`, with zeros for the others of `names`."""
    items = ''.join(f'found[{used.index(name)}] + zeros(), ' if name in used else 'zeros(), ' for name in names)
    return compiled(f'def fill(found):\n    return ({items})', zeros=layout.row_zeros)


def edge_row_loader(layout: Layout, rows: int, products: int) -> Callable:
    """``load(rows, features, weights, row, width, channel)``: the channels operands of one edge, as a tuple.

    Args:
        layout: What is held of a row.
        rows: Number of operands that are given as rows ``[edge ids, width]``.
        products: Number of operands that are given as features ``[edge ids, D]`` times a weight ``[D, width]``: their
            rows are made here and never stored.
    """
    load_row, row_zeros = layout.load_row, layout.row_zeros

    @numba.njit(error_model='numpy')
    def product(features, weight, row, width, channel):
        size = len(weight) // width
        result = row_zeros()
        for d in range(size):
            result = result + features[np.uint64(row * size + d)] * load_row(weight, d * width + channel)
        return result

    items = [f'load_row(rows[{i}], row * width + channel), ' for i in range(rows)]
    items += [f'product(features[{i}], weights[{i}], row, width, channel), ' for i in range(products)]
    text = f'def load(rows, features, weights, row, width, channel):\n    return ({"".join(items)})'
    return compiled(text, load_row=load_row, product=product)


def product_adjoint(layout: Layout, products: Sequence[int], of_features: Sequence[int]) -> Callable:
    """``adjoint(gradients, features, weights, row, width, channel, sums, piece, grad_features, tiles, tile)``.

    For operands that are features times a weight: adds the outer product of the edge's features and its gradient to
    the sums of this piece of the work in `sums`, and writes the gradient of the features of this tile's channels.

    Args:
        layout: What is held of a row.
        products: Which of the gradients belong to which product, in order: positions in `features` and `weights`.
        of_features: Positions in `products` whose features need a gradient.
    """
    load_row, store_row, total = layout.load_row, layout.store_row, layout.total

    @numba.njit(error_model='numpy')
    def outer(gradient, features, weight, row, width, channel, sums, piece):
        size = len(weight) // width
        for d in range(size):
            place = piece * len(weight) + d * width + channel
            store_row(sums, place, load_row(sums, place) + features[np.uint64(row * size + d)] * gradient)

    @numba.njit(error_model='numpy')
    def inner(gradient, weight, row, width, channel, grad_features, tiles, tile):
        size = len(weight) // width
        for d in range(size):
            grad_features[np.uint64((row * tiles + tile) * size + d)] = total(
                gradient * load_row(weight, d * width + channel)
            )

    header = 'gradients, features, weights, row, width, channel, weight_sums, piece, grad_features, tiles, tile'
    lines = []
    for i, position in enumerate(products):
        lines.append(
            f'    outer(gradients[{i}], features[{position}], weights[{position}], row, width, channel, '
            f'weight_sums[{i}], piece)'
        )
    for j, i in enumerate(of_features):
        lines.append(
            f'    inner(gradients[{i}], weights[{products[i]}], row, width, channel, grad_features[{j}], tiles, tile)'
        )
    return compiled(f'def adjoint({header}):\n' + '\n'.join([*lines, '    return']), outer=outer, inner=inner)
