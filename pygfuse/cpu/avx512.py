"""What AVX-512 has beyond LLVM's own instructions, on float32 vectors of at most a register's lanes."""

from __future__ import annotations

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cpu import simd

_LANES, _BYTES = 16, 64
_ALL = ir.Constant(ir.IntType(_LANES), -1)
_AS_SET = ir.Constant(llvm.INT32, 4)  # rounded as the processor is set to


def has(vector: ir.VectorType) -> bool:
    """Whether this processor has these instructions for such a vector."""
    narrow = isinstance(vector.element, ir.FloatType) and vector.count <= _LANES
    return narrow and simd.register_bytes() == _BYTES


def scaled(builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """``x * 2^exponent`` of whole exponents, rounded once: also below the normal numbers."""
    lanes = x.type.count
    whole_register = [*range(lanes), *[lanes] * (_LANES - lanes)]
    x, exponent = (llvm.shuffle(builder, vector, whole_register) for vector in (x, exponent))
    operands = [x, exponent, ir.Constant(x.type, ir.Undefined), _ALL, _AS_SET]
    found = llvm.call(builder, 'llvm.x86.avx512.mask.scalef.ps.512', operands, x.type)
    return llvm.shuffle(builder, found, range(lanes))
