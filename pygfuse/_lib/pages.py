"""Memory for large results on huge pages.

A result of many megabytes is new memory each time, and every page of it costs a microsecond when it is first written
to: with pages of 4 KB more than a walk itself may take. Where a program can ask the system for huge pages (Linux), they
are asked for.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable

from torch import Tensor

_HUGE_PAGE = 2**21
# smaller results have no whole huge page in them, or hardly any
LEAST_BYTES = 2 * _HUGE_PAGE


@functools.cache
def _madvise() -> Callable | None:
    """``madvise`` of the C library, or None."""
    if not hasattr(mmap, 'MADV_HUGEPAGE'):
        return None
    function = getattr(ctypes.CDLL(None), 'madvise', None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def on_huge_pages(tensor: Tensor) -> Tensor:
    """The same tensor, new and not yet written to; the whole huge pages in it are asked for as such.

    It is only advice: where the system does not take it, nothing changes.
    """
    size = tensor.numel() * tensor.element_size()
    if size >= LEAST_BYTES and tensor.device.type == 'cpu':
        madvise = _madvise()
        if madvise is not None:
            begin = -(-tensor.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
            end = (tensor.data_ptr() + size) // _HUGE_PAGE * _HUGE_PAGE
            madvise(begin, end - begin, mmap.MADV_HUGEPAGE)
    return tensor
