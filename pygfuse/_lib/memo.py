"""What was derived from an object, kept as long as the object lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

T = TypeVar('T')
_MISSING = object()


class Memo:
    """Values by key, held by the object they were derived from: a graph's cuts, mappings, norms, paths.

    Several threads may use it at once: every step is one operation on a dict, so there is no lock that a forked child
    could inherit closed. A copy or a pickle of the object begins with an empty one. Keys are tuples whose first item
    names what is kept; a value must not hold the object.

    Example:
        >>> memo = Memo()
        >>> memo.get_or_make(('square', 3), lambda: 9)
        9
        >>> memo.get(('square', 3)), memo.get(('square', 4))
        (9, None)
    """

    __slots__ = ('_values',)

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any | None:
        """The value kept under this key, or None."""
        return self._values.get(key)

    def put(self, key: Hashable, value: T) -> T:
        """Keeps a value under this key, in place of another."""
        self._values[key] = value
        return value

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value kept under this key; the first that `make` returned, None included.

        It is made outside of inference mode: autograd cannot save what is made there, and training may ask for it
        later.
        """
        found = self._values.get(key, _MISSING)
        if found is _MISSING:
            if torch.is_inference_mode_enabled():
                with torch.inference_mode(False):
                    return self._values.setdefault(key, make())
            found = self._values.setdefault(key, make())
        return found

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()
