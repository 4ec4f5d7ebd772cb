"""Random numbers of a lane's heads."""

from __future__ import annotations

import functools

from llvmlite import ir

from pygfuse.codegen import llvm, philox
from pygfuse.cuda.lanes import LaneHeads, broadcast
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.memory import INT32, INT64
from pygfuse.cuda.numba_cuda import intrinsic, types
from pygfuse.cuda.thread import Place


class Random:
    """What a lane draws."""

    layout: Layout
    heads: LaneHeads

    @functools.cached_property
    def dropout(self):
        """``dropout(seed, threshold, scale, edge, head)``: the factors of an edge's heads, 0 or `scale`."""
        heads, layout = self.heads, self.layout

        @intrinsic
        def dropout(typingctx, seed, threshold, scale, edge, head):
            def emit(context, builder, signature, arguments):
                seed, threshold, scale, edge, head = arguments
                place, count = Place(builder, layout), heads.count

                def spread(number):
                    return llvm.splat(builder, builder.trunc(number, INT32), count)

                numbers = ir.Constant(ir.VectorType(INT32, count), ir.Undefined)
                for i in range(count):
                    number = builder.trunc(builder.add(head, place.head(i)), INT32)
                    numbers = builder.insert_element(numbers, number, ir.Constant(INT32, i))
                upper = ir.Constant(INT64, 32)
                key = [spread(seed), spread(builder.lshr(seed, upper))]
                counter = [
                    spread(edge),
                    spread(builder.lshr(edge, upper)),
                    builder.lshr(numbers, philox.integers(numbers.type, [2] * count)),
                    ir.Constant(numbers.type, None),
                ]
                (drawn,) = philox.words_of_heads(builder, philox.words(builder, counter, key), numbers, 1)
                factor = broadcast(context, builder, types.float64, scale, heads)
                kept = builder.icmp_unsigned('>=', drawn, spread(threshold))
                return builder.select(kept, factor, ir.Constant(factor.type, None))

            index = types.int64
            return heads(index, index, types.float64, index, index), emit

        return dropout
