"""An interpreter of PTX: runs compiled kernels on a machine without a GPU, their warps in random order.

Of the threads of a warp that wait at different instructions, those at the first go on: that brings them together after
branches. Which warps run, and for how long, is drawn anew again and again; one that waits for its block (``bar.sync``)
does not run. A shuffle or a barrier whose lanes are not together is an error, and so is what
`tests.support.device_memory` says of memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from pygfuse.codegen.packing import kinds_of, packer
from pygfuse.cuda import kernels
from pygfuse.cuda.arguments import PARAMETERS, describe
from pygfuse.cuda.kernel import Kernel
from tests.support.device_memory import DeviceMemory, SharedMemory
from tests.support.ptx import ARITHMETIC, COMPARISONS, INTEGRAL, REGISTERS, TYPES, UNORDERED, Program, number

WARP = 32
# runs of instructions without a branch, before other warps have their turn
LONGEST_BURST = 64


class Threads:
    """All threads of a grid.

    Args:
        program: The kernel.
        grid: Blocks in two directions.
        block: Threads of a block.
        parameters: 64-bit words.
        memory: What the kernel may touch.
        seed: Decides which warps run when.
    """

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int],
        block: int,
        parameters: Sequence[int],
        memory: DeviceMemory,
        seed: int = 0,
    ) -> None:
        self.program, self.memory, self.parameters = program, memory, parameters
        self.order = np.random.default_rng(seed)
        self.count = grid[0] * grid[1] * block
        thread = np.arange(self.count)
        which = thread // block
        self.special = {
            '%tid.x': thread % block, '%ntid.x': np.full(self.count, block),
            '%ctaid.x': which % grid[0], '%ctaid.y': which // grid[0],
            '%nctaid.x': np.full(self.count, grid[0]), '%laneid': thread % WARP,
        }  # fmt: skip
        self.shared = SharedMemory(program.shared_bytes, self.count // block, block)
        self.block, self.waits = block, np.zeros(self.count // WARP, dtype=np.bool_)
        self.registers: dict[str, np.ndarray] = {}
        self.at = np.zeros(self.count, dtype=np.int64)

    def run(self) -> None:
        end = len(self.program.instructions)
        with np.errstate(all='ignore'):
            while (unfinished := np.flatnonzero(self.at < end)).size:
                running = np.unique(unfinished // WARP)
                running = running[~self.waits[running]]
                assert len(running), 'a barrier that some warps of a block never reach'
                awake = self._woken(running)
                for _ in range(self.order.integers(1, LONGEST_BURST)):
                    awake = awake[~self.waits[awake // WARP]]
                    here = int(self.at[awake].min(initial=end))
                    if here == end:
                        break
                    self._run_block(here, awake[self.at[awake] == here])

    def _woken(self, warps: np.ndarray) -> np.ndarray:
        """The threads of some warps, at least one, taken at random."""
        chosen = warps[self.order.random(len(warps)) < self.order.random()]
        if not len(chosen):
            chosen = self.order.choice(warps, 1)
        return (chosen[:, None] * WARP + np.arange(WARP)).reshape(-1)

    def _run_block(self, at: int, active: np.ndarray) -> None:
        """Runs threads that are together up to a branch or a label where others may join them."""
        while True:
            predicate, opcode, operands = self.program.instructions[at]
            if opcode in ('bra', 'bra.uni'):
                taken = self._predicate(predicate, active)
                self.at[active] = np.where(taken, self.program.labels[operands[0]], at + 1)
                return
            if opcode == 'ret':
                taken = self._predicate(predicate, active)
                self.at[active] = np.where(taken, len(self.program.instructions), at + 1)
                return
            some = active if predicate is None else active[self._predicate(predicate, active)]
            if len(some):
                self._execute(opcode, operands, some)
            at += 1
            if at in self.program.joins or opcode == 'bar.sync':
                self.at[active] = at
                return

    def _predicate(self, predicate: str | None, active: np.ndarray) -> np.ndarray:
        if predicate is None:
            return np.ones(len(active), dtype=np.bool_)
        values = self.registers[predicate.lstrip('!')][active]
        return ~values if predicate.startswith('!') else values

    # Operands

    def read(self, operand: str, kind: type, some: np.ndarray) -> np.ndarray:
        """The value of a register or a number, its bits taken as `kind` (of narrower ones the low bits)."""
        if operand in self.special:
            return self.special[operand][some].astype(kind)
        if operand in self.program.shared:
            return np.full(len(some), self.program.shared[operand], dtype=kind)
        if not operand.startswith('%'):
            return np.full(len(some), number(operand, kind), dtype=kind)
        values = self.registers[operand][some]
        if values.dtype == kind:
            return values
        if values.dtype.itemsize == np.dtype(kind).itemsize:
            return values.view(kind)
        assert values.dtype.kind in 'ui', f'{operand} as {kind}'
        return values.astype(kind)

    def write(self, operand: str, values: np.ndarray, some: np.ndarray) -> None:
        if operand == '_':
            return
        kind = REGISTERS[re.match(r'%[a-z]+', operand).group()]
        if operand not in self.registers:
            self.registers[operand] = np.zeros(self.count, dtype=kind)
        if values.dtype != kind:
            same = values.dtype.itemsize == np.dtype(kind).itemsize
            values = np.ascontiguousarray(values).view(kind) if same else values.astype(kind)
        self.registers[operand][some] = values

    def _address(self, operand: str, some: np.ndarray) -> np.ndarray:
        base, _, offset = operand.strip('[]').partition('+')
        return self.read(base, np.uint64, some) + np.uint64(int(offset or 0) & (2**64 - 1))

    # Instructions

    def _execute(self, opcode: str, operands: list[str], some: np.ndarray) -> None:
        name, *flags = opcode.split('.')
        special = getattr(self, f'_{name}', None)
        if special is not None:
            special(flags, operands, some)
            return
        kind = TYPES[flags[-1]]
        target, *sources = operands
        self.write(target, ARITHMETIC[name](flags, *(self.read(source, kind, some) for source in sources)), some)

    def _ld(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        kind = TYPES[flags[-1]]
        if flags[0] == 'param':
            which = int(re.search(r'_param_(\d+)', operands[1]).group(1))
            self.write(operands[0], np.full(len(some), self.parameters[which], dtype=np.int64).view(kind), some)
            return
        targets = [target.strip() for target in operands[0].strip('{}').split(',')]
        address = self._address(operands[1], some)
        if flags[0] == 'shared':
            values = self.shared.load(address, kind, len(targets), some)
        else:
            values = self.memory.load(address, kind, len(targets), 'nc' in flags, some)
        for i, target in enumerate(targets):
            self.write(target, np.ascontiguousarray(values[:, i]), some)

    def _st(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        kind = TYPES[flags[-1]]
        sources = [source.strip() for source in operands[1].strip('{}').split(',')]
        values = np.stack([self.read(source, kind, some) for source in sources], axis=1)
        (self.shared if flags[0] == 'shared' else self.memory).store(self._address(operands[0], some), values, some)

    def _bar(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        """The warps of these threads wait until all warps of their block do."""
        assert (flags, operands) == (['sync'], ['0']), (flags, operands)
        warps, lanes = np.unique(some // WARP, return_counts=True)
        assert (lanes == WARP).all(), 'lanes that should wait together are not'
        self.waits[warps] = True
        by_block = self.waits.reshape(-1, self.block // WARP)
        arrived = by_block.all(axis=1)
        by_block[arrived] = False
        self.shared.ordered(np.flatnonzero(arrived))

    def _mov(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        target, source = operands
        kind = TYPES[flags[-1]]
        half = {np.uint32: np.uint16, np.uint64: np.uint32}.get(kind)
        if source.startswith('{'):
            parts = [self.read(part.strip(), half, some) for part in source.strip('{}').split(',')]
            self.write(target, np.ascontiguousarray(np.stack(parts, axis=1)).view(kind).reshape(-1), some)
        elif target.startswith('{'):
            parts = self.read(source, kind, some).view(half).reshape(-1, 2)
            for i, part in enumerate(target.strip('{}').split(',')):
                self.write(part.strip(), np.ascontiguousarray(parts[:, i]), some)
        else:
            self.write(target, self.read(source, kind, some), some)

    def _setp(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        assert len(flags) == 2, flags
        x, y = (self.read(operand, TYPES[flags[1]], some) for operand in operands[1:])
        unordered = np.isnan(x) | np.isnan(y) if flags[1].startswith('f') else False
        if flags[0] in ('nan', 'num'):
            result = unordered if flags[0] == 'nan' else ~unordered
        elif flags[0] in UNORDERED:
            result = COMPARISONS[UNORDERED[flags[0]]](x, y) | unordered
        else:
            result = COMPARISONS[flags[0]](x, y) & ~np.asarray(unordered, dtype=np.bool_)
        self.write(operands[0], result, some)

    def _selp(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        x, y = (self.read(operand, TYPES[flags[-1]], some) for operand in operands[1:3])
        self.write(operands[0], np.where(self.registers[operands[3]][some], x, y), some)

    def _cvt(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        to, source = TYPES[flags[-2]], TYPES[flags[-1]]
        values = self.read(operands[1], source, some)
        if 'sat' in flags:
            values = np.where(np.isnan(values), 0, np.clip(values, 0, 1)).astype(source)
        for flag in INTEGRAL.keys() & set(flags):
            assert np.dtype(to).kind == 'f', flags
            values = INTEGRAL[flag](values)
        self.write(operands[0], values.astype(to), some)

    def _bfi(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        kind = TYPES[flags[-1]]
        low, into = (self.read(operand, kind, some) for operand in operands[1:3])
        position, length = int(operands[3]), int(operands[4])
        mask = kind((1 << length) - 1)
        self.write(operands[0], (into & ~(mask << kind(position))) | ((low & mask) << kind(position)), some)

    def _shfl(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        assert flags == ['sync', 'bfly', 'b32'], flags
        target, source, distance, _, members = operands
        together = np.zeros(self.count, dtype=np.bool_)
        together[some] = True
        bits = together.reshape(-1, WARP) @ (np.uint64(1) << np.arange(WARP, dtype=np.uint64))
        mask = self.read(members, np.uint32, some).astype(np.uint64)
        assert ((bits[some // WARP] & mask) == mask).all(), 'lanes that should shuffle together are not'
        partner = some ^ self.read(distance, np.uint32, some).astype(np.int64)
        inside = (mask >> (partner % WARP).astype(np.uint64)) & np.uint64(1)
        assert (inside == 1).all(), 'a shuffle from a lane that takes no part'
        values = self.registers[source]
        self.write(target.split('|')[0], values[partner], some)


def forget_kernels() -> None:
    """Has kernels made anew."""
    for value in vars(kernels).values():
        if hasattr(value, 'cache_clear'):
            value.cache_clear()


def leaves(argument: Any) -> Iterator[Any]:
    """The tensors and numbers of an argument, in order."""
    if isinstance(argument, tuple):
        for item in argument:
            yield from leaves(item)
    elif argument is not None:
        yield argument


def interpret(
    program: Program,
    grid: tuple[int, int],
    block: int,
    parameters: Sequence[int],
    arguments: Sequence[Any],
    team: int,
    seed: int = 0,
) -> DeviceMemory:
    """Runs a launch on tensors of the CPU and returns what it has seen of their memory.

    Args:
        program: The kernel.
        grid: Blocks in two directions.
        block: Threads of a block.
        parameters: 64-bit words.
        arguments: The tensors and numbers that these stand for.
        team: Threads that walk together; those of one warp do so in step.
        seed: Decides the order of warps.
    """
    assert len(parameters) == len(arguments) == program.parameters, 'as many parameters as the kernel takes'
    assert block == program.threads, 'as many threads as the kernel was compiled for'
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    memory, addresses = DeviceMemory(tensors, min(team, WARP)), list(parameters)
    found = itertools.count()
    for i, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            assert parameters[i] == argument.data_ptr(), 'the address of the tensor'
            addresses[i] = memory.address(next(found))
    Threads(program, grid, block, addresses, memory, seed).run()
    memory.finish()
    return memory


_programs: dict[tuple, Program] = {}


class InterpretedKernel(Kernel):
    """Compiles as for a GPU, once for all kernels of one key, and interprets the PTX on tensors of the CPU."""

    # each launch has an order of its own, the same in every run of a test
    seeds = itertools.count()

    def _program(self, description: tuple) -> Program:
        key = (self.key, self.layout, description)
        if key not in _programs:
            _programs[key] = Program(self.ptx(description, (9, 0))[0])
        return _programs[key]

    def __call__(self, device: torch.device, blocks: int, tiles: int, *arguments: Any) -> None:
        program, team = self._program(tuple(describe(argument) for argument in arguments)), self.layout.team
        given, seed = [*leaves(arguments)], next(InterpretedKernel.seeds)
        packed = packer(kinds_of(arguments), form=PARAMETERS)(*arguments)[len(PARAMETERS.head) :]
        interpret(program, (blocks, tiles), self.block, packed.tolist(), given, team, seed)
