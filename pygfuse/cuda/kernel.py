"""Kernels of the CUDA backend: compiled once for a layout and types of arguments, kept on disk, launched through the
driver on torch's current stream."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Callable
from typing import Any

import torch

from pygfuse._lib import disk as cache
from pygfuse._lib.compile_once import compile_once, interruptible
from pygfuse._lib.machine_code import MachineCode
from pygfuse.cuda.arguments import describe, words
from pygfuse.cuda.holding import hold
from pygfuse.cuda.layout import Layout

_log = logging.getLogger(__name__)

# threads of a block: enough to fill a multiprocessor with few blocks, few enough that a long row holds up little
BLOCK = 128


class Kernel:
    """A body for one layout, specialised on the types of its arguments.

    Args:
        make_body: Makes the body from the `pygfuse.cuda.instructions.Instructions` of the layout.
        layout: Which lane holds what.
        name: What it computes, for messages.
        key: What, beside the types of arguments, decides the machine code.
    """

    block = BLOCK

    def __init__(self, make_body: Callable[[Any], Callable], layout: Layout, name: str, key: tuple[str, ...]) -> None:
        self.make_body, self.layout, self.name, self.key = make_body, layout, name, key
        self._loaded: dict[tuple, Any] = {}
        self._lock = threading.Lock()

    def blocks(self, teams: int) -> int:
        """Blocks that hold so many teams."""
        return max(1, -(-teams * self.layout.team // self.block))

    def __call__(self, device: torch.device, blocks: int, tiles: int, *arguments: object) -> None:
        """Launches a grid of ``blocks x tiles`` on torch's current stream of a device.

        Args:
            device: Where all tensors are.
            blocks: Blocks for each tile.
            tiles: Tiles of a row.
            arguments: Contiguous tensors, tuples of arguments, ints, floats or None.
        """
        from pygfuse.cuda import driver

        hold(arguments)
        description = tuple(describe(argument) for argument in arguments)
        with torch.cuda.device(device):
            function = self._loaded.get((device.index, description)) or self._load(device, description)
            stream = torch.cuda.current_stream(device).cuda_stream
            driver.launch(function, (blocks, tiles), self.block, [*words(arguments)], stream)

    def _load(self, device: torch.device, description: tuple) -> Any:
        from pygfuse.cuda import driver

        with self._lock:
            found = self._loaded.get((device.index, description))
            if found is None:
                code, name = self.code(description, torch.cuda.get_device_capability(device))
                found = self._loaded[device.index, description] = driver.load(code, name)
            return found

    @interruptible()
    def code(self, description: tuple, architecture: tuple[int, int]) -> tuple[bytes, str]:
        """The machine code for arguments of these types, from disk if it was compiled before, and the kernel's name."""
        version = importlib.metadata.version('numba-cuda')
        facts = (repr(architecture), version, repr(self.layout), repr(description))
        path = cache.entry_path('pygfuse.cuda.kernels', self.name, *facts, *self.key)

        def compile_new() -> MachineCode:
            from pygfuse.cuda import compilation, toolkit

            toolkit.check()
            _log.info('compiling %s', self.name)
            text, name = self.ptx(description, architecture)
            stored = MachineCode((name,), (compilation.to_machine_code(text, architecture),))
            cache.store(path, stored)
            return stored

        stored = compile_once(path, lambda: cache.load(path), compile_new)
        return stored.pieces[0], stored.names[0]

    def ptx(self, description: tuple, architecture: tuple[int, int]) -> tuple[str, str]:
        """The PTX for arguments of these types, and the kernel's name in it."""
        from pygfuse.cuda import compilation, instructions

        body = self.make_body(instructions.Instructions(self.layout))
        return compilation.to_ptx(body, description, architecture, BLOCK)
