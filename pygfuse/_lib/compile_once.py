"""Of several threads and processes that need the same kernel at once, one compiles it and the others wait for it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

from pygfuse._lib.announcement import announce
from pygfuse._lib.file_locks import CAN_BE_REMOVED, try_lock
from pygfuse._lib.kernel_counts import COUNTS
from pygfuse._lib.private_files import NOT_A_LINK, why_not_kept

T = TypeVar('T')

# a kernel takes seconds: whoever holds a lock for longer is stopped, or on a file system that forgets to release it
WAIT_LIMIT_S = 60.0
_POLL_S = 0.05

# held while a thread compiles or loads
_compiling = threading.RLock()
# those that this process holds while it forks
_taken: list[Any] = []


def _before_fork() -> None:
    """Waits for compilers, whose locks a child would inherit closed; disposing of modules takes LLVM's, too.

    Not for ever: a thread that died with a lock would stop all forks of this process.
    """
    _release(ffi.lib._lock._lock)
    give_up = time.monotonic() + WAIT_LIMIT_S
    for lock in (_compiling, global_compiler_lock._lock, ffi.lib._lock._lock):
        if lock.acquire(timeout=max(0.0, give_up - time.monotonic())):
            _taken.append(lock)


def _after_fork() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _release(lock: Any) -> None:
    """Releases a lock that this thread left closed."""
    while lock._is_owned():
        lock.release()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Releases the compilers' locks where an interrupt met the code that does so, and left them closed.

    The thread itself would go on, as it may take them again; every other one would wait for ever. LLVM's may have been
    left so before, by what disposes of a module: Python only reports an error there. Nobody compiles within its calls.
    """
    of_llvm, of_numba = ffi.lib._lock._lock, global_compiler_lock._lock
    _release(of_llvm)
    is_within = of_numba._is_owned()
    try:
        yield
    finally:
        _release(of_llvm)
        if not is_within:
            _release(of_numba)


def compile_once(path: Path, find: Callable[[], T | None], compile_new: Callable[[], T]) -> T:
    """A kernel, found or compiled.

    Args:
        path: Where the kernel lies on disk, found by other processes too.
        find: Looks for the kernel in memory and on disk.
        compile_new: Compiles it and leaves it where `find` looks. Only one thread of all processes does so at a time.
    """
    give_up = time.monotonic() + WAIT_LIMIT_S
    while True:
        with _compiling:
            found = find()
            if found is not None:
                COUNTS.found += 1
                return found
            with _lock(path) as is_ours:
                if is_ours or time.monotonic() > give_up:
                    # another process may have finished just before it released the lock
                    found = find()
                    COUNTS.found += found is not None
                    COUNTS.compiled += found is None
                    return compile_new() if found is None else found
        announce('another process compiles kernels for this processor; waiting for them')
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Locks a kernel against other processes; the system releases it when this process dies.

    Yields:
        Whether this process may compile: it has the lock, or there are none where the kernel lies.
    """
    lock = path.with_suffix('.lock')
    handle = _open(lock)
    if handle is None:
        yield True
        return
    is_ours = False
    try:
        is_ours = _try_lock(handle, lock)
        yield is_ours
    finally:
        if is_ours:
            with contextlib.suppress(OSError):
                os.unlink(lock)
        os.close(handle)


def _open(lock: Path) -> int | None:
    """A handle of a lock's file, or None where none can be made."""
    if why_not_kept(lock.parent) is not None:
        return None
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT | NOT_A_LINK, 0o600)
    except OSError:
        return None


def _try_lock(handle: int, lock: Path) -> bool:
    try:
        if not try_lock(handle):
            return False
    except OSError:  # a file system without locks
        return True
    if not CAN_BE_REMOVED:
        return True
    try:
        # whoever held it before removed the file, and others may have locked a new one
        return os.path.samestat(os.fstat(handle), os.stat(lock))
    except OSError:
        return False
