"""Launches that follow one another on the calling thread, as one call of a compiled function."""

from __future__ import annotations

import array
import functools
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types

from pygfuse.codegen.launch_lines import Entry
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.vectors.intrinsics import intrinsic
from pygfuse.cpu.vectors.memory import numbers_at

_WORD_BYTES = 8
# of a launch in the table: the address of its function, where its block begins, and the number of its own addresses,
# of each of which follow the places of both words
_WORDS = 3
# a block's counter and number of parts, the address and length of the table, and the block's own address
_HEAD, _PLACE_OF_ITSELF = 5, 4


class InTurn:
    """Launches whose blocks lie one behind another in one block, behind the words of `head`.

    Args:
        entries: The launches.

    Attributes:
        head, alone: As of `pygfuse.codegen.launch_lines.InTurn`.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._launches = [entry.launch for entry in entries]
        self._addresses = [entry.addresses for entry in entries]
        self._ends, table, first = [], array.array('q'), _HEAD
        for entry in entries:
            table.extend((entry.launch.address, first, len(entry.addresses)))
            table.extend(first + place for pair in entry.addresses for place in pair)
            first += len(entry.words)
            self._ends.append(first)
        # written to no more
        self._table = table
        self.head = 0, 1, table.buffer_info()[0], len(entries), 0
        self.alone = _alone()

    def run(self, block: array.array, work: tuple[int, ...]) -> None:
        """Runs each launch by itself, on as many threads as it is worth."""
        first = _HEAD
        for launch, addresses, last, each in zip(self._launches, self._addresses, self._ends, work, strict=True):
            own = block[first:last]
            begin, _ = own.buffer_info()
            for place, of in addresses:
                own[place] = begin + _WORD_BYTES * of
            launch.run(own, each)
            block[first:last] = own
            first = last


class OnThreads:
    """A launch whose block is run by a number of threads.

    Args:
        launch: The launch.
        threads: Gives the number; None for the calling thread alone.

    Attributes:
        address, most: As of `pygfuse.codegen.launch_lines.Runnable`.
    """

    def __init__(self, launch: Launch, threads: Callable[[], int] | None = None) -> None:
        self._launch, self._threads = launch, threads
        self.address, self.most = launch.address, None if threads is None else 0

    def run(self, block: array.array, work: int) -> None:
        """Runs a block."""
        self._launch.run(block, 1 if self._threads is None else self._threads())


@intrinsic
def _call_at(function, address):
    """``call_at(function, address)``: calls the function at an address with the block at another."""

    def emit(context, builder, signature, arguments):
        word = ir.IntType(64).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [word])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [builder.inttoptr(arguments[1], word)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


_words_at = numbers_at(types.int64)


def _run_all(part, table, count, address):
    entries, words = _words_at(table), _words_at(address)
    i = 0
    for _ in range(count):
        for k in range(entries[i + 2]):
            words[entries[i + _WORDS + 2 * k]] = address + _WORD_BYTES * entries[i + _WORDS + 1 + 2 * k]
        _call_at(entries[i], address + _WORD_BYTES * entries[i + 1])
        i += _WORDS + 2 * entries[i + 2]


@functools.cache
def _alone() -> Callable[[array.array], None]:
    launch = Kernel(_run_all, 'launches in turn').untested((0, 0, 0))

    def alone(block: array.array) -> None:
        block[_PLACE_OF_ITSELF], _ = address, _ = block.buffer_info()
        launch.alone(address)

    return alone
