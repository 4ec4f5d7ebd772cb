"""Small functions made for a program, to be inlined into its walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu import simd
from pygfuse.cpu.intrinsics import intrinsic
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.memory import prefetch
from pygfuse.cpu.translation.functions import Function, inlined, of_text
from pygfuse.program import vocabulary


def compiled(text: str, **scope: object) -> Function:
    """The function of a text that speaks the vocabulary."""
    return of_text(text, {**vocabulary.WORDS, **scope})


@intrinsic
def add_tuples(a, b):
    """``add_tuples(a, b)``: two tuples of vectors, item by item."""

    def emit(context, builder, signature, arguments):
        sums = []
        for i, (kind, other) in enumerate(zip(*signature.args, strict=True)):
            mine = simd.unpack(builder, kind, builder.extract_value(arguments[0], i))
            theirs = simd.broadcast(context, builder, other, builder.extract_value(arguments[1], i), kind)
            vectors = [llvm.add(builder, x, y) for x, y in zip(mine, theirs, strict=True)]
            sums.append(simd.pack(builder, context, kind, vectors))
        return context.make_tuple(builder, signature.return_type, sums)

    return a(a, b), emit


def copies(length: int) -> Callable:
    """A function that repeats a value `length` times, as a tuple."""

    @intrinsic
    def copy(value):
        def emit(context, builder, signature, arguments):
            return context.make_tuple(builder, signature.return_type, [arguments[0]] * length)

        return types.Tuple((value,) * length)(value), emit

    return copy


def spread(layout: Layout, names: Sequence[str], used: Sequence[str]) -> Callable:
    """A function that makes rows of the gradients of the operands `used`, with zeros for the others of `names`."""
    row = layout.row

    @intrinsic
    def fill(found):
        def emit(context, builder, signature, arguments):
            zeros = ir.Constant(context.get_data_type(row), None)
            rows = []
            for name in names:
                if name not in used:
                    rows.append(zeros)
                    continue
                i = used.index(name)
                value = builder.extract_value(arguments[0], i)
                rows.append(simd.pack(builder, context, row, simd.broadcast(context, builder, found[i], value, row)))
            return context.make_tuple(builder, signature.return_type, rows)

        return types.Tuple((row,) * len(names))(found), emit

    return fill


def edge_row_loader(layout: Layout, rows: int, products: int) -> Callable:
    """``load(operands, row, width, channel)``: the channels operands of one edge, as a tuple.

    Args:
        layout: What is held of a row.
        rows: Number of operands that are given as rows ``[edge ids, width]``.
        products: Number of operands that are given as features ``[edge ids, D]`` times a weight ``[D, width]``: their
            rows are made here and never stored.
    """
    load_row, row_full = layout.load_row, layout.row_full

    @inlined
    def product(features, weight, row, width, channel):
        size = len(weight) // width
        result = row_full(0.0)
        for d in range(size):
            result = result + features[np.uint64(row * size + d)] * load_row(weight, d * width + channel)
        return result

    items = [f'load_row(operands.edge_rows[{i}], row * width + channel), ' for i in range(rows)]
    items += [
        f'product(operands.edge_features[{i}], operands.edge_weights[{i}], row, width, channel), '
        for i in range(products)
    ]
    text = f'def load(operands, row, width, channel):\n    return ({"".join(items)})'
    return compiled(text, load_row=load_row, product=product)


def edge_row_prefetcher(rows: int, products: int) -> Callable:
    """``fetch(operands, row, width)``: asks for what `edge_row_loader` will read of an edge.

    Edges are walked in another order than their features lie in memory, so that no processor guesses the place.
    """
    lines = [f'    prefetch(operands.edge_rows[{i}], row * width)' for i in range(rows)]
    lines += [
        f'    prefetch(operands.edge_features[{i}], row * (len(operands.edge_weights[{i}]) // width))'
        for i in range(products)
    ]
    text = '\n'.join(['def fetch(operands, row, width):', *lines, '    return'])
    return compiled(text, prefetch=prefetch)


def product_adjoint(layout: Layout, products: Sequence[int], of_features: Sequence[int]) -> Callable:
    """``adjoint(gradients, operands, grads, edge, width, channel, piece, tiles, tile)``.

    For operands that are features times a weight: adds the outer product of the edge's features and its gradient to
    the sums of this piece of the work, and writes the gradient of the features of this tile's channels.

    Args:
        layout: What is held of a row.
        products: Which of the gradients belong to which product, in order: positions in `features` and `weights`.
        of_features: Positions in `products` whose features need a gradient.
    """
    load_row, store_row, total = layout.load_row, layout.store_row, layout.total

    @inlined
    def outer(gradient, features, weight, row, width, channel, sums, piece):
        size = len(weight) // width
        for d in range(size):
            place = piece * len(weight) + d * width + channel
            store_row(sums, place, load_row(sums, place) + features[np.uint64(row * size + d)] * gradient)

    @inlined
    def inner(gradient, weight, row, width, channel, grad_features, tiles, tile):
        size = len(weight) // width
        for d in range(size):
            grad_features[np.uint64((row * tiles + tile) * size + d)] = total(
                gradient * load_row(weight, d * width + channel)
            )

    header = 'gradients, operands, grads, edge, width, channel, piece, tiles, tile'
    lines = []
    for i, position in enumerate(products):
        lines.append(
            f'    outer(gradients[{i}], operands.edge_features[{position}], operands.edge_weights[{position}], '
            f'edge, width, channel, grads.grad_weights[{i}], piece)'
        )
    for j, i in enumerate(of_features):
        lines.append(
            f'    inner(gradients[{i}], operands.edge_weights[{products[i]}], edge, width, channel, '
            f'grads.grad_features[{j}], tiles, tile)'
        )
    return compiled(f'def adjoint({header}):\n' + '\n'.join([*lines, '    return']), outer=outer, inner=inner)
