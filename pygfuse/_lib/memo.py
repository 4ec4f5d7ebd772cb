"""What was derived from an object, kept as long as the object lives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from pygfuse._lib.streams import makers_on

T = TypeVar('T')
_MISSING = object()


class Memo:
    """Values by key, held by the object they were derived from: a graph's cuts, mappings, norms, paths.

    Several threads may use it at once: every step is one operation on a dict, so there is no lock that a forked child
    could inherit closed. A copy or a pickle of the object begins with an empty one. Keys are tuples whose first item
    names what is kept; a value must not hold the object.

    Args:
        device: Where tensors among the values are: on a GPU, a stream that reads one waits for the stream that made it.

    Example:
        >>> memo = Memo()
        >>> memo.get_or_make(('square', 3), lambda: 9)
        9
        >>> memo.get(('square', 3)), memo.get(('square', 4))
        (9, None)
    """

    __slots__ = ('_makers', '_values')

    def __init__(self, device: torch.device | None = None) -> None:
        self._values: dict[Hashable, Any] = {}
        self._makers = makers_on(device)

    def get(self, key: Hashable) -> Any | None:
        """The value kept under this key, or None."""
        found = self._values.get(key)
        if self._makers is not None and found is not None:
            self._makers.wait(key, found)
        return found

    def put(self, key: Hashable, value: T) -> T:
        """Keeps a value under this key, in place of another."""
        self._values[key] = value
        if self._makers is not None:
            self._makers.note(key)
        return value

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value kept under this key; the first that `make` returned, None included.

        It is made outside of inference mode: autograd cannot save what is made there, and training may ask for it
        later.
        """
        found = self._values.get(key, _MISSING)
        if found is _MISSING:
            with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
                made = make()
            if self._makers is not None and key not in self._values:
                self._makers.note(key)
            found = self._values.setdefault(key, made)
        if self._makers is not None:
            self._makers.wait(key, found)
        return found

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        # an owner of tensors on a GPU takes a memo of its own once it knows where they are
        return Memo, ()
