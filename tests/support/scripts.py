"""Scripts in processes of their own that begin with what all of them import, as that alone takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# nothing that a script might forget to import
IMPORTED = ['torch', 'torch_geometric', 'pygfuse']
LIMIT_S = 600


def run_script(
    path: Path, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess:
    """Runs a script as ``python path arguments`` does, in a fork of a process that has imported `IMPORTED`.

    Args:
        path: The script.
        arguments: What its command line has.
        environment: Variables that it finds set beside those there are.
    """
    command = [str(path), *map(str, arguments)]
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ('stdout', 'stderr')]
        for file in files:
            file.touch()
        process = context.Process(target=_run, args=(command, files, {**os.environ, **(environment or {})}))
        process.start()
        process.join(LIMIT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, LIMIT_S)
        return subprocess.CompletedProcess(command, process.exitcode, *(file.read_text() for file in files))


def run_text(folder: Path, text: str, *arguments: object, **options: Mapping[str, str]) -> subprocess.CompletedProcess:
    """Runs the text of a script, which is left in `folder`, in the same way."""
    path = folder / 'script.py'
    path.write_text(text)
    return run_script(path, *arguments, **options)


def _run(command: Sequence[str], files: Sequence[Path], environment: Mapping[str, str]) -> None:
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY), descriptor)
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # else workers of the script would begin as this process did
    sys.argv[:] = command
    sys.path.insert(0, str(Path(command[0]).parent))
    runpy.run_path(command[0], run_name='__main__')
