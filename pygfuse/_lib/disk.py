"""Compiled kernels on disk: machine code keyed by everything that decided it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import re
import tempfile
from pathlib import Path

import llvmlite
import numba
from numba.core.registry import cpu_target


def cache_directory() -> Path:
    """The folder of compiled kernels: ``$PYGFUSE_CACHE_DIR``, else ``pygfuse`` in the user's cache folder."""
    chosen = os.environ.get('PYGFUSE_CACHE_DIR')
    if chosen:
        return Path(chosen)
    base = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
    return Path(base) / 'pygfuse'


# the module of an import statement, and the names that it imports from there
_IMPORT = re.compile(r'^\s*(?:from|import) +([\w.]+)(?: import +(\([^)]*\)|.*))?', re.MULTILINE)


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
    """A digest of the sources of a module and of all modules of this package that it imports, directly or not."""
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
    digest = hashlib.sha256(environment_digest() + source_digest(__name__.partition('.')[0] + '.cpu.kernel'))
    digest.update(source_digest(module))
    digest.update('\0'.join((module, *key)).encode())
    return cache_directory() / f'{digest.hexdigest()[:40]}.kernel'


def load(path: Path) -> object | None:
    """The stored object, or None if there is none that can be read."""
    try:
        return pickle.loads(path.read_bytes())
    except (OSError, EOFError, ValueError, pickle.UnpicklingError):
        return None


def store(path: Path, payload: object) -> None:
    """Keeps an object where `load` finds it; a read-only folder is no error."""
    with contextlib.suppress(OSError):
        write(path, pickle.dumps(payload))


def write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, so that several processes may do so at once.

    Raises:
        OSError: If the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix='.partial')
    with os.fdopen(handle, 'wb') as file:
        file.write(content)
    os.replace(temporary, path)
