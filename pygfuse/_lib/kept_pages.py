"""What the C library keeps of freed memory: glibc's settings, which hold for the whole process.

By itself glibc takes a large block from the system and gives it back when it is freed, so that the next one costs its
page faults again. Taken from the heap, which is not trimmed, the next block finds its pages there.
"""

from __future__ import annotations

import ctypes
import functools
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
# `mallopt` takes an int, of which -1 stands for no bound
MOST_BYTES, NO_BOUND = 2**31 - 1, -1
# those that glibc comes to by itself where large blocks are freed; it does not find them again once it was told others
_USUAL = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26}


@functools.cache
def why_not() -> str | None:
    """The reason, if any, for which this process's allocator cannot be told what to keep.

    Example:
        >>> reason = why_not()
        >>> reason is None or isinstance(reason, str)
        True
    """
    if sys.platform != 'linux':
        return f'the system is {sys.platform}'
    try:
        glibc = ctypes.CDLL('libc.so.6')
    except OSError:
        return 'the C library is not glibc'
    if not hasattr(glibc, 'gnu_get_libc_version') or not hasattr(glibc, 'mallopt'):
        return 'the C library is not glibc'
    # of a library that is loaded before glibc and takes its place
    in_force = getattr(ctypes.CDLL(None), 'malloc', glibc.malloc)
    return None if _address(in_force) == _address(glibc.malloc) else "another allocator takes the place of glibc's"


def keep(limit: int) -> bool:
    """Has glibc take all blocks from its heap, and keep what is free at the heap's end; whether it does.

    Args:
        limit: How many bytes are kept, `NO_BOUND` for all, 0 for what glibc keeps by itself.
    """
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: limit} if limit else _USUAL
    mallopt = ctypes.CDLL('libc.so.6').mallopt
    done = [mallopt(parameter, value) for parameter, value in settings.items()]
    if not limit:
        release()
    return all(done)


def release() -> bool:
    """Gives free pages back to the system; whether there were any."""
    trim = ctypes.CDLL('libc.so.6').malloc_trim
    trim.argtypes = (ctypes.c_size_t,)
    return bool(trim(0))


def _address(function: ctypes._CFuncPtr) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
