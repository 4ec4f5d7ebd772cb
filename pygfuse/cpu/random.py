"""Dropout from a counter: Philox-4x32 (Salmon et al., SC 2011) with seven rounds, keyed by seed, edge and head.

Nothing is stored: forward and backward, and any order of walking the edges, draw the same number for the same edge
and head. The first of the four words of ``philox(counter=(edge, edge >> 32, head, 0), key=seed)`` decides.
"""

from __future__ import annotations

import functools

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pygfuse.call import Dropout
from pygfuse.cpu import simd
from pygfuse.cpu.kernel import ELEMENT_TYPES, Kernel
from pygfuse.cpu.layout import INT64, Layout, group_rows

ROUNDS = 7
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROWS = 4096


@functools.lru_cache(maxsize=64)
def _layout(dtype: torch.dtype, heads: int) -> Layout:
    return Layout(ELEMENT_TYPES[dtype], heads, 1)


def threshold_and_scale(probability: float) -> tuple[int, float]:
    """For a dropout probability: the 32-bit number below which a word drops, and the scale of what is kept."""
    if probability >= 1.0:
        return 0, 0.0
    return min(round(probability * 2**32), 2**32 - 1), 1.0 / (1.0 - probability)


def _integers(lanes: int, values) -> ir.Constant:
    return ir.Constant(ir.VectorType(simd.INT32, lanes), [int(value) & 0xFFFFFFFF for value in values])


def _multiply_wide(builder, x: ir.Value, factor: int) -> tuple[ir.Value, ir.Value]:
    """The high and the low words of the 64-bit products."""
    wide = ir.VectorType(INT64, x.type.count)
    product = builder.mul(builder.zext(x, wide), ir.Constant(wide, [factor] * x.type.count))
    high = builder.lshr(product, ir.Constant(wide, [32] * x.type.count))
    return builder.trunc(high, x.type), builder.trunc(product, x.type)


def _philox(builder, counter: list[ir.Value], key: list[ir.Value]) -> ir.Value:
    """The first word of each lane's block."""
    lanes = counter[0].type.count
    for turn in range(ROUNDS):
        if turn:
            key = [builder.add(k, _integers(lanes, [step] * lanes)) for k, step in zip(key, KEY_STEPS, strict=True)]
        high0, low0 = _multiply_wide(builder, counter[0], MULTIPLIERS[0])
        high1, low1 = _multiply_wide(builder, counter[2], MULTIPLIERS[1])
        first = builder.xor(builder.xor(high1, counter[1]), key[0])
        third = builder.xor(builder.xor(high0, counter[3]), key[1])
        counter = [first, low1, third, low0]
    return counter[0]


@functools.cache
def _dropout_edges(kind: simd.HeadVector):
    lanes = kind.lanes

    @intrinsic
    def dropout_edges(typingctx, seed, threshold, scale, edge_id, begin, end, first_head):
        def emit(context, builder, signature, arguments):
            seed, threshold, scale, edge_id, begin, end, first_head = arguments
            rows = group_rows(context, builder, kind.edges, signature.args[3], edge_id, begin, end)
            ids = ir.Constant(ir.VectorType(INT64, kind.edges), ir.Undefined)
            for k, row in enumerate(rows):
                ids = builder.insert_element(ids, row, ir.Constant(simd.INT32, k))
            ids = simd.shuffle(builder, ids, [lane // kind.heads for lane in range(lanes)])
            words = ir.VectorType(simd.INT32, lanes)
            upper = ir.Constant(ir.VectorType(INT64, lanes), [32] * lanes)
            heads = simd.splat(builder, builder.trunc(first_head, simd.INT32), lanes)
            heads = builder.add(heads, _integers(lanes, (lane % kind.heads for lane in range(lanes))))
            key_high = builder.trunc(builder.lshr(seed, ir.Constant(INT64, 32)), simd.INT32)
            key = [simd.splat(builder, k, lanes) for k in (builder.trunc(seed, simd.INT32), key_high)]
            counter = [builder.trunc(ids, words), builder.trunc(builder.lshr(ids, upper), words), heads]
            drawn = _philox(builder, [*counter, _integers(lanes, [0] * lanes)], key)
            limit = simd.splat(builder, builder.trunc(threshold, simd.INT32), lanes)
            kept = simd.broadcast(context, builder, types.float64, scale, kind)[0]
            return builder.select(builder.icmp_unsigned('>=', drawn, limit), kept, simd.constant(kept.type, 0.0))

        index = types.int64
        return kind(index, index, types.float64, edge_id, index, index, index), emit

    return dropout_edges


def dropout_edges(layout: Layout):
    """``dropout_edges(seed, threshold, scale, edge_id, begin, end, first_head)``: a group's factors, 0 or `scale`."""
    return _dropout_edges(layout.edges)


@functools.lru_cache(maxsize=64)
def _factors_kernel(layout: Layout) -> Kernel:
    draw, store_some_edges, group = dropout_edges(layout), layout.store_some_edges, layout.group

    def factors(part, rows, heads, seed, threshold, scale, result):
        end = min(rows, (part + 1) * _ROWS)
        for q in range(part * _ROWS, end, group):
            store_some_edges(result, q * heads, draw(seed, threshold, scale, None, q, end, 0), end - q)

    return Kernel(factors, f'dropout factors, {layout.heads}, {layout.element}', (str(layout.edges),))


def dropout_factors(rows: int, heads: int, dropout: Dropout, dtype: torch.dtype) -> torch.Tensor:
    """The factors, 0 or ``1 / (1 - probability)``, that walks draw for edges 0 to ``rows - 1``: ``[rows, heads]``."""
    result = torch.empty(rows, heads, dtype=dtype)
    layout = _layout(dtype, heads)
    threshold, scale = threshold_and_scale(dropout.probability)
    parts = (rows + _ROWS - 1) // _ROWS
    _factors_kernel(layout)(parts, rows, heads, dropout.seed, threshold, scale, result)
    return result
