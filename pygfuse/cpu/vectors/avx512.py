"""What AVX-512 has beyond LLVM's own instructions, on float32 vectors."""

from __future__ import annotations

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cpu.vectors import simd

_LANES, _BYTES = 16, 64
_AS_SET = ir.Constant(llvm.INT32, 4)  # rounded as the processor is set to


def has(vector: ir.VectorType) -> bool:
    """Whether this processor has these instructions for such a vector."""
    return isinstance(vector.element, ir.FloatType) and simd.register_bytes() == _BYTES


def scaled(builder, x: ir.Value, exponent: ir.Value, where: ir.Value) -> ir.Value:
    """``x * 2^exponent`` of whole exponents, rounded once: also below the normal numbers; 0 but for the lanes `where`.

    What is not computed cannot fall below the normal numbers, which takes some processors as long as a hundred others.
    """
    lanes, bits, found = x.type.count, ir.IntType(_LANES), []
    for start in range(0, lanes, _LANES):
        register = [min(lane, lanes) for lane in range(start, start + _LANES)]
        some, by = (llvm.shuffle(builder, vector, register) for vector in (x, exponent))
        nowhere = ir.Constant(where.type, [False] * lanes)
        mask = builder.bitcast(llvm.shuffle(builder, where, register, nowhere), bits)
        operands = [some, by, llvm.constant(some.type, 0.0), mask, _AS_SET]
        found.append(llvm.call(builder, 'llvm.x86.avx512.mask.scalef.ps.512', operands, some.type))
    return llvm.shuffle(builder, llvm.concatenate(builder, found), range(lanes))
