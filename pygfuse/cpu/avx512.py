"""What AVX-512 has beyond LLVM's own instructions, on float32 vectors."""

from __future__ import annotations

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cpu import simd

_LANES, _BYTES = 16, 64
_ALL = ir.Constant(ir.IntType(_LANES), -1)
_AS_SET = ir.Constant(llvm.INT32, 4)  # rounded as the processor is set to


def has(vector: ir.VectorType) -> bool:
    """Whether this processor has these instructions for such a vector."""
    return isinstance(vector.element, ir.FloatType) and simd.register_bytes() == _BYTES


def scaled(builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """``x * 2^exponent`` of whole exponents, rounded once: also below the normal numbers."""
    lanes, found = x.type.count, []
    for start in range(0, lanes, _LANES):
        register = [min(lane, lanes) for lane in range(start, start + _LANES)]
        some, by = (llvm.shuffle(builder, vector, register) for vector in (x, exponent))
        operands = [some, by, ir.Constant(some.type, ir.Undefined), _ALL, _AS_SET]
        found.append(llvm.call(builder, 'llvm.x86.avx512.mask.scalef.ps.512', operands, some.type))
    return llvm.shuffle(builder, llvm.concatenate(builder, found), range(lanes))
