"""A stand-in for the CUDA driver: C functions that check what a launch passes, and have it interpreted.

`pygfuse.cuda.driver` calls them as it calls those of ``libcuda.so.1``: by C's calling convention, with the types that
ctypes gives arguments by itself. Machine code is PTX here. Tensors of the CPU stand for those of a device that is not
the current one, whose current stream has an address of 47 bits.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pygfuse.cuda import compilation, driver, toolkit
from pygfuse.cuda.kernel import Kernel
from tests.support.interpreter import forget_kernels, interpret, leaves
from tests.support.ptx import Program

LARGEST_GRID = (2**31 - 1, 65535, 65535)
# handles are numbers beyond 32 bits, so that one that is cut to an int is another
_CONTEXTS, _MODULES, _FUNCTIONS, _STREAMS = 0x7A00_0000_0000, 0x7B00_0000_0000, 0x7C00_0000_0000, 0x7D00_0000_0000
_FAILED = 719
_out = ctypes.POINTER(ctypes.c_void_p)


@dataclasses.dataclass(frozen=True)
class Launch:
    """A launch that was found right.

    Attributes:
        name: What the kernel computes.
        grid: Blocks in two directions.
        function: The handle of the kernel.
        loaded: Bytes that were loaded of each tensor, by its address.
    """

    name: str
    grid: tuple[int, int]
    function: int
    loaded: dict[int, int]


class StandIn:
    """The driver, with what torch knows of it.

    Args:
        device: The number of the device on which tensors are.

    Attributes:
        launches: All that were made.
        modules: The texts that were loaded.
        checks: How many those were whenever the toolkit's versions were compared.
        spilled_bytes: What a thread of a kernel spills, given its PTX.
    """

    def __init__(self, device: int = 1) -> None:
        self.device, self.launches, self.modules, self.checks = device, [], [], []
        self.spilled_bytes: Callable[[str], int] = lambda text: 0
        self._functions: list[tuple[int, Program]] = []
        self._expected: tuple[Kernel, tuple[int, int], list[Any]] | None = None
        self._failure = ''
        # of each thread, its device and its context, or 0
        self._here = threading.local()
        self._kept: list[Any] = []
        pointer, number = ctypes.c_void_p, ctypes.c_uint
        self.cuGetErrorString = self._function(self._get_error_string, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
        self.cuCtxGetCurrent = self._function(self._get_context, _out)
        self.cuCtxSetCurrent = self._function(self._set_context, pointer)
        self.cuDevicePrimaryCtxRetain = self._function(self._retain_context, _out, ctypes.c_int)
        self.cuModuleLoadData = self._function(self._load_module, _out, ctypes.c_char_p)
        self.cuModuleGetFunction = self._function(self._get_function, _out, pointer, ctypes.c_char_p)
        self.cuFuncGetAttribute = self._function(
            self._get_attribute, ctypes.POINTER(ctypes.c_int), ctypes.c_int, pointer
        )
        sizes = [number] * 7
        self.cuLaunchKernel = self._function(self._launch, pointer, *sizes, pointer, _out, pointer)

    def _function(self, function: Callable, *types: Any) -> Any:
        """A function of C, as a library of ctypes has it."""

        def called(*arguments: Any) -> int:
            try:
                return function(*arguments) or 0
            except Exception as failure:
                self._failure = f'{type(failure).__name__}: {failure}'
                return _FAILED

        made = ctypes.CFUNCTYPE(ctypes.c_int, *types)(called)
        self._kept.append(made)
        return ctypes.CDLL(None)._FuncPtr(ctypes.cast(made, ctypes.c_void_p).value)

    # The driver

    def _get_error_string(self, status: int, text: Any) -> None:
        self._kept.append(ctypes.create_string_buffer(self._failure.encode()))
        text[0] = ctypes.cast(self._kept[-1], ctypes.c_char_p)

    def _get_context(self, context: Any) -> None:
        context[0] = getattr(self._here, 'context', 0)

    def _set_context(self, context: int | None) -> None:
        self._here.context = context or 0

    def _retain_context(self, context: Any, device: int) -> None:
        context[0] = _CONTEXTS + device

    def _load_module(self, module: Any, image: bytes) -> None:
        self._check_context()
        self.modules.append(image.decode())
        module[0] = _MODULES + len(self.modules) - 1

    def _get_function(self, function: Any, module: int, name: bytes) -> None:
        program = Program(self.modules[module - _MODULES])
        assert program.name == name.decode(), 'the name of the kernel'
        self._functions.append((self._here.context, program))
        function[0] = _FUNCTIONS + len(self._functions) - 1

    def _get_attribute(self, value: Any, attribute: int, function: int) -> None:
        assert attribute == 3, 'the size of local memory'
        value[0] = self.spilled_bytes(self._functions[function - _FUNCTIONS][1].text)

    def _check_context(self) -> None:
        assert getattr(self._here, 'context', 0) == _CONTEXTS + self.device, 'the context of the device'

    def _launch(self, function: int, *rest: Any) -> None:
        *sizes, shared, stream, parameters, extra = rest
        self._check_context()
        context, program = self._functions[function - _FUNCTIONS]
        assert context == self._here.context, 'a kernel of this context'
        grid, block = tuple(sizes[:3]), tuple(sizes[3:])
        kernel, expected, given = self._expected
        assert grid == (*expected, 1), f'a grid of {expected} (got {grid})'
        assert all(1 <= size <= limit for size, limit in zip(grid, LARGEST_GRID, strict=True)), f'a grid (got {grid})'
        assert block == (program.threads, 1, 1), f'blocks of {program.threads} threads (got {block})'
        assert (shared, bool(parameters)) == (0, False), 'no shared memory and no parameters one by one'
        assert stream == self.stream(self.device), 'the current stream of the device'
        found = _buffer(extra)
        assert len(found) == program.parameters, f'{program.parameters} parameters (got {len(found)})'
        assert found == [_word(argument) for argument in given], 'the arguments as words'
        loaded = self._run(program, grid[:2], found, given, kernel.layout.team)
        self.launches.append(Launch(kernel.name, grid[:2], function, loaded))

    def _run(
        self, program: Program, grid: tuple[int, int], words: list[int], given: list[Any], team: int
    ) -> dict[int, int]:
        """Has a launch interpreted, and says how many bytes it loaded of each tensor, by its address."""
        memory = interpret(program, grid, program.threads, words, given, team, seed=len(self.launches))
        addresses = (argument.data_ptr() for argument in given if isinstance(argument, torch.Tensor))
        return dict(zip(addresses, memory.loaded.tolist(), strict=True))

    # What torch knows

    @staticmethod
    def stream(device: int) -> int:
        """The current stream of a device."""
        return _STREAMS + device

    @contextlib.contextmanager
    def _guard(self, device: torch.device) -> Iterator[None]:
        before = self.current_device()
        self._go_to(self.device)
        yield
        self._go_to(before)

    def _go_to(self, device: int) -> None:
        # torch does nothing where a thread's device is the one that is wanted: the thread may have no context yet
        if device != self.current_device():
            self._here.device, self._here.context = device, _CONTEXTS + device

    def current_device(self) -> int:
        """The device of this thread."""
        return getattr(self._here, 'device', 0)

    def _call(self, kernel: Kernel, device: torch.device, blocks: int, tiles: int, *arguments: Any) -> None:
        """`Kernel.__call__`, noting what it is given."""
        assert device.type == 'cpu'
        before, self._expected = len(self.launches), (kernel, (blocks, tiles), [*leaves(arguments)])
        _CALL(kernel, device, blocks, tiles, *arguments)
        assert len(self.launches) == before + 1

    @contextlib.contextmanager
    def installed(self) -> Iterator[StandIn]:
        """A ``with`` block in which kernels are launched here."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, '_library', lambda: self)
            patch.setattr(compilation, 'to_machine_code', lambda text, architecture: text.encode())
            patch.setattr(toolkit, 'check', lambda: self.checks.append(len(self.modules)))
            patch.setattr(Kernel, '__call__', lambda kernel, *arguments: self._call(kernel, *arguments))
            patch.setattr(torch.cuda, 'device', self._guard)
            patch.setattr(torch.cuda, 'current_device', self.current_device)
            patch.setattr(torch.cuda, 'get_device_capability', lambda device: (9, 0))
            patch.setattr(
                torch.cuda, 'current_stream', lambda device: SimpleNamespace(cuda_stream=self.stream(self.device))
            )
            forget_kernels()
            yield self
        forget_kernels()


_CALL = Kernel.__call__


def _buffer(extra: int) -> list[int]:
    """The parameters, all in one buffer, as the driver's manual has it."""
    names = ctypes.cast(extra, ctypes.POINTER(ctypes.c_uint64))
    assert (names[0], names[2], names[4]) == (1, 2, 0), 'the address of the buffer, its size and an end'
    size = ctypes.cast(names[3], ctypes.POINTER(ctypes.c_size_t))[0]
    return ctypes.cast(names[1], ctypes.POINTER(ctypes.c_int64))[: size // 8]


def _word(argument: Any) -> int:
    """The 64 bits of a parameter, as a number with a sign."""
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    return struct.unpack('<q', struct.pack('<d' if isinstance(argument, float) else '<q', argument))[0]
