"""Kernels of the CPU target: plain Python bodies compiled to C functions that a team of threads runs.

A body is a function ``body(part, *arguments)`` in the subset of Python that `pygfuse.cpu.translation` has. Tensors
arrive in it as flat, contiguous arrays, tuples of tensors as tuples of arrays, numbers as int64 or float64, None as
None. The work is cut into parts; each thread takes the next part from a counter until none is left. Nothing is boxed at
a call: the arguments travel as one block of 64-bit words, and the GIL is free while the kernel runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import torch
from numba.core.compiler_lock import global_compiler_lock

from pygfuse._lib import disk as cache
from pygfuse._lib.announcement import announce
from pygfuse._lib.compile_once import compile_once, interruptible
from pygfuse._lib.machine_code import MachineCode
from pygfuse._lib.private_files import warn_not_kept, why_not_kept
from pygfuse.codegen.arguments import Arguments
from pygfuse.codegen.packing import Packed, kinds_of
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.translation.entry import write_entry
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.translation.values import CONTEXT

_log = logging.getLogger(__name__)


class Kernel:
    """A body and its compiled specialisations.

    Args:
        body: The function ``body(part, *arguments)``; what it calls, see `pygfuse.cpu.translation`.
        name: What the log calls it while it compiles.
        constants: Whatever else decided the body (layout, options, the text of a program): part of the key under
            which the machine code is kept on disk.
        takes: The tuples in which the arguments come; by default each comes by itself.
        fuses_products: Whether a product and a sum may become one instruction.
    """

    def __init__(
        self,
        body: Callable,
        name: str,
        constants: tuple[str, ...] = (),
        takes: Arguments | None = None,
        fuses_products: bool = True,
    ) -> None:
        self.body = body
        self.name = name
        self.constants = constants
        self.takes = takes
        self.fuses_products = fuses_products
        self._compiled: dict[tuple, tuple[int, object]] = {}
        # to be tried one after another: there are hardly ever more than two
        self._launches: tuple[Launch, ...] = ()

    def __call__(self, parts: int, *arguments: object, threads: int | None = None) -> None:
        """Runs `parts` parts on at most `threads` threads (default: as many as torch uses) and waits for all.

        Args:
            parts: Number of parts; each is run exactly once, by one thread.
            arguments: Contiguous CPU tensors, tuples of arguments, ints, floats or None; or `Packed` ones.
            threads: Upper limit of threads.
        """
        if parts <= 0:
            return
        for launch in self._launches:
            block = launch.pack(parts, *arguments)
            if block is not None:
                break
            # the one that is met again comes first
            self._launches = (*(other for other in self._launches if other is not launch), launch)
        else:
            launch = self._launch(arguments)
            block = launch.pack(parts, *arguments)
        launch.run(block, min(parts, torch.get_num_threads() if threads is None else threads))

    @torch.compiler.disable
    def untested(self, arguments: tuple) -> Launch:
        """A launch for arguments of the types of these, for a caller that has no others."""
        return Launch.of(self._code_for(arguments), arguments, tested=False)

    # of a frame that torch.compile leaves to Python it traces what that calls, and would trace the compiler
    @torch.compiler.disable
    def _launch(self, arguments: tuple) -> Launch:
        launch = Launch.of(self._code_for(arguments), arguments)
        self._launches = (*self._launches, launch)
        return launch

    def _code_for(self, arguments: tuple) -> tuple[int, object]:
        """The function compiled for arguments of these types."""
        if self.takes is not None:
            self.takes.check(tuple([each.arguments if type(each) is Packed else each for each in arguments]))
        kinds = kinds_of(arguments)
        return self._compiled.get(kinds) or self._compile(kinds)

    @interruptible()
    def _compile(self, kinds: tuple) -> tuple[int, object]:
        key = self.body.__qualname__, self.name, repr(kinds), str(self.fuses_products), *self.constants
        path = cache.entry_path(self.body.__module__, *key)

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
        # machine code that several processes kept on disk meets in one process: no two functions have one name
        name = f'pygfuse_{os.urandom(8).hex()}'
        with global_compiler_lock:
            library = CONTEXT.codegen().create_library(name)
            library.enable_object_caching()
            module = library.create_ir_module(name)
            parameters = kinds if self.takes is None else self.takes.flat(kinds)
            write_entry(module, name, inlined(self.body, self.fuses_products), parameters)
            library.add_ir_module(module)
            library.finalize()
        try:
            symbol, _, pieces = library.serialize_using_object_code()
        except RuntimeError:
            # an interrupt met the compiler while it handed over the code, where it is swallowed
            raise KeyboardInterrupt(f'while {self.name} was compiled') from None
        return MachineCode((symbol, name), pieces), (library.get_pointer_to_function(name), library)


def _load(stored: MachineCode) -> tuple[int, object] | None:
    """The address of a kernel's function and what keeps it in memory, or None if the function is not in it."""
    symbol, name = stored.names
    library = CONTEXT.codegen().unserialize_library((symbol, 'object', stored.pieces))
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
