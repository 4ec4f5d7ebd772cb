"""The walks over edges alone, without the linear maps around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pygfuse.bench.timing import Recorded
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cpu import backend

# by direction; what walks few edges gives None for many
_ENTRIES = {
    'forward': ('forward',),
    'backward': ('backward', 'backward_of_few', 'sum_of_few'),
}


def _width_of(asked: Any, *rest: Any) -> int:
    """The width of a row, of a call, its gradient or a program with heads and channels."""
    call = asked.call if isinstance(asked, Gradient) else asked
    return call.width if isinstance(call, Call) else rest[0] * rest[1]


class Walks(Recorded):
    """A side whose times are those of the CPU's walks within other sides' steps, along many edges.

    Along few ones, walks are one call with the maps around them.

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
        spent: list[float] = []
        widths: list[int] = []
        running: list[bool] = []

        def timed(function: Callable) -> Callable:
            def run(*arguments: Any) -> Any:
                if running:
                    # part of another walk
                    return function(*arguments)
                running.append(True)
                start = time.perf_counter()
                try:
                    found = function(*arguments)
                finally:
                    running.pop()
                if found is not None:
                    spent.append(time.perf_counter() - start)
                    widths.append(_width_of(*arguments))
                return found

            return run

        inner = [(name, getattr(backend, name)) for name in _ENTRIES[self.direction]]
        for name, function in inner:
            setattr(backend, name, timed(function))
        try:
            yield
        finally:
            for name, function in inner:
                setattr(backend, name, function)
        self.times.append(sum(spent))
        self.widths = widths

    def within(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """The function, whose walks are recorded."""

        def run() -> Any:
            with self.recording():
                return function()

        return run
