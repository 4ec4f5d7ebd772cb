"""The threads of the CPU target: torch's own OpenMP team where it can be reached, else Python's threads.

A kernel is a C function ``void kernel(int64_t *block)`` that takes parts of the work from a counter in its block
until none is left, so any number of threads may call it with the same block, each as often as it likes.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os
from collections.abc import Callable

import torch

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def function_at(address: int) -> Callable[[int], None]:
    """The kernel at an address, as a function of the address of its argument block that holds no GIL."""
    return _KERNEL(address)


class _Process:
    forked = False


def _after_fork() -> None:
    # the OpenMP team does not survive a fork; a fresh pool of Python threads does
    _Process.forked = True
    _python_pool.cache_clear()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _openmp_parallel() -> Callable | None:
    """``GOMP_parallel`` of the OpenMP library that torch is linked with, or None.

    Other packages load their own: the threads of two such libraries wait for one another's processors.
    """
    try:
        # a name is looked for in a library and in those that it was linked with
        function = getattr(ctypes.CDLL(torch._C.__file__), 'GOMP_parallel', None)
    except OSError:  # deleted since it was loaded
        return None
    if function is None:
        return None
    function.restype = None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    return function


@functools.cache
def _python_pool(threads: int) -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix='pygfuse')


def _run_python_threads(kernel: Callable, block: int, threads: int) -> None:
    pool = _python_pool(threads - 1)
    others = [pool.submit(kernel, block) for _ in range(threads - 1)]
    kernel(block)
    for other in others:
        other.result()


def run(address: int, block: int, threads: int) -> None:
    """Calls the kernel at `address` with the argument block at `block` from `threads` threads and waits for all.

    Holds no GIL meanwhile. With one thread the calling thread runs the kernel and nothing else is touched.
    """
    if threads <= 1:
        function_at(address)(block)
        return
    parallel = None if _Process.forked else _openmp_parallel()
    if parallel is None:
        _run_python_threads(function_at(address), block, threads)
    else:
        parallel(address, block, threads, 0)
