"""Functions of numbers that read an integer's digits, and would take what stands for a number of rows for one."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import WITH_NUMBERS, has_numbers

# libraries of such functions
LIBRARIES = 'math', 'numpy'
# builtins that are
BUILTINS = (range, bin, hex, oct, chr, complex)


def without_rows(function: Callable) -> Callable:
    """A function that refuses numbers of rows.

    Example:
        >>> import math
        >>> without_rows(math.isqrt)(17)
        4
    """

    @functools.wraps(function, updated=())
    def checked(*args: Any, **kwargs: Any) -> Any:
        if has_numbers((args, kwargs)):
            raise Refused(WITH_NUMBERS)
        return function(*args, **kwargs)

    return checked


def is_of_numbers(found: Any) -> bool:
    """Whether something is a function of one of these libraries."""
    if isinstance(found, np.ufunc):
        return True
    is_function = isinstance(found, (types.BuiltinFunctionType, types.FunctionType))
    return is_function and (found.__module__ or '').partition('.')[0] in LIBRARIES


class OfNumbers:
    """One of these libraries, whose functions refuse numbers of rows.

    Args:
        library: The library.
    """

    def __init__(self, library: types.ModuleType) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        return without_rows(found) if is_of_numbers(found) else found
