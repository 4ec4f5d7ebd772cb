"""Code that catches errors: a capture, which raises some where no call does, must not come there.

Lines within a ``try`` are watched while a function runs. Where none is reached, nothing of it depends on errors.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pygfuse.compiler.refusal import Refused

CATCHES = 'it catches errors, which a capture may raise where no call does'
# a ``with`` block catches what goes on by this instruction
_GOES_ON = 'WITH_EXCEPT_START'


def lines_that_catch(code: types.CodeType) -> frozenset[int]:
    """The lines of code whose errors it catches.

    Example:
        >>> def shape(x):
        ...     if x is None:
        ...         try:
        ...             return x.shape
        ...         except AttributeError:
        ...             return ()
        ...     return x.shape
        >>> first = shape.__code__.co_firstlineno
        >>> {line - first for line in lines_that_catch(shape.__code__)} <= {2, 3}
        True
    """
    instructions = list(dis.get_instructions(code))
    ranges = list(_ranges(code, instructions))
    found, line = set(), code.co_firstlineno
    for one, at in zip(instructions, _lines(code, instructions), strict=True):
        line = at if at is not None else line
        if any(start <= one.offset < end for start, end in ranges):
            found.add(line)
    return frozenset(found)


def _lines(code: types.CodeType, instructions: list[dis.Instruction]) -> Iterator[int | None]:
    """The line of each instruction."""
    starts = list(code.co_lines())
    for one in instructions:
        yield next((line for start, end, line in starts if start <= one.offset < end), None)


def _ranges(code: types.CodeType, instructions: list[dis.Instruction]) -> Iterator[tuple[int, int]]:
    """Where the instructions begin and end whose errors somebody's handler gets."""
    follows = {one.offset: after.opname for one, after in itertools.pairwise(instructions)}
    names = {one.offset: one.opname for one in instructions}
    if not hasattr(code, 'co_exceptiontable'):
        # Python 3.10: until the handler begins
        yield from ((one.offset, one.argval) for one in instructions if one.opname == 'SETUP_FINALLY')
        return
    for start, end, handler in _entries(code.co_exceptiontable):
        if names.get(handler) == 'PUSH_EXC_INFO' and follows.get(handler) != _GOES_ON:
            yield start, end


def _entries(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Where ranges begin and end, and their handlers, of a table as Python keeps it: numbers of six bits a byte."""
    numbers = _numbers(table)
    for start in numbers:
        length, handler, _ = next(numbers), next(numbers), next(numbers)
        yield 2 * start, 2 * (start + length), 2 * handler


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0


def without_caught_errors(function: Callable, caught: Mapping[types.CodeType, frozenset[int]]) -> Callable:
    """A function that is refused where it, or one within it, reaches a line whose errors it catches.

    Args:
        function: The function.
        caught: These lines of each code.
    """

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        reached: set[int] = set()
        try:
            with _traced(caught, reached):
                return function(*args, **kwargs)
        finally:
            if reached:
                # whatever it has made of errors
                raise Refused(CATCHES)

    return watched


@contextlib.contextmanager
def _traced(caught: Mapping[types.CodeType, frozenset[int]], reached: set[int]) -> Iterator[None]:
    """A ``with`` block in which lines that are reached are remembered; who traces already goes on with all else."""
    before = sys.gettrace()

    def of_frame(frame: types.FrameType, event: str, argument: Any) -> Callable | None:
        if frame.f_code in caught:
            return of_line
        return None if before is None else before(frame, event, argument)

    def of_line(frame: types.FrameType, event: str, _: Any) -> Callable:
        if frame.f_lineno in caught[frame.f_code]:
            reached.add(frame.f_lineno)
        return of_line

    sys.settrace(of_frame)
    try:
        yield
    finally:
        sys.settrace(before)
