"""Runs PyG's own tests twice, with PyG's classes and with the fused ones in their place, and compares the outcomes.

    python -m tests.pyg_suite.run PATH_OF_PYG
    python -m tests.pyg_suite.run PATH_OF_PYG --only nn/conv --seed 1

Prints for each part how many tests passed, failed and were skipped, and every test that ends otherwise, with how often
it ends as PyG's with other seeds: some compare two roundings by `torch.allclose`, which a value near zero decides. What
pytest says is kept in a folder that it names.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# part -> whether it runs what PyG runs at night only: TorchScript; of other parts that needs a network
PARTS = {'nn/conv': True, 'nn/models': False, 'explain': False, 'loader': False}
KINDS = ('passed', 'failed', 'skipped')
# ends pytest at times, whatever the classes: it starts workers and does not wait for them
LEFT_OUT = ('test/loader/test_mixin.py::test_multithreading_neighbor_loader',)
OTHER_SEEDS = 10


class Suite:
    """PyG's tests.

    Args:
        pyg: A checkout of its repository.
        folder: Where what pytest says is kept.
    """

    def __init__(self, pyg: Path, folder: Path) -> None:
        self.pyg, self.folder = pyg, folder

    def outcomes(self, part: str, swapped: bool, seed: int, tests: Sequence[str] = ()) -> dict[str, str]:
        """What becomes of each test of a part, or of some tests of it."""
        name = f'{part.replace("/", "-")}-{"fused" if swapped else "pyg"}-{seed}'
        found, log = self.folder / f'{name}.json', self.folder / f'{name}.log'
        plugins = ['tests.pyg_suite.outcomes', *(['tests.pyg_suite.swapped'] if swapped else [])]
        command = [sys.executable, '-m', 'pytest', *(word for plugin in plugins for word in ('-p', plugin))]
        command += ['-p', 'no:cacheprovider', '-c', self.pyg / 'pyproject.toml', '--rootdir', self.pyg]
        command += [word for test in LEFT_OUT for word in ('--deselect', test)]
        command += ['--outcomes', found, '--torch-seed', str(seed)]
        command += [self.pyg / test for test in tests or (f'test/{part}',)]
        environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'FULL_TEST': '1' if PARTS[part] else '0'}
        # tests write to where they run; PyG's sources must not be there: it is the installed package that is tested
        with log.open('w') as file, tempfile.TemporaryDirectory() as here:
            subprocess.run(command, cwd=here, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
        if not found.exists():
            raise SystemExit(f'pytest wrote no outcomes: see {log}')
        return json.loads(found.read_text())

    def compare(self, part: str, seed: int) -> int:
        """Prints what becomes of a part and says how many tests end otherwise with fused classes, whatever the seed."""
        of_pyg, of_fused = (self.outcomes(part, swapped, seed) for swapped in (False, True))
        for title, found in (('PyG', of_pyg), ('fused', of_fused)):
            counts = collections.Counter(found.values())
            print(f'{part:10} {title:5}', ', '.join(f'{counts[kind]:,} {kind}' for kind in KINDS), flush=True)
        differing = sorted(test for test in {**of_pyg, **of_fused} if of_pyg.get(test) != of_fused.get(test))
        seeds = range(seed + 1, seed + 1 + OTHER_SEEDS) if differing else ()
        again = [self.outcomes(part, True, other, differing) for other in seeds]
        faults = 0
        for test in differing:
            same = sum(found.get(test) == of_pyg.get(test) for found in again)
            faults += same == 0
            print(f'  {test}: PyG {of_pyg.get(test)}, fused {of_fused.get(test)};', end=' ')
            print(f"as PyG's with {same} of {OTHER_SEEDS} other seeds", flush=True)
        return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('pyg', type=Path, help="a checkout of PyG's repository at the installed version")
    parser.add_argument('--only', nargs='+', choices=PARTS, default=list(PARTS), help='parts to run')
    parser.add_argument('--seed', type=int, default=0, help='of every test')
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix='pyg-suite-'))
    print(f'logs are in {folder}')
    suite = Suite(arguments.pyg.resolve(), folder)
    faults = sum(suite.compare(part, arguments.seed) for part in arguments.only)
    print(f'{faults} tests differ with every seed')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
