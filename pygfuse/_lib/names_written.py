"""The names of variables that code writes into, as its instructions say."""

from __future__ import annotations

import dis
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

_LOADS, _STORES = ('LOAD_FAST', 'LOAD_DEREF', 'LOAD_NAME'), ('STORE_FAST', 'STORE_DEREF', 'STORE_NAME')
# how many values lie on that of which a part is stored
_OF_PARTS = {'STORE_SUBSCR': 1, 'STORE_SLICE': 2}
# what has values change places, and what has them twice
_TURNS, _COPIES = ('SWAP', 'ROT_'), ('COPY', 'DUP_TOP')
# behind these, nothing is on the stack of what was read before
ENDS = (*_STORES, *_OF_PARTS, 'POP_TOP', 'RETURN', 'STORE_ATTR', 'UNPACK_SEQUENCE')
# between these and a store, a name is given to what another one has
_MOVES = (*_LOADS, *_STORES, 'SWAP', 'ROT_', 'COPY', 'DUP_TOP', 'BUILD_TUPLE', 'UNPACK_SEQUENCE', 'NOP', 'RESUME')


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    """The instructions of code, of which each loads or stores one variable: some of Python 3.13 have two."""
    found: list[dis.Instruction] = []
    for one in dis.get_instructions(code):
        if not isinstance(one.argval, tuple) or not one.opname.startswith((*_LOADS, *_STORES)):
            found += [] if one.opname == 'EXTENDED_ARG' else [one]
            continue
        kinds = [
            'STORE_FAST' if is_store else 'LOAD_FAST'
            for is_store in (one.opname.startswith('STORE'), one.opname.endswith('STORE_FAST'))
        ]
        found += [
            one._replace(opname=kind, opcode=dis.opmap[kind], arg=0, argval=name)
            for kind, name in zip(kinds, one.argval, strict=True)
        ]
    return found


def names_written(instructions: Sequence[dis.Instruction]) -> dict[str, set[int]]:
    """The names of what is written into, by an operator, by a method whose name ends so, or by an index, and where."""
    found: dict[str, set[int]] = {}
    for place, one in enumerate(instructions):
        behind = instructions[place + 1] if place + 1 < len(instructions) else None
        is_operator = one.opname.startswith('INPLACE') or (one.opname == 'BINARY_OP' and one.argrepr.endswith('='))
        if is_operator and behind is not None and behind.opname.startswith(_STORES):
            _add(found, names_of(behind, _STORES), one)
        if one.opname.startswith(('LOAD_ATTR', 'LOAD_METHOD')) and _is_write(one.argval):
            _add(found, _name_of(instructions, place), one)
        if one.opname in _OF_PARTS:
            _add(found, _names_of_parts(instructions, place), one)
    return found


def _names_of_parts(instructions: Sequence[dis.Instruction], place: int) -> Sequence[str]:
    """The name of that of which a part is stored; where values change places before, all that were read until then."""
    before = instructions[:place]
    if before and before[-1].opname.startswith(_TURNS):
        while before and not before[-1].opname.startswith(_COPIES):
            before = before[:-1]
        while before and before[-1].opname.startswith(_COPIES):
            before = before[:-1]
        found: list[str] = []
        while before and not before[-1].opname.startswith(ENDS):
            found += names_of(before[-1])
            before = before[:-1]
        return found
    # behind what it is stored in are the key, or both ends of a slice
    for _ in range(_OF_PARTS[instructions[place].opname]):
        place = _begin_of(instructions, place)
    return _name_of(instructions, place)


def _name_of(instructions: Sequence[dis.Instruction], place: int) -> Sequence[str]:
    """The name with which the last value before a place begins: of ``x.view(-1)`` or ``x[0]`` that of x."""
    for one in instructions[_begin_of(instructions, place) : place]:
        if names_of(one):
            return names_of(one)
        if one.opname != 'PUSH_NULL':
            return ()
    return ()


def _begin_of(instructions: Sequence[dis.Instruction], place: int) -> int:
    """Where the instructions begin that compute the last value before a place."""
    wanted = 1
    while wanted > 0 and place > 0:
        place -= 1
        one = instructions[place]
        try:
            wanted -= dis.stack_effect(one.opcode, one.arg, jump=False)
        except ValueError:
            # of a Python that is not known yet
            return place
    return place


def _add(found: dict[str, set[int]], names: Sequence[str], one: dis.Instruction) -> None:
    for name in names:
        found.setdefault(name, set()).add(one.offset)


def names_of(one: dis.Instruction, kinds: tuple[str, ...] = _LOADS) -> Sequence[str]:
    """The name of the variable that an instruction reads, or stores, if it does."""
    return (one.argval,) if one.opname.startswith(kinds) else ()


def _is_write(name: Any) -> bool:
    return isinstance(name, str) and name.endswith('_') and not name.endswith('__') and hasattr(Tensor, name)


def with_other_names(written: Mapping[str, set[int]], instructions: Sequence[dis.Instruction]) -> dict[str, set[int]]:
    """Names that are written into, and others of the same values: ``x_ = x``, ``x_, h_ = x, h``."""
    groups: list[set[str]] = []
    run: set[str] = set()
    stores = False
    for one in instructions:
        if not one.opname.startswith(_MOVES):
            run, stores = set(), False
            continue
        if one.opname.startswith(_LOADS) and stores:
            run, stores = set(), False
        if one.opname.startswith(_STORES):
            stores = True
            groups.append(run | {*names_of(one, _STORES)})
        run = run | {*names_of(one)}
    found: dict[str, set[int]] = {}
    for name, places in written.items():
        for other in _connected(name, groups):
            found.setdefault(other, set()).update(places)
    return found


def _connected(name: str, groups: Sequence[set[str]]) -> set[str]:
    names = {name}
    while True:
        found = names.union(*[group for group in groups if not names.isdisjoint(group)])
        if found == names:
            return names
        names = found


def loops_in(instructions: Sequence[dis.Instruction]) -> tuple[tuple[int, int], ...]:
    """Where the loops of code begin and end."""
    jumps = [one for one in instructions if 'JUMP' in one.opname and isinstance(one.argval, int)]
    return tuple([(one.argval, one.offset) for one in jumps if one.argval <= one.offset])
