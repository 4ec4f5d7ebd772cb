"""Times of several sides in one process, in turn, so that what the machine does hits all of them."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Samples = dict[str, list[float]]


@dataclasses.dataclass
class Step:
    """What one side runs.

    Attributes:
        side: Its name: 'PyG', 'PyG compiled', 'pygfuse', 'product' or another.
        run: What is timed.
        before: What is done before each call, not timed.
        repeats: How often it is timed at most, if not as often as the others.
        warmup: How many calls come first, not timed.
        wait: Returns once what was called has run, on a device that runs behind its calls.
    """

    side: str
    run: Callable[[], Any]
    before: Callable[[], Any] | None = None
    repeats: int | None = None
    warmup: int = 1
    wait: Callable[[], Any] | None = None

    def __call__(self) -> float:
        """Seconds of one call."""
        if self.before is not None:
            self.before()
        if self.wait is not None:
            self.wait()
        start = time.perf_counter()
        self.run()
        if self.wait is not None:
            self.wait()
        return time.perf_counter() - start


class Recorded:
    """A side without a step of its own, whose times other sides' steps add."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.times: list[float] = []


def interleaved(steps: Sequence[Step | Recorded], repeats: int, rotate: bool = False, in_a_row: int = 1) -> Samples:
    """Seconds of each side, taken in turn.

    Args:
        steps: The sides.
        repeats: How often each runs.
        rotate: Whether another side comes first each time: what runs first finds other caches.
        in_a_row: How many calls of a side come after one another, as in a training loop. A call of few microseconds
            takes longer where another side's code ran just before.
    """
    timed = [step for step in steps if isinstance(step, Step)]
    recorded = [step for step in steps if isinstance(step, Recorded)]
    samples: Samples = {step.side: [] for step in timed}
    for i in range(max((step.warmup for step in timed), default=0)):
        for step in timed:
            if i < step.warmup:
                step()
    for record in recorded:
        record.times.clear()
    for i in range(0, repeats, in_a_row):
        first = i // in_a_row % len(timed) if rotate else 0
        for step in timed[first:] + timed[:first]:
            most = repeats if step.repeats is None else step.repeats
            samples[step.side] += [step() for _ in range(i, min(i + in_a_row, most))]
    return {**samples, **{record.side: record.times for record in recorded}}


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles of times in ms; quartiles are None where a single time is known."""

    median: float
    low: float | None = None
    high: float | None = None
    repeats: int | None = None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """That of samples, to a nanosecond."""
        if len(seconds) == 1:
            return cls(round(seconds[0] * 1e3, 6), repeats=1)
        # of few samples the exclusive method extrapolates, to below zero even
        low, middle, high = (round(value * 1e3, 6) for value in statistics.quantiles(seconds, n=4, method='inclusive'))
        return cls(middle, low, high, len(seconds))

    def text(self, digits: int = 1) -> str:
        """Median and, in brackets, quartiles."""
        shown = f'{self.median:.{digits}f}'
        return shown if self.low is None else f'{shown} [{self.low:.{digits}f}, {self.high:.{digits}f}]'
