"""Kernels of the CUDA backend: compiled once for a layout and types of arguments, kept on disk, launched through the
driver on torch's current stream."""

from __future__ import annotations

import array
import contextlib
import importlib.metadata
import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pygfuse._lib import disk as cache
from pygfuse._lib.compile_once import compile_once, interruptible
from pygfuse._lib.machine_code import MachineCode
from pygfuse.codegen.packing import kinds_of, packer
from pygfuse.cuda.arguments import PARAMETERS, WIDE_PARAMETERS, describe, is_wide
from pygfuse.cuda.holding import hold
from pygfuse.cuda.layout import BLOCK, Layout

_log = logging.getLogger(__name__)

# blocks that a multiprocessor is to hold at once, whose warps hide each other's waiting; a kernel that would spill
# registers for it takes those of fewer blocks
FORWARD_BLOCKS, BACKWARD_BLOCKS, FEWEST_BLOCKS = 7, 5, 2


class Launch(NamedTuple):
    """A kernel for arguments of certain types, all tensors of at most `MOST_ITEMS` items or not.

    Attributes:
        description: The types.
        pack: Makes the block of parameters of such arguments; None of others.
        functions: What is loaded, by the number of the device.
    """

    description: tuple
    pack: Callable[..., array.array | None]
    functions: dict[int, Any]


class Kernel:
    """A body for one layout, specialised on the types of its arguments.

    Args:
        make_body: Makes the body from the `pygfuse.cuda.instructions.Instructions` of the layout.
        layout: Which lane holds what.
        name: What it computes, for messages.
        key: What, beside the types of arguments, decides the machine code.
        fuses_products: Whether a product and a sum may become one instruction.
        resident_blocks: Blocks that a multiprocessor holds at once, if no register is spilled for it.
    """

    block = BLOCK

    def __init__(
        self,
        make_body: Callable[[Any], Callable],
        layout: Layout,
        name: str,
        key: tuple[str, ...],
        fuses_products: bool = True,
        resident_blocks: int = FEWEST_BLOCKS,
    ) -> None:
        self.make_body, self.layout, self.name = make_body, layout, name
        self.key = (*key, str(fuses_products))
        self.fuses_products, self.resident_blocks = fuses_products, resident_blocks
        # to be tried one after another: there are hardly ever more than two
        self._launches: tuple[Launch, ...] = ()
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
        launch, packed = self._packed(arguments)
        is_there = torch.cuda.current_device() == device.index
        with contextlib.nullcontext() if is_there else torch.cuda.device(device):
            function = launch.functions.get(device.index) or self._load(device, launch)
            stream = torch.cuda.current_stream(device).cuda_stream
            driver.launch(function, (blocks, tiles), self.block, packed, stream)

    def _packed(self, arguments: tuple) -> tuple[Launch, array.array]:
        """The launch for arguments of these types, and the block of parameters."""
        for launch in self._launches:
            packed = launch.pack(*arguments)
            if packed is not None:
                return launch, packed
        with self._lock:
            wide = is_wide(arguments)
            description = tuple(describe(argument, wide) for argument in arguments)
            pack = packer(kinds_of(arguments), form=WIDE_PARAMETERS if wide else PARAMETERS)
            launch = next((one for one in self._launches if one.description == description), None)
            if launch is None:
                launch = Launch(description, pack, {})
                self._launches = (launch, *self._launches)
        return launch, pack(*arguments)

    def _load(self, device: torch.device, launch: Launch) -> Any:
        from pygfuse.cuda import driver

        with self._lock:
            found = launch.functions.get(device.index)
            if found is None:
                architecture = torch.cuda.get_device_capability(device)
                found = driver.load(*self.code(launch.description, architecture, self.resident_blocks))
                if self.resident_blocks > FEWEST_BLOCKS and driver.spilled_bytes(found):
                    found = driver.load(*self.code(launch.description, architecture, FEWEST_BLOCKS))
                launch.functions[device.index] = found
            return found

    @interruptible()
    def code(
        self, description: tuple, architecture: tuple[int, int], resident_blocks: int = FEWEST_BLOCKS
    ) -> tuple[bytes, str]:
        """The machine code for arguments of these types, from disk if it was compiled before, and the kernel's name."""
        version = importlib.metadata.version('numba-cuda')
        facts = (repr(architecture), version, repr(self.layout), repr(description), str(resident_blocks))
        path = cache.entry_path('pygfuse.cuda.kernels', self.name, *facts, *self.key)

        def compile_new() -> MachineCode:
            from pygfuse.cuda import compilation, toolkit

            toolkit.check()
            _log.info('compiling %s', self.name)
            text, name = self.ptx(description, architecture, resident_blocks)
            stored = MachineCode((name,), (compilation.to_machine_code(text, architecture),))
            cache.store(path, stored)
            return stored

        stored = compile_once(path, lambda: cache.load(path), compile_new)
        return stored.pieces[0], stored.names[0]

    def ptx(
        self, description: tuple, architecture: tuple[int, int], resident_blocks: int = FEWEST_BLOCKS
    ) -> tuple[str, str]:
        """The PTX for arguments of these types, and the kernel's name in it."""
        from pygfuse.cuda import compilation, instructions

        body = self.make_body(instructions.Instructions(self.layout))
        return compilation.to_ptx(body, description, architecture, BLOCK, resident_blocks, self.fuses_products)
