"""Runs a benchmark or a study by name.

    python benchmarks/run.py convs --root data/Tolokers --out benchmarks/results/convs.json
    python benchmarks/run.py hag --help

Those of ``python -m pygfuse.bench`` are among them. Benchmarks and studies take ``--repeats``, ``--out`` and
``--quick``; what measures and fits choosers of group sizes has options of its own. Without a name, all are listed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import suite.columns  # noqa: F401  (the runner shows their tables)

from pygfuse.bench import cases
from pygfuse.bench.case import BENCHMARKS
from pygfuse.bench.runner import run

FOLDERS = ('suite/cases', 'studies', 'studies/groups')
HELPERS = ('__init__', 'group_graphs')


def modules() -> dict[str, str]:
    """By name, the module of each benchmark and study."""
    here = Path(__file__).parent
    files = [path for folder in FOLDERS for path in sorted((here / folder).glob('*.py')) if path.stem not in HELPERS]
    found = {path.stem: '.'.join(path.relative_to(here).with_suffix('').parts) for path in files}
    return {**cases.modules(), **found}


def main(name: str | None = None) -> None:
    """Runs what is named, by a script or by the first argument."""
    known = modules()
    if name is None:
        if len(sys.argv) < 2 or sys.argv[1] not in known:
            sys.exit(f'{__doc__}\nNames: {", ".join(known)}')
        name = sys.argv[1]
        arguments = sys.argv[2:]
    else:
        arguments = sys.argv[1:]
    module = importlib.import_module(known[name])
    if name in BENCHMARKS:
        run(name, arguments, module.__doc__)
    else:
        module.main(arguments)


if __name__ == '__main__':
    main()
