"""How a program's sum changes along tangents of its operands: programs again, derived from its trace.

The gradients of a sum's operands along tangents are the gradient of ``<grad, change of the sum>``, so that what walks
these programs forward and backward differentiates a gradient, to any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from pygfuse.program.program import PROGRAMS, BoundProgram, EdgeProgram
from pygfuse.program.trace import Trace
from pygfuse.program.vocabulary import WORDS


class Change(NamedTuple):
    """Programs whose sums together are the change of another's.

    Attributes:
        programs: The programs.
        tangents: By operand that changes, the name of its tangent.
    """

    programs: tuple[EdgeProgram, ...]
    tangents: dict[str, str]

    def reads(self, name: str) -> bool:
        """Whether any of them reads an operand of the program that changes."""
        return any(name in program.operands for program in self.programs)


def changes(bound: BoundProgram, reduce: str) -> bool:
    """Whether `change_of` describes a reduction of a program: a sum or mean, in which weights are only factors."""
    if bound.softmax or reduce not in ('sum', 'mean'):
        return False
    return bound.score is None or bound.program.is_linear_in_weight(bound.message)


@functools.lru_cache(maxsize=256)
def change_of(bound: BoundProgram, moving: tuple[str, ...]) -> Change:
    """The programs of how a sum changes with some of its operands.

    Args:
        bound: The program, one that `changes`.
        moving: Names of operands.

    Example:
        >>> from pygfuse.program.library.neighbours import WEIGHTED_NEIGHBOURS
        >>> change = change_of(WEIGHTED_NEIGHBOURS.bind(('x', 'edge_weight')), ('x', 'edge_weight'))
        >>> [list(program.operands) for program in change.programs]
        [['edge_weight', 'x_tangent'], ['edge_weight_tangent', 'x']]
    """
    suffix = '_tangent'
    while any(name + suffix in bound.present for name in bound.present):
        suffix += '_'
    tangents = {name: name + suffix for name in moving}
    score, message = bound.score, bound.message
    # a weight that is a factor changes the message as a factor does
    parts = {'message': (score, _tangent(message, tangents))}
    if score is not None:
        parts['score'] = (_tangent(score, tangents), message)
    said = f'{", ".join(bound.present)} by {", ".join(moving)}'
    found = [
        _program(bound, f'{bound.program.name}: {part} of {said}', of_score, of_message, tangents)
        for part, (of_score, of_message) in parts.items()
        if of_message is not None and (of_score is None) == (score is None)
    ]
    return Change(tuple(found), tangents)


def _tangent(trace: Trace, tangents: dict[str, str]) -> Trace | None:
    return trace.tangent({name: tangents[name] for name in trace.names() if name in tangents})


def _program(
    bound: BoundProgram, name: str, score: Trace | None, message: Trace, tangents: dict[str, str]
) -> EdgeProgram:
    if name not in PROGRAMS:
        known = bound.program.operands
        known = {**known, **{of: known[name] for name, of in tangents.items()}}
        read = dict.fromkeys([*(score.names() if score else ()), *message.names()])
        operands = {name: known[name] for name in read if name != 'weight'}
        EdgeProgram(name, operands, _function(message), None if score is None else _function(score))
    return PROGRAMS[name]


def _function(trace: Trace) -> Callable:
    """A traced function as one of operands, the weight first."""
    # weights come first where there are any
    trace = Trace(
        tuple(sorted(trace.operands, key=lambda operand: operand.name != 'weight')), trace.output, trace.level
    )
    found = dict(WORDS)
    exec(trace.text('traced', expanded=False), found)  # text of our own, of words and names alone
    return found['traced']
