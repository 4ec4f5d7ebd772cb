"""What passes between the warps of a block, through shared memory."""

from __future__ import annotations

from llvmlite import ir

from pygfuse.codegen import llvm
from pygfuse.cuda.lanes import each_element
from pygfuse.cuda.layout import BLOCK, LOAD_BYTES, WARP
from pygfuse.cuda.numba_cuda import intrinsic
from pygfuse.cuda.thread import number_of, shift, thread

_SHARED = 3  # LLVM's number of the address space of shared memory
_WARPS = BLOCK // WARP


@intrinsic
def sum_of_warps(typingctx, value):
    """``sum_of_warps(value)``: the sum, over the warps of a block, of a number or heads that each warp's lanes share.

    All threads of the block call it together. The same bits for all: warps are added in pairs.
    """

    def emit(context, builder, signature, arguments):
        (given,) = arguments
        if isinstance(given.type, ir.VectorType):
            return each_element(builder, lambda number: _sum_of_warps(builder, number), given)
        return _sum_of_warps(builder, given)

    return value(value), emit


def _sum_of_warps(builder, number: ir.Value) -> ir.Value:
    slots = _slots(builder, number.type)
    lane, zero = builder.and_(thread(builder), number_of(WARP - 1)), number_of(0)
    # what was left there before has been read by all
    _wait(builder)
    with builder.if_then(builder.icmp_unsigned('==', lane, zero)):
        warp = builder.lshr(thread(builder), shift(WARP))
        builder.store(number, builder.gep(slots, [zero, warp]))
    _wait(builder)
    found = [builder.load(builder.gep(slots, [zero, number_of(warp)])) for warp in range(_WARPS)]
    while len(found) > 1:
        found = [llvm.add(builder, x, y) for x, y in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _slots(builder, kind: ir.Type) -> ir.GlobalVariable:
    """A number of each warp, in shared memory."""
    name = f'pygfuse_sums_{kind.intrinsic_name}'
    slots = builder.module.globals.get(name)
    if slots is None:
        slots = ir.GlobalVariable(builder.module, ir.ArrayType(kind, _WARPS), name, addrspace=_SHARED)
        slots.linkage, slots.align = 'internal', LOAD_BYTES
        slots.initializer = ir.Constant(slots.value_type, ir.Undefined)
    return slots


def _wait(builder) -> None:
    """Waits until all threads of the block are here."""
    llvm.call(builder, 'llvm.nvvm.barrier0', [], ir.VoidType())
