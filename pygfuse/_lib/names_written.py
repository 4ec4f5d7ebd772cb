"""The names of variables that code writes into, as its instructions say."""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

_LOADS, _STORES = ('LOAD_FAST', 'LOAD_DEREF', 'LOAD_NAME'), ('STORE_FAST', 'STORE_DEREF', 'STORE_NAME')
_OF_PARTS = 'STORE_SUBSCR', 'STORE_SLICE'
# behind these, nothing is on the stack of what was read before
ENDS = (*_STORES, *_OF_PARTS, 'POP_TOP', 'RETURN', 'STORE_ATTR', 'UNPACK_SEQUENCE')
# between these and a store, a name is given to what another one has
_MOVES = (*_LOADS, *_STORES, 'SWAP', 'ROT_', 'COPY', 'DUP_TOP', 'BUILD_TUPLE', 'UNPACK_SEQUENCE', 'NOP', 'RESUME')


def names_written(instructions: Sequence[dis.Instruction]) -> dict[str, set[int]]:
    """The names of what is written into, by an operator, by a method whose name ends so, or by an index, and where."""
    found: dict[str, set[int]] = {}
    read: list[str] = []
    for one, behind in zip(instructions, [*instructions[1:], None], strict=True):
        is_operator = one.opname.startswith('INPLACE') or (one.opname == 'BINARY_OP' and one.argrepr.endswith('='))
        if is_operator and behind is not None and behind.opname.startswith(_STORES):
            _add(found, names_of(behind, _STORES)[:1], one)
        if one.opname.startswith(('LOAD_ATTR', 'LOAD_METHOD')) and _is_write(one.argval):
            _add(found, read[-1:], one)
        if one.opname in _OF_PARTS:
            _add(found, read, one)
        read = [] if one.opname.startswith(ENDS) else [*read, *names_of(one)]
    return found


def _add(found: dict[str, set[int]], names: Sequence[str], one: dis.Instruction) -> None:
    for name in names:
        found.setdefault(name, set()).add(one.offset)


def names_of(one: dis.Instruction, kinds: tuple[str, ...] = _LOADS) -> Sequence[str]:
    """The names of variables that an instruction reads, or stores; some of Python 3.13 have two."""
    if not one.opname.startswith(kinds):
        return ()
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


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
