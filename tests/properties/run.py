"""Runs random cases for minutes or hours.

    python -m tests.properties.run --minutes 60
    python -m tests.properties.run --cases 100000 --processes 2 --seed 7
    python -m tests.properties.run --pairs
    python -m tests.properties.run --case NUMBER [NUMBER ...]

Prints how many cases agreed, were refused by both, or raised an error on one side only, by kind and reason; the numbers
of those that are wrong; and how many pairs of values were met. The same seed gives the same cases, for any number of
processes, and another seed gives others.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import itertools
import math
import multiprocessing
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence

import torch
from tqdm import tqdm

from tests.properties.case import attempt, run
from tests.properties.coverage import covering, draw
from tests.properties.dimension import LAYER, Case
from tests.properties.problem import Problem
from tests.properties.space import SPACE
from tests.properties.tally import Tally
from tests.support.cases import make_usual_layers

# the share of what PyG refuses that is run
REFUSED = 0.05
MINUTES = 10.0
# so many cases of one layer come after one another, so that its kernels stay in memory
BLOCK = 100


def prepare() -> None:
    """What a process needs before it runs cases."""
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    make_usual_layers()


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


def tally_of(cases: Sequence[Case]) -> Tally:
    """What some cases give."""
    tally = Tally()
    for case in cases:
        tally.add(case, run(case))
    return tally


def random_block(seed: int, place: int, count: int) -> list[Case]:
    """Some random cases of one layer."""
    source, layers = random.Random(f'{seed} {place}'), list(SPACE.dimensions[LAYER].values)
    found = (draw(source, {LAYER: layers[place % len(layers)]}, refused=REFUSED) for _ in itertools.count())
    return list(itertools.islice((case for case in found if case is not None), count))


def random_tally(seed: int, place: int, count: int) -> Tally:
    """What some random cases give."""
    return tally_of(random_block(seed, place, count))


def tallies(arguments: argparse.Namespace) -> Iterator[Tally]:
    """What is found, block by block."""
    if arguments.pairs:
        cases = sorted(covering(arguments.seed)[0], key=lambda case: case[LAYER])
        jobs = ((tally_of, cases[first : first + BLOCK]) for first in range(0, len(cases), BLOCK))
    else:
        total = math.inf if arguments.cases is None else arguments.cases
        places = itertools.takewhile(lambda place: place * BLOCK < total, itertools.count())
        jobs = ((random_tally, arguments.seed, place, min(BLOCK, total - place * BLOCK)) for place in places)
    minutes = MINUTES if arguments.minutes is None else arguments.minutes
    bounded = arguments.pairs or (arguments.cases is not None and arguments.minutes is None)
    until = math.inf if bounded else time.monotonic() + 60 * minutes
    jobs = itertools.takewhile(lambda job: time.monotonic() < until, jobs)
    if arguments.processes == 1:
        prepare()
        yield from (function(*given) for function, *given in jobs)
        return
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(arguments.processes, context, prepare) as pool:
        waiting = {pool.submit(*job) for job in itertools.islice(jobs, arguments.processes)}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            waiting |= {pool.submit(*job) for job in itertools.islice(jobs, len(done))}
            yield from (future.result() for future in done)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, help=f'for how long to run ({MINUTES:g}, unless cases are counted)')
    parser.add_argument('--cases', type=int, help='how many cases to run')
    parser.add_argument('--seed', type=int, default=0, help='which random cases')
    parser.add_argument('--processes', type=int, default=1, help='how many run side by side, each with one thread')
    parser.add_argument('--pairs', action='store_true', help='run cases that have every pair of values once')
    parser.add_argument('--case', type=int, nargs='+', help='run and explain the cases of these numbers')
    arguments = parser.parse_args()
    if arguments.case:
        prepare()
        for number in arguments.case:
            explain(SPACE.case(number))
        return 0
    tally = Tally()
    bar = tqdm(total=arguments.cases, unit=' cases', mininterval=1 if sys.stderr.isatty() else 30)
    with bar, contextlib.suppress(KeyboardInterrupt):
        for found in tallies(arguments):
            for number in found.faults.keys() - tally.faults.keys():
                bar.write(f'{number}: {found.faults[number]}')
            tally.update(found)
            bar.set_postfix_str(', '.join(f'{n} {kind}' for kind, n in tally.kinds.most_common()), refresh=False)
            bar.update(found.count)
    print(tally.report())
    return 1 if tally.faults else 0


if __name__ == '__main__':
    sys.exit(main())
