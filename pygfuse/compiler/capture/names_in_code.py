"""How code reads names from around it, as its instructions say."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# what reads names from around, and attributes
_OF_NAMES = 'LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_DEREF'
_OF_ATTRIBUTES = 'LOAD_ATTR', 'LOAD_METHOD'
# what calls in Python 3.10, and how many values lie on what is called beside its arguments
_CALLS = {'CALL_FUNCTION': 0, 'CALL_FUNCTION_KW': 1}


class NamesRead(NamedTuple):
    """How code, and the functions within it, read names from around them.

    Attributes:
        for_super: Those that they read for ``super(kind, self)`` alone.
        for_attributes: Those that they read for an attribute alone.
    """

    for_super: set[str]
    for_attributes: set[str]

    @staticmethod
    def by(code: types.CodeType) -> NamesRead:
        """The same of code."""
        found: tuple[set[str], set[str]] = set(), set()
        others: tuple[set[str], set[str]] = set(), set()
        for inner in codes_in(code):
            instructions = [one for one in dis.get_instructions(inner) if one.opname != 'PUSH_NULL']
            for before, one, behind in zip(
                [None, *instructions], instructions, [*instructions[1:], None], strict=False
            ):
                if one.opname.startswith(_OF_NAMES):
                    is_super = before is not None and before.argval == 'super'
                    is_owner = behind is not None and behind.opname.startswith(_OF_ATTRIBUTES)
                    for holds, of_kind, of_others in zip((is_super, is_owner), found, others, strict=True):
                        (of_kind if holds else of_others).add(one.argval)
        return NamesRead(found[0] - others[0], found[1] - others[1])


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def is_called(instructions: Sequence[dis.Instruction], place: int) -> bool:
    """Whether a global name is read for a call of it, as far as the instructions say."""
    read = instructions[place]
    if read.opname != 'LOAD_GLOBAL' or sys.version_info >= (3, 11):
        return read.opname == 'LOAD_GLOBAL' and 'NULL' in read.argrepr
    # Python 3.10 does not mark it: how many values lie on it when something is called
    above = 0
    for behind in instructions[place + 1 :]:
        if behind.opname in _CALLS and above == behind.arg + _CALLS[behind.opname]:
            return True
        above += dis.stack_effect(behind.opcode, behind.arg, jump=False)
        if above < 0:
            return False
    return False
