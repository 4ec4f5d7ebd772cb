"""Breaks the package in every chosen way and says whether the tests notice.

    python -m tests.mutations.run
    python -m tests.mutations.run --only 'the order of weights'
    python -m tests.mutations.run --kernels ~/.cache/pygfuse --resume outcomes.txt

Package and tests are copied to a temporary folder; each mutation is made in the copy, its tests are run by a forked
process that imports the package from there, and it is undone. Kernels are kept in a folder of that copy, which may
begin with what a run of the tests has compiled, so that only what is broken is compiled anew.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import hypothesis  # noqa: F401
import numba.core.registry  # noqa: F401
import pytest
import torch
import torch._dynamo
import torch.distributed.fsdp

from tests.mutations.mutation import ROOT, Mutation
from tests.mutations.mutations import MUTATIONS

CAUGHT, SURVIVED, UNCLEAR = 'caught', 'SURVIVED', 'UNCLEAR'
# tests that were stopped have noticed something: an endless loop
LIMIT_S = 600


def copied(folder: Path, kernels: Path | None) -> None:
    """Copies what tests need, and kernels to begin with."""
    for name in ('pygfuse', 'tests', 'benchmarks', 'examples'):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT / 'pyproject.toml', folder)
    if kernels is not None:
        # locks come and go while others compile
        shutil.copytree(kernels, folder / 'kernels', ignore=shutil.ignore_patterns('*.lock', '*.partial*'))


def outcomes_in(file: Path | None) -> dict[str, str]:
    """What a run that was interrupted wrote: outcomes by name."""
    if file is None or not file.exists():
        return {}
    return dict(reversed(line.split(' ', 1)) for line in file.read_text().splitlines())


@contextlib.contextmanager
def mutated(mutation: Mutation, folder: Path):
    """A ``with`` block in which a mutation stands in the copy."""
    path = mutation.source(folder)
    before = path.read_text()
    path.write_text(before.replace(mutation.text, mutation.replacement))
    try:
        yield
    finally:
        path.write_text(before)


def result_of(tests: str, folder: Path, log: Path) -> str:
    """What became of tests in a process of their own."""
    child = os.fork()
    if child == 0:
        try:
            _run_tests(tests, folder, log)
        finally:
            os._exit(99)
    began = time.monotonic()
    while time.monotonic() - began < LIMIT_S:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            # killed by a signal, too: broken kernels write anywhere
            return {0: SURVIVED}.get(code, CAUGHT if code == pytest.ExitCode.TESTS_FAILED or code < 0 else UNCLEAR)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return CAUGHT


def _run_tests(tests: str, folder: Path, log: Path) -> None:
    with log.open('w') as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ['PYGFUSE_CACHE_DIR'] = str(folder / 'kernels')
    os.chdir(folder)
    # an installed package is found by hooks of its own
    sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in f'{finder} {type(finder)}'.lower()]
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ('', str(ROOT)))]
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.partition('.')[0] in ('tests', 'pygfuse')]:
        del sys.modules[name]
    torch.set_num_threads(1)
    code = pytest.main(['-q', '-x', '-p', 'no:cacheprovider', '--rootdir', str(folder), *shlex.split(tests)])
    import pygfuse

    assert Path(pygfuse.__file__).is_relative_to(folder), pygfuse.__file__
    sys.stdout.flush()
    os._exit(int(code))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='+', metavar='NAME', help='run the mutations of these names')
    parser.add_argument('--unbroken', action='store_true', help='run the tests of each mutation without it: all pass')
    parser.add_argument('--kernels', type=Path, help='a folder of compiled kernels to begin with, which is copied')
    parser.add_argument(
        '--resume', type=Path, help='a file of outcomes: those in it are not run again, others are added'
    )
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if arguments.only is None or mutation.name in arguments.only]
    known = outcomes_in(arguments.resume)
    found = {mutation.name: known[mutation.name] for mutation in chosen if mutation.name in known}
    with tempfile.TemporaryDirectory(prefix='mutations-') as name:
        folder = Path(name)
        copied(folder, arguments.kernels)
        for mutation in chosen:
            if mutation.name in found:
                continue
            began, log = time.monotonic(), folder / 'log'
            with contextlib.nullcontext() if arguments.unbroken else mutated(mutation, folder):
                found[mutation.name] = result_of(mutation.tests, folder, log)
            print(f'{found[mutation.name]:9} {time.monotonic() - began:4.0f} s  {mutation.name}', flush=True)
            if arguments.resume is not None:
                with arguments.resume.open('a') as file:
                    print(found[mutation.name], mutation.name, file=file)
            expected = SURVIVED if arguments.unbroken else CAUGHT
            if found[mutation.name] != expected:
                print(*log.read_text().splitlines()[-12:], sep='\n')
    counts = ', '.join(f'{list(found.values()).count(kind)} {kind}' for kind in (CAUGHT, SURVIVED, UNCLEAR))
    print(f'{len(found)} mutations: {counts}')
    return 0 if set(found.values()) <= {SURVIVED if arguments.unbroken else CAUGHT} else 1


if __name__ == '__main__':
    sys.exit(main())
