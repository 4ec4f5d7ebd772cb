"""The command line of every benchmark: runs its cases, prints their table, writes the result."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from pygfuse.bench import plots
from pygfuse.bench.case import BENCHMARKS, Benchmark, Options
from pygfuse.bench.columns import columns_of
from pygfuse.bench.machine import described, machine
from pygfuse.bench.schema import Result, Row
from pygfuse.bench.tables import Column, table
from pygfuse.bench.timing import interleaved


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
    if script.name == '__main__.py':
        return command(['-m', f'pygfuse.{script.parent.name}', *sys.argv[1:]])
    root = Path(__file__).resolve().parents[2]
    name = str(script.relative_to(root)) if script.is_relative_to(root) else script.name
    return command([name, *sys.argv[1:]])


def rows_of(benchmark: Benchmark, options: Options, parameters: dict) -> list[Row]:
    """The rows of one case."""
    torch.manual_seed(0)
    case = benchmark.case(options, **parameters)
    samples = interleaved(next(case), options.repeats, benchmark.rotate, options.in_a_row)
    try:
        case.send(samples)
    except StopIteration as done:
        if isinstance(done.value, list):
            return done.value
        return [Row.of(parameters, samples, benchmark.ratios, done.value)]
    raise RuntimeError(f'the case of {benchmark.name!r} yields more than once')


def run(
    name: str,
    arguments: list[str] | None = None,
    doc: str | None = None,
    prog: str | None = None,
    shown: Callable[[Sequence[Column], Sequence[Row]], str] = table,
) -> Result:
    """Runs a benchmark as its options say.

    Args:
        name: One of `pygfuse.bench.case.BENCHMARKS`.
        arguments: The command line without the script; that of the process if not given.
        doc: What ``--help`` says.
        prog: What it calls the command.
        shown: Writes the table.
    """
    benchmark = BENCHMARKS[name]
    options = parsed(benchmark, arguments, doc, prog)
    where = machine(*benchmark.packages)
    date, settings = time.strftime('%Y-%m-%d'), dict(benchmark.settings(options))
    said = '; '.join([*(f'{key} {value}' for key, value in settings.items()), date])
    print(described(where), said, *benchmark.remarks(options), sep='\n')
    rows: list[Row] = []
    result = Result(name, typed(), date, where, settings, rows)
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        for parameters in tqdm(list(benchmark.parameters(options)), name, disable=None):
            rows += rows_of(benchmark, options, dict(parameters))
            if options.out is not None:
                result.write(options.out)  # after each case: a run that is cut short keeps what it has
    print(f'\n{shown(columns_of(result), rows)}')
    if options.plot is not None:
        plots.draw(result, options.plot)
    return result


def parsed(
    benchmark: Benchmark, arguments: list[str] | None = None, doc: str | None = None, prog: str | None = None
) -> Options:
    """The options of a benchmark, of a command line."""
    parser = argparse.ArgumentParser(prog, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--repeats', type=positive, default=20, help='how often each side runs (default: %(default)s)')
    parser.add_argument(
        '--in-a-row', type=positive, default=1, help="steps of a side before another side's (default: %(default)s)"
    )
    parser.add_argument('--json', '--out', dest='out', type=Path, metavar='FILE', help='write the result as JSON')
    parser.add_argument('--plot', type=plots.path, metavar='FILE', help='draw the result, as .png or .svg')
    parser.add_argument('--quick', action='store_true', help='a tiny setting, to see that it runs')
    benchmark.arguments(parser)
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update({'repeats': 2, **benchmark.quick})
    return options


def positive(text: str) -> int:
    """A number of a command line that is at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1 (got '{text}')")
    return int(text)
