"""What translated code works with: values of a kernel, what is known before it runs, and tuples of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from pygfuse.cpu.vectors import numbers

CONTEXT = cpu_target.target_context


@dataclasses.dataclass(frozen=True, eq=False)
class Computed:
    """A value that is computed when the kernel runs."""

    kind: types.Type
    ir: ir.Value = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Array(Computed):
    """An array: a pointer to its first element, and their number, an int64."""

    length: ir.Value = dataclasses.field(repr=False)

    @property
    def parts(self) -> tuple[Computed, Computed]:
        return Computed(self.kind, self.ir), Computed(types.int64, self.length)


@dataclasses.dataclass(frozen=True, eq=False)
class Slot:
    """A variable's place on the stack; LLVM keeps it in registers."""

    kind: types.Type
    place: ir.Value


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySlot:
    """The place of an array."""

    data: Slot
    length: Slot


def is_known_number(thing: Any) -> bool:
    """Whether something is a number that is known before the kernel runs."""
    return isinstance(thing, (bool, int, float))


def kind_of(thing: Any) -> types.Type:
    """The type as which something meets values of a kernel."""
    if isinstance(thing, Computed):
        return thing.kind
    if isinstance(thing, tuple):
        return types.Tuple(tuple(kind_of(item) for item in thing))
    if thing is None:
        return types.none
    for python, kind in ((bool, types.boolean), (int, types.int64), (float, types.float64)):
        if isinstance(thing, python):
            return kind
    raise ValueError(f'Expected a value, a number, a tuple or None (got {thing!r})')


def in_registers(builder: ir.IRBuilder, thing: Any) -> ir.Value:
    """Something as one LLVM value."""
    if isinstance(thing, Computed):
        return thing.ir
    kind = kind_of(thing)
    if isinstance(thing, tuple):
        return CONTEXT.make_tuple(builder, kind, [in_registers(builder, item) for item in thing])
    return CONTEXT.get_dummy_value() if thing is None else ir.Constant(numbers.LLVM_TYPES[kind], thing)


def converted(builder: ir.IRBuilder, thing: Any, to: types.Type) -> ir.Value:
    """Something as one LLVM value of a type, to which numbers are converted."""
    if is_known_number(thing) and to in numbers.LLVM_TYPES:
        if isinstance(thing, float) and not numbers.is_float(to):
            raise ValueError(f'Expected {to} (got {thing})')
        return ir.Constant(numbers.LLVM_TYPES[to], float(thing) if numbers.is_float(to) else int(thing))
    kind, value = kind_of(thing), in_registers(builder, thing)
    if kind in numbers.LLVM_TYPES and to in numbers.LLVM_TYPES:
        return numbers.cast(builder, value, kind, to)
    if kind != to:
        raise ValueError(f'Expected {to} (got {kind})')
    return value


def from_registers(builder: ir.IRBuilder, kind: types.Type, value: ir.Value) -> Any:
    """What an LLVM value of a type is: tuples as such."""
    if isinstance(kind, types.BaseTuple):
        items = (builder.extract_value(value, i) for i in range(len(kind)))
        return tuple(from_registers(builder, item, found) for item, found in zip(kind, items, strict=True))
    return None if kind in (types.none, types.void) else Computed(kind, value)


def new_slot(builder: ir.IRBuilder, thing: Any) -> Any:
    """Room for what is like something; what is no value and no number is its own room."""
    if isinstance(thing, tuple):
        return tuple(new_slot(builder, item) for item in thing)
    if isinstance(thing, Array):
        return ArraySlot(*(new_slot(builder, part) for part in thing.parts))
    if not isinstance(thing, Computed) and not is_known_number(thing):
        return thing
    kind = kind_of(thing)
    # as arithmetic on small integers gives large ones, they are kept as such
    kind = types.int64 if isinstance(kind, types.Integer) and kind.bitwidth < 64 else kind
    with builder.goto_entry_block():
        return Slot(kind, builder.alloca(CONTEXT.get_value_type(kind)))


def _holds(slot: Slot, thing: Any) -> bool:
    """Whether a variable takes something without a loss."""
    kind = kind_of(thing)
    if kind == slot.kind or is_known_number(thing):
        return True
    small = kind == types.boolean or (isinstance(kind, types.Integer) and kind.bitwidth < 64)
    return slot.kind == types.int64 and small


def store(builder: ir.IRBuilder, slot: Any, thing: Any) -> None:
    """Puts something where something like it was.

    Raises:
        ValueError: If it is of another type.
    """
    if isinstance(slot, Slot):
        if not _holds(slot, thing):
            raise ValueError(f'Expected {slot.kind}, as which the variable began (got {kind_of(thing)})')
        builder.store(converted(builder, thing, slot.kind), slot.place)
    elif isinstance(slot, ArraySlot):
        if not isinstance(thing, Array):
            raise ValueError(f'Expected an array, as which the variable began (got {thing!r})')
        for own, part in zip((slot.data, slot.length), thing.parts, strict=True):
            store(builder, own, part)
    elif isinstance(slot, tuple):
        if not isinstance(thing, tuple) or len(thing) != len(slot):
            raise ValueError(f'Expected a tuple of {len(slot)}, as which the variable began (got {thing!r})')
        for own, item in zip(slot, thing, strict=True):
            store(builder, own, item)
    elif thing is not slot:
        raise ValueError(f'Expected {slot!r}, as which the variable began (got {thing!r})')


def load(builder: ir.IRBuilder, slot: Any) -> Any:
    """What was put somewhere."""
    if isinstance(slot, Slot):
        return Computed(slot.kind, builder.load(slot.place))
    if isinstance(slot, ArraySlot):
        return Array(slot.data.kind, builder.load(slot.data.place), builder.load(slot.length.place))
    return tuple(load(builder, item) for item in slot) if isinstance(slot, tuple) else slot


def merged(builder: ir.IRBuilder, arriving: Sequence[tuple[ir.Block, Any]]) -> Any:
    """What arrives in the current block from one of several others, of which each ends with a branch to it.

    Raises:
        ValueError: If it is of several types.
    """
    things = [thing for _, thing in arriving]
    if len(things) == 1 or all(thing is things[0] for thing in things):
        return things[0]
    if all(isinstance(thing, tuple) for thing in things):
        columns = zip(*things, strict=True)
        return tuple(
            merged(builder, [(block, item) for (block, _), item in zip(arriving, column, strict=True)])
            for column in columns
        )
    if any(isinstance(thing, Array) for thing in things):
        raise ValueError('Expected numbers or vectors, as an array does not come from one of several places')
    kinds = {kind_of(thing) for thing in things if isinstance(thing, Computed)}
    if not kinds:
        kinds = {numbers.common_kind([kind_of(thing) for thing in things])}
    if len(kinds) > 1:
        raise ValueError(f'Expected one type (got {sorted(map(str, kinds))})')
    (kind,) = kinds
    found = builder.phi(CONTEXT.get_value_type(kind))
    for block, thing in arriving:
        # a number that is known is a constant, so that nothing is computed here
        found.add_incoming(converted(builder, thing, kind), block)
    return Computed(kind, found)
