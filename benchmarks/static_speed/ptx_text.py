"""PTX, read: instructions, and where branches lead."""

from __future__ import annotations

import re

from static_speed.instruction import Instruction, lines_of

_LABEL = re.compile(r'^(\$L__\w+):')
_INSTRUCTION = re.compile(r'^\s*(?P<when>@!?%p\d+\s+)?(?P<name>[a-z][\w.]*)\s*(?P<rest>[^;]*);')
_SIZE = re.compile(r'^ld\.global(?:\.nc)?(?:\.v(?P<count>\d))?\.[a-z](?P<bits>\d+)$')
_ENDS = ('ret', 'exit', 'trap')


def instructions(text: str) -> list[Instruction]:
    """The instructions of a kernel.

    Example:
        >>> first, second = instructions('''
        ... $L__BB0_1:
        ...     ld.global.nc.v4.f32     {%f1, %f2, %f3, %f4}, [%rd1+16];
        ...     @%p1 bra        $L__BB0_1;''')
        >>> first.name, first.loaded_bytes, second.target, second.goes_on
        ('ld.global.nc.v4.f32', 16, 0, True)
    """
    found, labels = lines_of(text, _LABEL, _INSTRUCTION)
    return [_read(match, labels) for match in found]


def _read(match: re.Match, labels: dict[str, int]) -> Instruction:
    name, operands = match['name'], match['rest'].strip()
    jumps, size = name.startswith('bra'), _SIZE.match(name)
    return Instruction(
        name,
        operands,
        loaded_bytes=int(size['count'] or 1) * int(size['bits']) // 8 if size else 0,
        target=labels[operands] if jumps else None,
        goes_on=match['when'] is not None or not (jumps or name.partition('.')[0] in _ENDS),
    )
