"""The command line of every benchmark: runs its cases, prints their table, writes the result."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

from suite.case import BENCHMARKS, Benchmark, Options
from suite.columns import columns_of
from suite.machine import described, machine
from suite.schema import Result, Row
from suite.tables import table
from suite.timing import interleaved


def command(arguments: list[str]) -> str:
    """What was typed, with the names of options in place of paths."""
    shown = []
    for before, argument in zip(['', *arguments], arguments, strict=False):
        is_path = before.startswith('--') and '/' in argument
        shown.append(before.removeprefix('--').upper() if is_path else shlex.quote(argument))
    return ' '.join(['python', *shown])


def typed() -> str:
    """The command of this process, the script named from the repository's root."""
    script = Path(sys.argv[0]).resolve()
    root = Path(__file__).resolve().parents[2]
    name = str(script.relative_to(root)) if script.is_relative_to(root) else script.name
    return command([name, *sys.argv[1:]])


def rows_of(benchmark: Benchmark, options: Options, parameters: dict) -> list[Row]:
    """The rows of one case."""
    torch.manual_seed(0)
    case = benchmark.case(options, **parameters)
    samples = interleaved(next(case), options.repeats, benchmark.rotate)
    try:
        case.send(samples)
    except StopIteration as done:
        if isinstance(done.value, list):
            return done.value
        return [Row.of(parameters, samples, benchmark.ratios, done.value)]
    raise RuntimeError(f'the case of {benchmark.name!r} yields more than once')


def run(name: str, arguments: list[str] | None = None, doc: str | None = None) -> Result:
    """Runs a benchmark as its options say.

    Args:
        name: One of `suite.case.BENCHMARKS`.
        arguments: The command line without the script; that of the process if not given.
        doc: What ``--help`` says.
    """
    benchmark = BENCHMARKS[name]
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--repeats', type=int, default=20, help='how often each side runs (default: %(default)s)')
    parser.add_argument('--out', type=Path, metavar='FILE', help='write the result as JSON')
    parser.add_argument('--quick', action='store_true', help='a tiny setting, to see that it runs')
    benchmark.arguments(parser)
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update({'repeats': 2, **benchmark.quick})
    where = machine(*benchmark.packages)
    date, settings = time.strftime('%Y-%m-%d'), dict(benchmark.settings(options))
    print(described(where), *(f'{key} {value}' for key, value in settings.items()), date, sep='; ')
    rows: list[Row] = []
    result = Result(name, typed(), date, where, settings, rows)
    for parameters in tqdm(list(benchmark.parameters(options)), name, disable=None):
        rows += rows_of(benchmark, options, dict(parameters))
        if options.out is not None:
            result.write(options.out)  # after each case: a run that is cut short keeps what it has
    print(f'\n{table(columns_of(result), rows)}')
    return result
