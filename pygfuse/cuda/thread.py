"""Which thread this is, and where its share of a row lies."""

from __future__ import annotations

import functools

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.memory import INT32, INT64


def special(builder, name: str) -> ir.Value:
    """A special register as a 64-bit number."""
    return builder.zext(llvm.call(builder, f'llvm.nvvm.read.ptx.sreg.{name}', [], INT32), INT64)


def thread(builder) -> ir.Value:
    return special(builder, 'tid.x')


def shift(size: int) -> ir.Constant:
    return ir.Constant(INT64, size.bit_length() - 1)


def number_of(value: int) -> ir.Constant:
    return ir.Constant(INT64, value)


class Place:
    """Where this lane's vectors of a row lie, as LLVM values."""

    def __init__(self, builder, layout: Layout) -> None:
        self.builder, self.layout = builder, layout
        self.lane = builder.and_(thread(builder), number_of(layout.lanes - 1))
        self.first_head = builder.lshr(self.lane, shift(layout.lanes_per_head))
        self.within = builder.and_(self.lane, number_of(layout.lanes_per_head - 1))

    def head(self, value: int) -> ir.Value:
        """The head of one of this lane's head values; may be beyond the last."""
        return self.builder.add(self.first_head, number_of(value * self.layout.heads_side_by_side))

    def has_head(self, value: int) -> ir.Value:
        return self.builder.icmp_signed('<', self.head(value), number_of(self.layout.heads))

    def clamped_head(self, value: int) -> ir.Value:
        if not self.layout.has_spare_heads:
            return self.head(value)
        return self.builder.select(self.has_head(value), self.head(value), number_of(0))

    def owns_head(self, value: int) -> ir.Value:
        """Whether this lane is the first of those that share the head."""
        first = self.builder.icmp_signed('==', self.within, number_of(0))
        return self.builder.and_(first, self.has_head(value)) if self.layout.has_spare_heads else first

    def vector(self, register: int) -> tuple[ir.Value, ir.Value | None]:
        """The offset in its row of the first value of a vector, and whether it is there (None: it always is)."""
        layout, builder = self.layout, self.builder
        value, part = divmod(register, layout.per_head)
        within = builder.add(self.within, number_of(part * layout.lanes))
        conditions = []
        if layout.has_spare_heads:
            conditions.append(self.has_head(value))
        if layout.has_spare_channels:
            conditions.append(builder.icmp_signed('<', within, number_of(layout.vectors_per_head)))
        offset = builder.add(
            builder.mul(self.head(value), number_of(layout.channels)), builder.mul(within, number_of(layout.vector))
        )
        if not conditions:
            return offset, None
        return offset, functools.reduce(builder.and_, conditions)
