"""The few calls of the CUDA driver that a launch needs, by ctypes: no array interface, no copies."""

from __future__ import annotations

import array
import ctypes
import functools

import torch

from pygfuse.cuda.arguments import PARAMETERS

_WORD = 8
_LOCAL_BYTES = 3  # the driver's number of CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL('libcuda.so.1')


def _check(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f'CUDA could not {what}: {(text.value or b"unknown error").decode()}')


def _make_context_current() -> None:
    """Makes torch's context of the current device this thread's, if it has none yet: a thread of autograd may not."""
    context = ctypes.c_void_p()
    _check(_library().cuCtxGetCurrent(ctypes.byref(context)), 'find its context')
    if not context:
        _check(
            _library().cuDevicePrimaryCtxRetain(ctypes.byref(context), torch.cuda.current_device()), 'make a context'
        )
        _check(_library().cuCtxSetCurrent(context), 'set its context')


def load(code: bytes, name: str) -> ctypes.c_void_p:
    """The kernel `name` of machine code, loaded into the current device; it stays there as long as the process."""
    _make_context_current()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_library().cuModuleLoadData(ctypes.byref(module), code), 'load a kernel')
    _check(_library().cuModuleGetFunction(ctypes.byref(function), module, name.encode()), 'find a kernel')
    return function


def spilled_bytes(function: ctypes.c_void_p) -> int:
    """Bytes of memory that a thread of a loaded kernel takes beside registers, for what these do not hold."""
    found = ctypes.c_int()
    _check(_library().cuFuncGetAttribute(ctypes.byref(found), _LOCAL_BYTES, function), "read a kernel's size")
    return found.value


def launch(function: ctypes.c_void_p, grid: tuple[int, int], block: int, packed: array.array, stream: int) -> None:
    """Launches a kernel whose parameters are 64-bit words.

    Args:
        function: From `load`.
        grid: Blocks in two directions.
        block: Threads of a block.
        packed: The parameters, as `PARAMETERS` has them; they are copied before this returns.
        stream: Address of the stream.
    """
    _make_context_current()
    base, head = packed.buffer_info()[0], len(PARAMETERS.head)
    packed[1], packed[3] = base + _WORD * head, base + _WORD * (head - 1)
    packed[head - 1] = _WORD * (len(packed) - head)
    status = _library().cuLaunchKernel(
        function, grid[0], grid[1], 1, block, 1, 1, 0, ctypes.c_void_p(stream), None, ctypes.c_void_p(base)
    )
    _check(status, 'launch a kernel')
