"""``python -m pygfuse.bench [NAME] [OPTIONS]``: a benchmark by name, or with ``--suite NAME`` those of a paper."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from pygfuse.bench.cases import modules
from pygfuse.bench.runner import run
from pygfuse.bench.suites import SUITES, run_suite
from pygfuse.bench.tables import aligned

PROG = 'python -m pygfuse.bench'
# what runs without a name
DEFAULT = 'layers'


def names() -> str:
    """What can be run, for people."""
    others = ', '.join(name for name in modules() if name != DEFAULT)
    papers = '\n'.join(f'  {name:<14} {suite.paper}' for name, suite in SUITES.items())
    return f'Suites, {PROG} --suite SUITE --help:\n{papers}\nOther benchmarks, {PROG} NAME --help:\n  {others}'


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is named.

    Args:
        arguments: The words of the command line; default: those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(PROG, add_help=False, allow_abbrev=False)
    parser.add_argument('--suite', choices=SUITES)
    options, words = parser.parse_known_args(arguments)
    if options.suite is not None:
        return int(run_suite(options.suite, words, f'{PROG} --suite {options.suite}') > 0)
    name = words.pop(0) if words and not words[0].startswith('-') else DEFAULT
    if name not in modules():
        print(f"{PROG}: expected a name of what can be run (got '{name}')\n{names()}", file=sys.stderr)
        return 2
    doc = import_module(modules()[name]).__doc__
    run(name, words, f'{doc}\n{names()}' if name == DEFAULT else doc, f'{PROG} {name}', aligned)
    return 0


if __name__ == '__main__':
    sys.exit(main())
