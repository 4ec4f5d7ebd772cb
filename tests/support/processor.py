"""Kernels as a GPU would get them, on this machine's processor: PTX translated, compiled and run.

It walks 700,000 edges while `tests.support.interpreter` walks dozens, and sees less: neither races, nor loads of what
nobody has written, nor accesses beyond the end of a tensor that end in another.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.support.coroutine import SLOT
from tests.support.device_memory import Fault, held
from tests.support.driver import StandIn
from tests.support.ptx import Program
from tests.support.translation import Translation
from tests.support.warps import APART, NO_PART, STRAY, compiled, runner, word_at

_PROBLEMS = {
    APART: 'lanes that should shuffle or wait together are not',
    NO_PART: 'a shuffle from a lane that takes no part',
}


class CompiledProgram:
    """A kernel as machine code of this processor.

    Args:
        program: The kernel.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        translation = Translation(program)
        self._engine, self._slots = compiled(translation.text), translation.slots
        self._kernel = self._engine.get_function_address('kernel')

    def run(
        self,
        grid: tuple[int, int],
        block: int,
        parameters: Sequence[int],
        tensors: Sequence[torch.Tensor],
        seed: int = 0,
    ) -> None:
        """Runs a launch on tensors of the CPU.

        Args:
            grid: Blocks in two directions.
            block: Threads of a block.
            parameters: 64-bit words.
            tensors: Those whose addresses are among the parameters: what the kernel may touch.
            seed: Decides the order of blocks and of threads.
        """
        assert len(parameters) == self.program.parameters, 'as many parameters as the kernel takes'
        assert block == self.program.threads, 'as many threads as the kernel was compiled for'
        words, intervals = np.array(parameters, dtype=np.int64), np.array(list(map(_interval, tensors)), dtype=np.int64)
        fault = self._word('fault')
        fault[0] = 0
        self._word('tensors')[0], self._word('tensor_count')[0] = intervals.ctypes.data, len(tensors)
        ctypes.memset(self._engine.get_global_value_address('slots'), 0, SLOT * self._slots)
        blocks, order = grid[0] * grid[1], np.random.default_rng(seed)
        first, step, turn = int(order.integers(blocks)), _coprime(blocks, order), int(order.integers(block))
        sizes = grid[0], blocks, block, self.program.shared_bytes
        found = runner()(self._kernel, words.ctypes.data, fault, *sizes, first, step, turn)
        if found == STRAY:
            at = ' '.join(map(str, self.program.instructions[int(fault[0]) - 1]))
            raise Fault(f'an address outside of all tensors, or not aligned: {at}')
        if found:
            raise AssertionError(_PROBLEMS[found])

    def _word(self, name: str) -> np.ndarray:
        return word_at(self._engine.get_global_value_address(name))


@functools.lru_cache(maxsize=512)
def compiled_program(text: str) -> CompiledProgram:
    """The kernel of a PTX, compiled once."""
    return CompiledProgram(Program(text))


class Processor(StandIn):
    """A stand-in for the CUDA driver that has launches run by this machine's processor."""

    def _run(
        self, program: Program, grid: tuple[int, int], words: list[int], given: list[Any], team: int
    ) -> dict[int, int]:
        """Runs a launch; what it loads is not counted."""
        tensors = [argument for argument in given if isinstance(argument, torch.Tensor)]
        compiled_program(program.text).run(grid, program.threads, words, tensors, seed=len(self.launches))
        return {}


def _interval(tensor: torch.Tensor) -> tuple[int, int]:
    """The address of a tensor and its bytes."""
    there: Any = held(tensor)
    if not there.is_contiguous():
        raise Fault(f'a tensor that is not contiguous: {tuple(there.shape)}, strides {there.stride()}')
    return there.data_ptr(), there.numel() * there.element_size()


def _coprime(count: int, order: np.random.Generator) -> int:
    """A step that visits each of so many numbers once."""
    while True:
        step = int(order.integers(1, count + 1))
        if math.gcd(step, count) == 1:
            return step
