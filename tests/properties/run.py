"""Runs random cases for minutes or hours.

    python -m tests.properties.run --minutes 60
    python -m tests.properties.run --case NUMBER [NUMBER ...]

Prints the cases that are wrong, each with its number, the errors of one side only by kind, and how many pairs of values
were met.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator

from tests.properties.case import BOTH_RAISE, ONLY_OURS, ONLY_PYG, WRONG, Outcome, attempt, run
from tests.properties.coverage import all_pairs, covering, draw, pairs_of
from tests.properties.dimension import LAYER, Case
from tests.properties.known import reason_for
from tests.properties.problem import Problem
from tests.properties.space import SPACE
from tests.support.cases import make_usual_layers

# the share of what PyG refuses that is run
REFUSED = 0.05
PROGRESS_S = 30
# so many cases of one layer come after one another, so that its kernels stay in memory
BLOCK = 100


class Tally:
    """What was found."""

    def __init__(self) -> None:
        self.kinds: collections.Counter[str] = collections.Counter()
        self.one_sided: collections.Counter[str] = collections.Counter()
        self.why_not: collections.Counter[str] = collections.Counter()
        self.faults: dict[int, str] = {}
        self.met: set = set()
        self.began = time.monotonic()

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    def add(self, case: Case, outcome: Outcome) -> str | None:
        """Adds a case; returns what is wrong with it."""
        self.kinds[outcome.kind] += 1
        self.met.update(pairs_of(case))
        if outcome.kind != BOTH_RAISE:
            self.why_not[outcome.reason or 'fused'] += 1
        fault = fault_of(outcome)
        if outcome.kind in (ONLY_PYG, ONLY_OURS):
            self.one_sided[f'{outcome.kind}: {reason_for(outcome) or "UNKNOWN"}: {outcome.text}'] += 1
        if fault is not None:
            self.faults[SPACE.number(case)] = fault
        return fault

    def line(self) -> str:
        seconds = time.monotonic() - self.began
        kinds = ', '.join(f'{count} {kind}' for kind, count in self.kinds.most_common())
        return f'{self.count} cases in {seconds:.0f} s: {kinds}; {len(self.faults)} faults'

    def report(self) -> str:
        fused = self.why_not['fused']
        lines = [self.line(), f'{fused} ran fused, {sum(self.why_not.values()) - fused} by the path of PyG']
        lines += ['', 'errors of one side only:', *(f'{n:6} {kind}' for kind, n in self.one_sided.most_common())]
        pairs = set(all_pairs())
        lines += ['', f'{len(self.met & pairs)} of {len(pairs)} pairs of values were met']
        lines += ['', 'faults:', *(f'{number}: {text}' for number, text in self.faults.items())]
        return '\n'.join(lines)


def fault_of(outcome: Outcome) -> str | None:
    """What is wrong with an outcome, or None."""
    unknown = outcome.kind in (ONLY_PYG, ONLY_OURS) and reason_for(outcome) is None
    return f'{outcome.kind}: {outcome.text}' if unknown or outcome.kind == WRONG else None


def explain(case: Case) -> None:
    """Runs a case and prints what it is, what came out, and the errors of both sides."""
    usual = {dimension.name: next(iter(dimension.values)) for dimension in SPACE.of_layer(case[LAYER])}
    print(
        SPACE.number(case),
        {name: value for name, value in case.values.items() if value != usual[name] or name == LAYER},
    )
    print('  ', run(case))
    for fused in (False, True):
        error = attempt(Problem(case, fused), SPACE.meaning(case)['dtype']).error
        if error is not None:
            print('fused:' if fused else 'PyG:', *traceback.format_exception(error)[-4:])


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """The cases that are asked for."""
    source = random.Random(arguments.seed)
    if arguments.pairs:
        yield from covering(arguments.seed)[0]
        return
    until = time.monotonic() + 60 * arguments.minutes
    for done in range(arguments.cases):
        if time.monotonic() > until:
            return
        if done % BLOCK == 0:
            layer = SPACE.dimensions[LAYER].draw(source)
        yield draw(source, {LAYER: layer}, refused=REFUSED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=10.0, help='for how long to run')
    parser.add_argument('--cases', type=int, default=sys.maxsize, help='how many cases to run at most')
    parser.add_argument('--seed', type=int, default=0, help='which random cases')
    parser.add_argument('--pairs', action='store_true', help='run cases that have every pair of values once')
    parser.add_argument('--case', type=int, nargs='+', help='run and explain the cases of these numbers')
    arguments = parser.parse_args()
    warnings.simplefilter('ignore')
    make_usual_layers()
    if arguments.case:
        for number in arguments.case:
            explain(SPACE.case(number))
        return 0
    tally, last = Tally(), time.monotonic()
    for case in cases(arguments):
        fault = tally.add(case, run(case))
        if fault is not None:
            print(f'{SPACE.number(case)}: {fault}', flush=True)
        if time.monotonic() - last > PROGRESS_S:
            last = time.monotonic()
            print(tally.line(), flush=True)
    print(tally.report())
    return 1 if tally.faults else 0


if __name__ == '__main__':
    sys.exit(main())
