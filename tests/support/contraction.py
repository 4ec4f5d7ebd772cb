"""What an assembler may make of PTX: of a product and a sum or a difference without ``.rn``, one instruction, wherever
it likes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

Instruction = tuple[str | None, str, list[str]]
# by the opcode and which operand is the product; the last two are no words of PTX, which negates operands instead
FUSED = {('add', 0): 'fma', ('add', 1): 'fma', ('sub', 0): 'fms', ('sub', 1): 'fnma'}


def contracted(instructions: Sequence[Instruction], order: np.random.Generator) -> list[Instruction]:
    """The instructions, some sums and differences of products in one.

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
    """The instruction, or the product and what it is a term of in one."""
    predicate, opcode, operands = instruction
    word, _, kind = opcode.partition('.')
    if word not in ('add', 'sub') or kind not in ('f32', 'f64'):
        return instruction
    target, *terms = operands
    found = [i for i, term in enumerate(terms) if term in products]
    if not found or order.random() < 0.5:
        return instruction
    chosen = order.choice(found)
    return predicate, f'{FUSED[word, chosen]}.rn.{kind}', [target, *products[terms[chosen]], terms[1 - chosen]]
