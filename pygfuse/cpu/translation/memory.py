"""Memory that a kernel's body asks for with ``np.empty``: it is given back once the part of the work is done."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from pygfuse.cpu.translation.values import CONTEXT, Array

_INT64, _ADDRESS = ir.IntType(64), ir.IntType(8).as_pointer()
# before each piece of memory stands the address of the one before; as many bytes as what `malloc` is aligned to
_HEADER = ir.Constant(_INT64, 16)


class Memory:
    """What one kernel allocates.

    Args:
        builder: Writes its instructions.
    """

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self._last: ir.Value | None = None

    def _function(self, name: str, returns: ir.Type, argument: ir.Type) -> ir.Value:
        module = self.builder.module
        return module.globals.get(name) or ir.Function(module, ir.FunctionType(returns, [argument]), name)

    def allocate(self, element: types.Type, length: ir.Value) -> Array:
        """An array of so many elements, none of which has a value yet."""
        builder = self.builder
        if self._last is None:
            with builder.goto_entry_block():
                self._last = builder.alloca(_ADDRESS)
                builder.store(ir.Constant(_ADDRESS, None), self._last)
        itemsize = ir.Constant(_INT64, CONTEXT.get_abi_sizeof(CONTEXT.get_data_type(element)))
        size = builder.add(builder.mul(length, itemsize), _HEADER)
        found = builder.call(self._function('malloc', _ADDRESS, _INT64), [size])
        builder.store(builder.load(self._last), builder.bitcast(found, _ADDRESS.as_pointer()))
        builder.store(found, self._last)
        kind = CONTEXT.get_value_type(types.CPointer(element))
        return Array(types.CPointer(element), builder.bitcast(builder.gep(found, [_HEADER]), kind), length)

    def release(self) -> None:
        """Gives everything back."""
        if self._last is None:
            return
        builder = self.builder
        loop, inside, end = (builder.append_basic_block(name) for name in ('memory', 'release', 'released'))
        builder.branch(loop)
        builder.position_at_end(loop)
        found = builder.load(self._last)
        builder.cbranch(builder.icmp_unsigned('!=', found, ir.Constant(_ADDRESS, None)), inside, end)
        builder.position_at_end(inside)
        builder.store(builder.load(builder.bitcast(found, _ADDRESS.as_pointer())), self._last)
        builder.call(self._function('free', ir.VoidType(), _ADDRESS), [found])
        builder.branch(loop)
        builder.position_at_end(end)
