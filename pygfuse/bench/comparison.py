"""One library's layer in a comparison: made, run once, and timed with the others; what it holds in memory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pygfuse.bench.limits import within
from pygfuse.bench.providers import Problem, Provider
from pygfuse.bench.schema import Row
from pygfuse.bench.timing import Samples, Spread, Step
from pygfuse.memory import peak_bytes, saved_bytes

PRODUCT = 'one CSR product'
# of fewer there is no spread
LEAST_REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Rules:
    """What holds for all sides.

    Attributes:
        device: Where they run.
        inference: Whether forward alone is measured.
        repeats: How often a side runs at most.
        seconds: How long its runs may take together, `LEAST_REPEATS` of them aside.
        limit: How many seconds its first runs may take.
    """

    device: torch.device
    inference: bool
    repeats: int
    seconds: float
    limit: int

    @property
    def wait(self) -> Callable[[], None] | None:
        """Returns once the device has done what was called, where it runs behind."""
        return (lambda: torch.cuda.synchronize(self.device)) if self.device.type == 'cuda' else None

    def repeats_of(self, seconds: float) -> int:
        """How often a side runs that takes so long."""
        return min(self.repeats, max(LEAST_REPEATS, int(self.seconds / max(seconds, 1e-9))))


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A side that has run.

    Attributes:
        step: What is timed.
        module: Has the parameters.
        forward: Computes the output.
        width: How wide that is.
        first: Seconds of its first call, with whatever it prepares.
        given: Tensors that live anyway.
        rules: What holds for all sides.
    """

    step: Step
    module: torch.nn.Module
    forward: Callable[[], Tensor]
    width: int
    first: float
    given: Iterable[Tensor]
    rules: Rules

    @property
    def name(self) -> str:
        return self.step.side

    def values(self) -> dict[str, float]:
        """Seconds of the first call, bytes that are kept for backward, and the peak."""
        found = {'first call s': self.first}
        for tensor in self.given:
            tensor.grad = None  # the profiler would not recognise gradients of before
        if not self.rules.inference:
            found['saved MB'] = saved_bytes(self.forward, exclude=self.given) / 1e6
        return found | {'peak MB': peak_bytes(self.step.run, device=self.rules.device, warmup=1) / 1e6}


def contestant(provider: Provider, problem: Problem, rules: Rules) -> Contestant | str | None:
    """A library's side, or why it fails, or None where it has no such layer."""
    try:
        with within(rules.limit):
            return _run(provider, problem, rules)
    except Exception as error:  # one library's failure costs its own figures only
        message = str(error).strip().splitlines() or ['no message']
        return f'{type(error).__name__}: {message[0]}'


def _run(provider: Provider, problem: Problem, rules: Rules) -> Contestant | None:
    training = problem.training
    start = time.perf_counter()
    side = provider.side(problem)
    if side is None:
        return None

    def infer() -> Tensor:
        with torch.no_grad():
            return side.forward()

    def train() -> Tensor:
        training.x.grad = None
        side.module.zero_grad()
        out = side.forward()
        out.backward(grads.setdefault('out', torch.ones_like(out)))
        return out

    grads: dict[str, Tensor] = {}
    step = Step(provider.name, infer if rules.inference else train, wait=rules.wait)
    width = step.run().shape[-1]
    if step.wait is not None:
        step.wait()
    first = time.perf_counter() - start
    step()  # torch.compile may compile in a second call, too
    step.repeats = rules.repeats_of(step())
    given = [*side.module.parameters(), training.x, training.edge_index, *training.inputs.values()]
    return Contestant(step, side.module, side.forward, width, first, given, rules)


def let_settle(steps: Iterable[Step], seconds: float) -> None:
    """Has each step wait before it is timed, and run once: so long another library's threads may compute on."""

    def settle(step: Step) -> None:
        time.sleep(seconds)
        step.run()

    for step in steps:
        step.before = partial(settle, step)


def rows_of(parameters: Mapping[str, Any], samples: Samples, values: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each side, with its ratios to PyG and to the product.

    Args:
        parameters: The case.
        samples: Seconds by side.
        values: What else was found, by side.
    """
    times = {side: Spread.of(seconds) for side, seconds in samples.items()}
    rows = []
    for side, spread in times.items():
        pairs = {'PyG / this': ('PyG', side), 'this / product': (side, PRODUCT)}
        ratios = {
            name: float(f'{times[above].median / times[below].median:.4g}')
            for name, (above, below) in pairs.items()
            if above in times and side != PRODUCT
        }
        rows.append(Row({**parameters, 'side': side}, {'time': spread}, ratios, values.get(side, {})))
    return rows
