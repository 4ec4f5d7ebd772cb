"""Small functions made for a program, to be inlined into its walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen import llvm
from pygfuse.cpu.translation.functions import Function, of_text
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import prefetch
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
    """``load(operands, edge, width, channel, formed, place)``: the channels operands of one edge, as a tuple.

    Args:
        layout: What is held of a row.
        rows: Number of operands that are given as rows ``[edge ids, width]``.
        products: Number of operands that are given as features times a weight: their rows are those of the edge in its
            chunk (`pygfuse.cpu.walks.edge_products`).
    """
    items = [f'load_row(operands.edge_rows[{i}], edge * width + channel), ' for i in range(rows)]
    items += [f'load_row(formed[{i}], place * {layout.heads * layout.channels}), ' for i in range(products)]
    text = f'def load(operands, edge, width, channel, formed, place):\n    return ({"".join(items)})'
    return compiled(text, load_row=layout.load_row)


def edge_line_prefetcher(rows: int) -> Callable:
    """``fetch(operands, first)``: asks for the first cache line of what `edge_row_loader` will read of an edge."""
    lines = [f'    prefetch(operands.edge_rows[{i}], first)' for i in range(rows)]
    text = '\n'.join(['def fetch(operands, first):', *lines, '    return'])
    return compiled(text, prefetch=prefetch)


def edge_value_prefetcher(heads: int, scalars: int) -> Callable:
    """``fetch(operands, edge, total_heads)``: asks for an edge's values of heads and its numbers, as above."""
    lines = [f'    prefetch(operands.edge_heads[{i}], edge * total_heads)' for i in range(heads)]
    lines += [f'    prefetch(operands.edge_scalars[{i}], edge)' for i in range(scalars)]
    text = '\n'.join(['def fetch(operands, edge, total_heads):', *lines, '    return'])
    return compiled(text, prefetch=prefetch)
