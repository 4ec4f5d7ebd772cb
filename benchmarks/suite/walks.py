"""The walks over edges alone, without the linear maps around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pygfuse.cpu import backend
from suite.timing import Recorded


class Walks(Recorded):
    """A side whose times are those of the CPU's walks within other sides' steps.

    Args:
        side: Its name.
        direction: 'forward' or 'backward'.
    """

    def __init__(self, side: str, direction: str) -> None:
        super().__init__(side)
        self.direction = direction
        self.widths: list[int] = []  # of the last walks

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Adds one time: the sum over the walks that run within."""
        inner, spent, widths = getattr(backend, self.direction), [], []

        def timed(*arguments: Any) -> Any:
            widths.append(arguments[0].width)
            start = time.perf_counter()
            found = inner(*arguments)
            spent.append(time.perf_counter() - start)
            return found

        setattr(backend, self.direction, timed)
        try:
            yield
        finally:
            setattr(backend, self.direction, inner)
        self.times.append(sum(spent))
        self.widths = widths

    def within(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The function, whose walks are recorded."""

        def run() -> Any:
            with self.recording():
                return function()

        return run
