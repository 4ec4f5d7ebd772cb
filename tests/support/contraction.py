"""What an assembler may make of PTX: of a product and a sum without ``.rn`` it may make one instruction, wherever it
likes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

Instruction = tuple[str | None, str, list[str]]
FUSED = {'f32': 'fma.rn.f32', 'f64': 'fma.rn.f64'}


def contracted(instructions: Sequence[Instruction], order: np.random.Generator) -> list[Instruction]:
    """The instructions, some sums of products in one.

    Args:
        instructions: Each as ``(predicate, opcode, operands)``.
        order: Decides which.
    """
    written = Counter(
        register for _, _, operands in instructions if operands for register in re.findall(r'%\w+', operands[0])
    )
    once = {operand for operand, times in written.items() if times == 1}
    products = {
        operands[0]: operands[1:]
        for predicate, opcode, operands in instructions
        if predicate is None
        and opcode in ('mul.f32', 'mul.f64')
        and all(operand in once or not operand.startswith('%') for operand in operands)
    }
    return [_fused(instruction, products, order) for instruction in instructions]


def _fused(instruction: Instruction, products: dict[str, list[str]], order: np.random.Generator) -> Instruction:
    """The instruction, or the product and the sum in one."""
    predicate, opcode, operands = instruction
    if opcode not in ('add.f32', 'add.f64'):
        return instruction
    target, *addends = operands
    found = [i for i, addend in enumerate(addends) if addend in products]
    if not found or order.random() < 0.5:
        return instruction
    chosen = order.choice(found)
    factors, other = products[addends[chosen]], addends[1 - chosen]
    return predicate, FUSED[opcode.removeprefix('add.')], [target, *factors, other]
