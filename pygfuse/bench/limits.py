"""A limit of time for what may take very long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises a TimeoutError in what takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f'longer than {seconds} s')

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
