"""Machine code as nvdisasm writes it, read: instructions, their registers, and where branches lead."""

from __future__ import annotations

import re

from static_speed.instruction import Instruction, lines_of

_LABEL = re.compile(r'^\s*(\.L_\w+):')
_INSTRUCTION = re.compile(
    r'/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<when>!?U?P\w+)\s+)?(?P<name>[A-Z][\w.]*)(?P<rest>[^;]*);'
)
_TARGET = re.compile(r'`\((\.L_\w+)\)')
# \b: not the uniform registers URn
_REGISTER = re.compile(r'\bR(\d+)\b')
_LOADS, _JUMPS, _ENDS = ('LDG', 'LD'), ('BRA', 'CALL'), ('EXIT', 'RET', 'KILL')
# lanes that are apart exchange values elsewhere, and come back
_APART = 'BRA.DIV'
REGISTER_BYTES = 4


def instructions(text: str) -> list[Instruction]:
    """The instructions of a disassembled kernel.

    Example:
        >>> first, second = instructions('''
        ... .L_x_1:
        ...         /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        ...         /*0010*/              @!P0 BRA `(.L_x_1) ;''')
        >>> first.name, first.loaded_bytes, sorted(loaded_registers(first)), second.target, second.goes_on
        ('LDG.E.128', 16, [4, 5, 6, 7], 0, True)
    """
    found, labels = lines_of(text, _LABEL, _INSTRUCTION)
    return [_read(match, labels) for match in found]


def _read(match: re.Match, labels: dict[str, int]) -> Instruction:
    name, operands = match['name'], match['rest'].strip()
    kind = name.partition('.')[0]
    jump = _TARGET.search(operands) if kind in _JUMPS and not name.startswith(_APART) else None
    # a predicate stands before the instruction, or before the place it leads to
    always = match['when'] is None and ',' not in operands and not re.match(r'!?U?P\w+ ', operands)
    return Instruction(
        name,
        operands,
        loaded_bytes=_loaded_bytes(name) if kind in _LOADS else 0,
        target=labels[jump.group(1)] if jump else None,
        goes_on=not (always and (jump or kind in _ENDS)),
    )


def _loaded_bytes(name: str) -> int:
    sizes = [part for part in name.split('.')[1:] if re.fullmatch(r'[US]?(8|16|64|128|256)', part)]
    return int(sizes[0].lstrip('US')) // 8 if sizes else REGISTER_BYTES


def loaded_registers(load: Instruction) -> frozenset[int]:
    """The registers that a load fills."""
    first = _REGISTER.match(load.operands.split(',')[0].strip())
    if not load.loaded_bytes or first is None:
        return frozenset()
    start = int(first.group(1))
    return frozenset(range(start, start + -(-load.loaded_bytes // REGISTER_BYTES)))


def named_registers(instruction: Instruction) -> frozenset[int]:
    """The registers that an instruction reads or writes."""
    return frozenset(map(int, _REGISTER.findall(instruction.operands)))
