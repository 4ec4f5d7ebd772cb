"""Compiled kernels on disk: machine code keyed by everything that decided it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import time
from pathlib import Path

import llvmlite
import numba
from numba.core.registry import cpu_target

from pygfuse._lib.announcement import warn_once
from pygfuse._lib.machine_code import MachineCode, from_bytes, to_bytes
from pygfuse._lib.private_files import read, write

_KERNEL = '.kernel'
# files that exist while a kernel is written or compiled
_PASSING = ('.partial', '.lock')
# nobody writes or compiles for as long
_LEFT_BEHIND_S = 3600
# a process lists a folder when it first writes there and again after this share of the limit: that takes 5 us a file
_LISTED_AFTER = 1 / 64
# how much of the limit stays where it was exceeded, so that not every kernel that follows removes another
_KEPT = 7 / 8
# bytes that this process wrote to a folder since it listed it
_written: dict[Path, int] = {}


def cache_directory() -> Path:
    """The folder of compiled kernels: ``$PYGFUSE_CACHE_DIR``, else ``pygfuse`` in the user's cache folder."""
    chosen = os.environ.get('PYGFUSE_CACHE_DIR')
    return _path(chosen) if chosen else _path(os.environ.get('XDG_CACHE_HOME'), 'pygfuse')


@functools.lru_cache(maxsize=16)
def _path(base: str | None, *names: str) -> Path:
    return Path(base or os.path.join(os.path.expanduser('~'), '.cache'), *names)


# the module of an import statement, and the names that it imports from there
_IMPORT = re.compile(r'^\s*(?:from|import) +([\w.]+)(?: import +(\([^)]*\)|.*))?', re.MULTILINE)

# folders without anything that decides machine code
NEVER_COMPILED = ('_lib', 'call', 'graph', 'mapping')


@functools.cache
def environment_digest() -> bytes:
    """A digest of the compiler's versions and the processor."""
    facts = (
        numba.__version__,
        llvmlite.__version__,
        platform.python_version(),
        # the target, processor and features that Numba compiles for
        *map(str, cpu_target.target_context.codegen().magic_tuple()),
    )
    return hashlib.sha256('\0'.join(facts).encode()).digest()


@functools.cache
def source_digest(module: str) -> bytes:
    """A digest of the sources of a module and of what it imports of this package, directly or not.

    Folders that hold no function that is compiled, and no constant that such a function reads, are left out: editing
    them compiles nothing.
    """
    digest, reached = hashlib.sha256(), {}
    _reach(module, reached)
    for name in sorted(reached):
        digest.update(f'{name}\0'.encode() + reached[name])
    return digest.digest()


def _reach(module: str, reached: dict[str, bytes]) -> None:
    """Adds the sources of a module and of what it imports of this package."""
    package = __name__.partition('.')[0]
    path = Path(__file__).parents[1].joinpath(*module.split('.')[1:])
    path = path / '__init__.py' if path.is_dir() else path.with_suffix('.py')
    if module in reached or not module.startswith(f'{package}.') or not path.is_file():
        return
    if module.split('.')[1] in NEVER_COMPILED:
        return
    reached[module] = path.read_bytes()
    for imported, names in _IMPORT.findall(reached[module].decode()):
        _reach(imported, reached)
        # what is imported from a package may be a module
        for name in re.findall(r'\w+', names):
            _reach(f'{imported}.{name}', reached)


def entry_path(module: str, *key: str) -> Path:
    """Where a kernel lies.

    Args:
        module: The module whose functions are compiled.
        key: What else decided its machine code: name, signature, constants, ...
    """
    digest = hashlib.sha256(
        environment_digest() + source_digest(__name__.partition('.')[0] + '.cpu.compilation.kernel')
    )
    digest.update(source_digest(module))
    digest.update('\0'.join((module, *key)).encode())
    return cache_directory() / f'{digest.hexdigest()[:40]}{_KERNEL}'


def load(path: Path) -> MachineCode | None:
    """The kernel stored at a path, or None if there is none that is whole and this user's own."""
    content = read(path)
    if content is None:
        return None
    found = from_bytes(content, path.stem)
    if found is None:
        warn_once(('damaged', path.parent), 'pygfuse compiles damaged kernels anew: %s', path)
    return found


def store(path: Path, code: MachineCode) -> None:
    """Keeps a kernel where `load` finds it; where nothing can be written, that is said once and is no error."""
    content, folder, limit = to_bytes(code, path.stem), path.parent, byte_limit()
    if not write(path, content):
        return
    written = _written.get(folder, limit) + len(content)
    if written >= limit * _LISTED_AFTER:
        prune(folder, limit)
        written = 0
    _written[folder] = written


def byte_limit() -> int:
    """How large all kernels on disk may be together: ``$PYGFUSE_CACHE_BYTES``, else 1 GiB."""
    chosen = os.environ.get('PYGFUSE_CACHE_BYTES', '')
    if chosen.isdecimal():
        return int(chosen)
    if chosen:
        warn_once(
            'PYGFUSE_CACHE_BYTES', 'PYGFUSE_CACHE_BYTES is %r; expected a number of bytes, 1 GiB is taken', chosen
        )
    return 1 << 30


def kernels(folder: Path) -> dict[Path, os.stat_result]:
    """The kernels in a folder, those unused for longest first."""
    found = {Path(path): facts for path, facts in _files(folder, _KERNEL).items()}
    return dict(sorted(found.items(), key=lambda item: item[1].st_mtime))


def prune(folder: Path, limit: int) -> None:
    """Where kernels together exceed a limit, removes those unused for longest until seven eighths of it are left.

    Args:
        folder: Where they lie.
        limit: Bytes.
    """
    # thousands of kernels are listed once, and sorted only if some have to leave
    found = _files(folder, _KERNEL, *_PASSING)
    passing = {path: facts for path, facts in found.items() if path.endswith(_PASSING)}
    size = sum(facts.st_size for path, facts in found.items() if path not in passing)
    if size > limit:
        for path, facts in kernels(folder).items():
            if size <= limit * _KEPT:
                break
            _remove(path)
            size -= facts.st_size
    # what processes left that were killed while they wrote or compiled
    oldest = time.time() - _LEFT_BEHIND_S
    for path, facts in passing.items():
        if facts.st_mtime < oldest:
            _remove(path)


def clear(folder: Path) -> None:
    """Removes all kernels; what was measured stays."""
    _written.pop(folder, None)
    for path in _files(folder, _KERNEL, *_PASSING):
        _remove(path)


def _files(folder: Path, *suffixes: str) -> dict[str, os.stat_result]:
    """The files in a folder whose names end so, by path."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffixes):
                # another process may remove it meanwhile
                with contextlib.suppress(FileNotFoundError):
                    found[entry.path] = entry.stat(follow_symlinks=False)
    return found


def _remove(path: str | Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
