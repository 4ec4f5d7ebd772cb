"""Kernels of the CPU target: plain Python bodies compiled to C functions that a team of threads runs.

A body is a function ``body(part, *arguments)`` in the subset of Python that Numba compiles. Tensors arrive in it as
flat, contiguous arrays, tuples of tensors as tuples of arrays, numbers as int64 or float64, None as None. The work
is cut into parts; each thread takes the next part from a counter until none is left. Nothing is boxed at a call: the
arguments travel as one block of 64-bit words, and the GIL is free while the kernel runs.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable

import numba
import torch
from llvmlite import ir
from numba import types
from numba.core.bytecode import FunctionIdentity
from numba.core.runtime import rtsys
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from pygfuse._lib import disk as cache
from pygfuse._lib.announcement import announce
from pygfuse._lib.compile_once import compile_once
from pygfuse._lib.machine_code import MachineCode
from pygfuse._lib.private_files import warn_not_kept, why_not_kept
from pygfuse.codegen.arguments import Arguments
from pygfuse.cpu.launch import FIRST_ARGUMENT, Launch, Packed, kinds_of, packer

_log = logging.getLogger(__name__)

ELEMENT_TYPES = {
    torch.float32: types.float32,
    torch.float64: types.float64,
    torch.int32: types.int32,
    torch.int64: types.int64,
    torch.uint8: types.uint8,
    torch.bool: types.uint8,
}

# no flag that assumes away NaN or infinity: a diverging model must show it
FAST_MATH = {'contract', 'nsz'}


# Numba numbers functions from 1 in every process and names their symbols by it. Machine code that several processes
# kept on disk meets in one process: with the same names, one kernel would be run for another.
def _number_functions() -> None:
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(5), 'big') << 20)


_number_functions()
# children of one process would go on counting alike
os.register_at_fork(after_in_child=_number_functions)

# where the block holds the number of parts
_PARTS = 1


@intrinsic
def _claim(typingctx, block):
    """Takes the next part: adds one to the counter in the block and returns its old value."""

    def emit(context, builder, signature, arguments):
        return builder.atomic_rmw('add', arguments[0], ir.Constant(ir.IntType(64), 1), 'monotonic')

    return types.int64(block), emit


@intrinsic
def _array_at(typingctx, address, length, element):
    """A flat array of `element` over foreign memory."""
    array_type = types.Array(element.dtype, 1, 'C')

    def emit(context, builder, signature, arguments):
        made = make_array(array_type)(context, builder)
        pointer_type = context.get_data_type(array_type.dtype).as_pointer()
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
        populate_array(
            made,
            data=builder.inttoptr(arguments[0], pointer_type),
            shape=[arguments[1]],
            strides=[itemsize],
            itemsize=itemsize,
            meminfo=None,
        )
        return made._getvalue()

    return array_type(address, length, element), emit


@intrinsic
def _float_of(typingctx, bits):
    """The float64 whose bits are those of an int64."""
    return types.float64(bits), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.DoubleType()
    )


def _entry_source(kinds: tuple, in_groups: bool, elements: dict[str, object]) -> str:
    """The text of the C function: takes parts and calls the body with the arguments read from the block.

    Args:
        kinds: The types of the arguments.
        in_groups: Whether each is a group of arguments of the body.
        elements: Gets the types of array elements by name.
    """
    position = FIRST_ARGUMENT

    def read(kind: object) -> str:
        nonlocal position
        if isinstance(kind, tuple):
            return f'({"".join(read(item) + ", " for item in kind)})'
        if isinstance(kind, torch.dtype):
            name = str(kind).removeprefix('torch.')
            elements[name] = ELEMENT_TYPES[kind]
            position += 2
            return f'array_at(block[{position - 2}], block[{position - 1}], {name})'
        if kind is type(None):
            return 'None'
        position += 1
        return f'float_of(block[{position - 1}])' if kind is float else f'block[{position - 1}]'

    arguments = ', '.join(read(kind) for kind in (itertools.chain.from_iterable(kinds) if in_groups else kinds))
    return (
        'def entry(block):\n'
        '    while True:\n'
        '        part = claim(block)\n'
        f'        if part >= block[{_PARTS}]:\n'
        '            return\n'
        f'        body(part, {arguments})\n'
    )


class Kernel:
    """A body and its compiled specialisations.

    Args:
        body: The function ``body(part, *arguments)``; everything it calls must be known to Numba.
        name: What the log calls it while it compiles.
        constants: Whatever else decided the body (layout, options, the text of a program): part of the key under
            which the machine code is kept on disk.
        takes: The groups in which the arguments come; by default each comes by itself.
    """

    def __init__(
        self, body: Callable, name: str, constants: tuple[str, ...] = (), takes: Arguments | None = None
    ) -> None:
        self.body = body
        self.name = name
        self.constants = constants
        self.takes = takes
        self._compiled: dict[tuple, tuple[int, object]] = {}
        # to be tried one after another: there are hardly ever more than two
        self._launches: tuple[Launch, ...] = ()

    def __call__(self, parts: int, *arguments: object, threads: int | None = None) -> None:
        """Runs `parts` parts on at most `threads` threads (default: as many as torch uses) and waits for all.

        Args:
            parts: Number of parts; each is run exactly once, by one thread.
            arguments: Contiguous CPU tensors, tuples of arguments, ints, floats or None; or groups of them.
            threads: Upper limit of threads.
        """
        if parts <= 0:
            return
        for launch in self._launches:
            block = launch.pack(parts, *arguments)
            if block is not None:
                break
        else:
            launch = self._launch(arguments)
            block = launch.pack(parts, *arguments)
        launch.run(block, min(parts, torch.get_num_threads() if threads is None else threads))

    def _launch(self, arguments: tuple) -> Launch:
        if self.takes is not None:
            self.takes.check(tuple([group.group if type(group) is Packed else group for group in arguments]))
        kinds = kinds_of(arguments)
        packed = tuple([i for i, argument in enumerate(arguments) if isinstance(argument, Packed)])
        launch = Launch(self._compiled.get(kinds) or self._compile(kinds), packer(kinds, packed))
        self._launches = (*self._launches, launch)
        return launch

    def _compile(self, kinds: tuple) -> tuple[int, object]:
        path = cache.entry_path(self.body.__module__, self.body.__qualname__, self.name, repr(kinds), *self.constants)

        def find() -> tuple[int, object] | None:
            if kinds not in self._compiled:
                stored = cache.load(path)
                loaded = None if stored is None else _load(stored)
                if loaded is None:
                    return None
                self._compiled[kinds] = loaded
            return self._compiled[kinds]

        def compile_new() -> tuple[int, object]:
            _announce()
            stored, self._compiled[kinds] = self._build(kinds)
            cache.store(path, stored)
            return self._compiled[kinds]

        return compile_once(path, find, compile_new)

    def _build(self, kinds: tuple) -> tuple[MachineCode, tuple[int, object]]:
        _log.info('compiling %s', self.name)
        elements: dict[str, object] = {}
        source = _entry_source(kinds, self.takes is not None, elements)
        body = numba.njit(
            self.body, error_model='numpy', fastmath=FAST_MATH, no_cpython_wrapper=True, no_cfunc_wrapper=True
        )
        scope = {
            '__name__': __name__,
            'body': body,
            'claim': _claim,
            'array_at': _array_at,
            'float_of': _float_of,
            **elements,
        }
        exec(source, scope)
        function = numba.cfunc(types.void(types.CPointer(types.int64)), error_model='numpy', fastmath=FAST_MATH)(
            scope['entry']
        )
        library = function._library
        try:
            symbol, _, pieces = library.serialize_using_object_code()
        except RuntimeError:
            # an interrupt met the compiler while it handed over the code, where it is swallowed
            raise KeyboardInterrupt(f'while {self.name} was compiled') from None
        return MachineCode((symbol, function.native_name), pieces), (function.address, library)


def _load(stored: MachineCode) -> tuple[int, object] | None:
    """The address of a kernel's function and what keeps it in memory, or None if the function is not in it."""
    symbol, name = stored.names
    context = numba.core.registry.cpu_target.target_context
    # bodies that allocate call Numba's runtime, which must be there before they are linked
    rtsys.initialize(context)
    library = context.codegen().unserialize_library((symbol, 'object', stored.pieces))
    address = library.get_pointer_to_function(name)
    return (address, library) if address else None


def _announce() -> None:
    """Tells a person, once, why a first call waits."""
    folder = cache.cache_directory()
    reason = why_not_kept(folder)
    if reason is None:
        announce('compiling kernels for this processor; they are kept in %s', folder)
    else:
        warn_not_kept(folder, reason)
        announce('compiling kernels for this processor')
