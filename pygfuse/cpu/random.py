"""Dropout from a counter: `pygfuse.codegen.philox`, keyed by seed, edge and head.

Nothing is stored: forward and backward, and any order of walking the edges, draw the same number for the same edge
and head.
"""

from __future__ import annotations

import functools
import math

import torch
from llvmlite import ir
from numba import types

from pygfuse.call.call import Dropout
from pygfuse.codegen import llvm, philox
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import INT64, rows_of_edges
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES

_ROWS = 4096


@functools.lru_cache(maxsize=64)
def _layout(dtype: torch.dtype, heads: int) -> Layout:
    return Layout(ELEMENT_TYPES[dtype], heads, 1)


@functools.cache
def _dropout_edges(kind: simd.HeadVector):
    # so many heads that follow one another share a block, of which a vector has one for each edge and group of heads
    together = math.gcd(kind.heads, philox.WORDS)
    groups = kind.heads // together
    blocks = kind.edges * groups
    places = [
        head % together * blocks + edge * groups + head // together
        for edge in range(kind.edges)
        for head in range(kind.heads)
    ]

    @intrinsic
    def dropout_edges(seed, threshold, scale, edge_id, begin, end, first_head):
        def emit(context, builder, signature, arguments):
            seed, threshold, scale, edge_id, begin, end, first_head = arguments
            rows = rows_of_edges(builder, kind.edges, signature.args[3], edge_id, begin, end)
            ids = ir.Constant(ir.VectorType(INT64, kind.edges), ir.Undefined)
            for k, row in enumerate(rows):
                ids = builder.insert_element(ids, row, ir.Constant(llvm.INT32, k))
            ids = llvm.shuffle(builder, ids, [block // groups for block in range(blocks)])
            heads = builder.add(
                llvm.splat(builder, first_head, blocks),
                philox.integers(ids.type, (block % groups * together for block in range(blocks))),
            )
            upper = ir.Constant(INT64, 32)
            key = [llvm.splat(builder, k, blocks) for k in (seed, builder.lshr(seed, upper))]
            counter = [
                ids,
                builder.lshr(ids, llvm.splat(builder, upper, blocks)),
                builder.lshr(heads, philox.integers(ids.type, [2] * blocks)),
                ir.Constant(ids.type, None),
            ]
            found = philox.words_of_heads(builder, philox.words(builder, counter, key), heads, together)
            # the lower halves of words of 64 bits
            halves = ir.VectorType(llvm.INT32, 2 * blocks)
            found = llvm.concatenate(builder, [builder.bitcast(word, halves) for word in found])
            drawn = llvm.shuffle(builder, found, [2 * place for place in places])
            limit = llvm.splat(builder, builder.trunc(threshold, llvm.INT32), kind.lanes)
            kept = simd.broadcast(context, builder, types.float64, scale, kind)[0]
            return builder.select(builder.icmp_unsigned('>=', drawn, limit), kept, llvm.constant(kept.type, 0.0))

        index = types.int64
        return kind(index, index, types.float64, edge_id, index, index, index), emit

    return dropout_edges


def dropout_edges(layout: Layout):
    """``dropout_edges(seed, threshold, scale, edge_id, begin, end, first_head)``: the edges' factors, 0 or `scale`."""
    return _dropout_edges(layout.edges)


@functools.lru_cache(maxsize=64)
def _factors_kernel(layout: Layout) -> Kernel:
    draw, store_some_edges, step = dropout_edges(layout), layout.store_some_edges, layout.step

    def factors(part, rows, heads, seed, threshold, scale, result):
        end = min(rows, (part + 1) * _ROWS)
        for q in range(part * _ROWS, end, step):
            store_some_edges(result, q * heads, draw(seed, threshold, scale, None, q, end, 0), end - q)

    return Kernel(factors, f'dropout factors, {layout.heads}, {layout.element}', (str(layout.edges),))


def dropout_factors(rows: int, heads: int, dropout: Dropout, dtype: torch.dtype) -> torch.Tensor:
    """The factors, 0 or ``1 / (1 - probability)``, that walks draw for edges 0 to ``rows - 1``: ``[rows, heads]``."""
    result = torch.empty(rows, heads, dtype=dtype)
    layout = _layout(dtype, heads)
    threshold, scale = philox.threshold_and_scale(dropout.probability)
    parts = (rows + _ROWS - 1) // _ROWS
    _factors_kernel(layout)(parts, rows, heads, dropout.seed, threshold, scale, result)
    return result
