"""Compiled kernels on disk: machine code keyed by everything that decided it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import platform
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


@functools.cache
def environment_digest() -> bytes:
    """A digest of this package's sources, the compiler's versions and the processor."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob('*.py')):
        digest.update(path.read_bytes())
    facts = (
        numba.__version__,
        llvmlite.__version__,
        platform.python_version(),
        # the target, processor and features that Numba compiles for
        *map(str, cpu_target.target_context.codegen().magic_tuple()),
    )
    digest.update('\0'.join(facts).encode())
    return digest.digest()


def entry_path(*key: str) -> Path:
    """Where the kernel of this key (name, signature, constants, ...) lies."""
    digest = hashlib.sha256(environment_digest())
    digest.update('\0'.join(key).encode())
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
