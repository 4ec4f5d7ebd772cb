"""The C function of a kernel: takes parts of the work from a counter, and runs the body for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from llvmlite import ir
from numba import types

from pygfuse.codegen.llvm import FLAGS
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.translation.statements import Builder, translate_call
from pygfuse.cpu.translation.values import CONTEXT, Array, Computed
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES

_INT64 = ir.IntType(64)
# the block of 64-bit words: the counter of parts, their number, and the arguments
COUNTER, PARTS, FIRST_ARGUMENT = 0, 1, 2


def write_entry(module: ir.Module, name: str, body: Function, description: tuple) -> None:
    """Writes the function ``void name(int64_t *block)``.

    Args:
        module: Where it is written.
        name: Its symbol.
        body: What is done for a part: ``body(part, *arguments)``.
        description: The types of the arguments, nested as they are: element types of tensors, ``int``, ``float``,
            ``type(None)`` and tuples; of a named tuple, one of its kind.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_INT64.as_pointer()]), name)
    function.attributes.add('nounwind')
    builder = Builder(function)
    start, loop, inside, end = (function.append_basic_block(label) for label in ('start', 'parts', 'part', 'end'))
    builder.branch(start)
    builder.position_at_end(start)
    words = _words(builder, function.args[0])
    parts = next(words)
    arguments = _read(builder, words, description)
    builder.branch(loop)
    builder.position_at_end(loop)
    part = builder.atomic_rmw('add', _word_at(builder, function.args[0], COUNTER), ir.Constant(_INT64, 1), 'monotonic')
    builder.cbranch(builder.icmp_signed('<', part, parts), inside, end)
    builder.position_at_end(inside)
    translate_call(builder, body, (Computed(types.int64, part), *arguments))
    builder.memory.release()
    builder.branch(loop)
    builder.position_at_end(end)
    builder.ret_void()
    # no flag that assumes away NaN or infinity: a diverging model must show it
    builder.allow(FLAGS)


def _word_at(builder: ir.IRBuilder, block: ir.Value, position: int) -> ir.Value:
    return builder.gep(block, [ir.Constant(_INT64, position)])


def _words(builder: ir.IRBuilder, block: ir.Value) -> Iterator[ir.Value]:
    """The number of parts, and then the words of the arguments."""
    position = PARTS
    while True:
        yield builder.load(_word_at(builder, block, position))
        position += 1


def _read(builder: ir.IRBuilder, words: Iterator[ir.Value], description: tuple) -> tuple[Any, ...]:
    """The arguments of these types, from the words that follow."""
    return tuple(_read_one(builder, words, kind) for kind in description)


def _read_one(builder: ir.IRBuilder, words: Iterator[ir.Value], kind: object) -> Any:
    if isinstance(kind, tuple):
        items = _read(builder, words, kind)
        return type(kind)(*items) if hasattr(kind, '_fields') else items
    if isinstance(kind, torch.dtype):
        pointer = types.CPointer(ELEMENT_TYPES[kind])
        address, length = next(words), next(words)
        return Array(pointer, builder.inttoptr(address, CONTEXT.get_value_type(pointer)), length)
    if kind is type(None):
        return None
    if kind is float:
        return Computed(types.float64, builder.bitcast(next(words), ir.DoubleType()))
    return Computed(types.int64, next(words))
