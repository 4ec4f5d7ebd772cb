"""One instruction of a kernel, as PTX or as machine code has it."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Instruction:
    """What is known of an instruction.

    Attributes:
        name: With what follows it after points, such as ``'LDG.E.128.CONSTANT'``.
        operands: The rest, as it is written.
        loaded_bytes: Bytes that a lane loads of global memory.
        target: Number of the instruction where a branch leads.
        goes_on: Whether the next instruction may follow.
    """

    name: str
    operands: str = ''
    loaded_bytes: int = 0
    target: int | None = None
    goes_on: bool = True

    @property
    def kind(self) -> str:
        """The name up to the first point."""
        return self.name.partition('.')[0]


def lines_of(text: str, label: re.Pattern, instruction: re.Pattern) -> tuple[list[re.Match], dict[str, int]]:
    """The lines that are instructions, and before which of them each label stands.

    Args:
        text: A kernel.
        label: Matches the beginning of a line with a label, its first group.
        instruction: Found in a line with an instruction.
    """
    labels: dict[str, int] = {}
    found: list[re.Match] = []
    for line in text.splitlines():
        begins, match = label.match(line), instruction.search(line)
        if begins:
            labels[begins.group(1)] = len(found)
        elif match:
            found.append(match)
    return found, labels
