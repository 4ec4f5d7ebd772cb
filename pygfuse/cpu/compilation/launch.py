"""A call of a compiled kernel."""

from __future__ import annotations

import array
from collections.abc import Callable

from pygfuse.codegen.packing import Packed, kinds_of, packer
from pygfuse.cpu.compilation import team


class Launch:
    """A kernel compiled for arguments of certain types.

    Args:
        code: The address of the compiled function, and what keeps it in memory.
        pack: See `packer`.

    Attributes:
        address: Of the compiled function.
        alone: ``alone(address)``: runs the parts of a block at this address on the thread that calls.
    """

    __slots__ = ('_code', 'address', 'alone', 'pack')

    @staticmethod
    def of(code: tuple[int, object], arguments: tuple, tested: bool = True) -> Launch:
        """A kernel compiled for arguments of the types of these."""
        packed = tuple([i for i, argument in enumerate(arguments) if isinstance(argument, Packed)])
        return Launch(code, packer(kinds_of(arguments), packed, tested))

    def __init__(self, code: tuple[int, object], pack: Callable[..., array.array | None]) -> None:
        self._code, self.pack = code, pack
        self.address = code[0]
        self.alone = team.function_at(self.address)

    def run(self, block: array.array, threads: int) -> None:
        """Runs the parts of a block that `pack` made on so many threads, and waits for all."""
        if threads <= 1:
            self.alone(block.buffer_info()[0])
        else:
            team.run(self.address, block.buffer_info()[0], threads)
