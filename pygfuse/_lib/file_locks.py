"""Locks of files against other processes, by what the system has for them; it releases those of a process that dies."""

from __future__ import annotations

try:
    import fcntl
except ImportError:
    fcntl = None
    import msvcrt  # of Windows

# whether an open file can be removed, so that another may lie at its path by now
CAN_BE_REMOVED = fcntl is not None


def try_lock(handle: int) -> bool:
    """Locks an open file, if no other process has; whether it did.

    Raises:
        OSError: If its file system has no locks.
    """
    if fcntl is None:
        return _try_lock_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_on_windows(handle: int) -> bool:
    try:
        # of one byte, which need not be there
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    except PermissionError:
        return False
    return True
