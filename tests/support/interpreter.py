"""An interpreter of PTX: runs compiled kernels on a machine without a GPU, every thread of the grid in step.

It knows the instructions that the walks compile to and no others. Memory is that of tensors of the CPU; an access
outside of them, one that is not aligned to its width, or a shuffle whose lanes are not together is an error. Of the
threads that wait at different instructions, those at the first go on: that brings them together after branches.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pygfuse.cuda.arguments import describe, words
from pygfuse.cuda.kernel import Kernel

WARP = 32
REGISTERS = {
    '%temp': np.uint32,  # in doubles taken apart
    '%p': np.bool_,
    '%rs': np.uint16,
    '%h': np.uint16,
    '%rd': np.uint64,
    '%r': np.uint32,
    '%fd': np.float64,
    '%f': np.float32,
}
TYPES = {
    'u8': np.uint8, 'u16': np.uint16, 'u32': np.uint32, 'u64': np.uint64, 's16': np.int16, 's32': np.int32,
    's64': np.int64, 'b16': np.uint16, 'b32': np.uint32, 'b64': np.uint64, 'f16': np.float16, 'f32': np.float32,
    'f64': np.float64, 'pred': np.bool_,
}  # fmt: skip
COMPARISONS = {
    'eq': np.equal, 'ne': np.not_equal, 'lt': np.less, 'le': np.less_equal, 'gt': np.greater, 'ge': np.greater_equal,
    'lo': np.less, 'ls': np.less_equal, 'hi': np.greater, 'hs': np.greater_equal,
}  # fmt: skip
# what a comparison becomes if it is to be true of NaN
UNORDERED = {'equ': 'eq', 'neu': 'ne', 'ltu': 'lt', 'leu': 'le', 'gtu': 'gt', 'geu': 'ge'}


class Memory:
    """The memory of some tensors, by address."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        found = {tensor.data_ptr(): tensor for tensor in tensors if tensor.numel()}
        self.starts = np.array(sorted(found), dtype=np.uint64)
        flat = [found[int(start)].detach().reshape(-1).view(torch.uint8).numpy() for start in self.starts]
        self.parts = flat
        self.sizes = np.array([len(part) for part in flat], dtype=np.uint64)

    def _places(self, address: np.ndarray, size: int) -> np.ndarray:
        """The part that holds each address."""
        part = np.searchsorted(self.starts, address, side='right') - 1
        assert (part >= 0).all(), 'an access below all tensors'
        offset = address - self.starts[part]
        assert (offset + np.uint64(size) <= self.sizes[part]).all(), 'an access outside of all tensors'
        return part

    def load(self, address: np.ndarray, kind: type, count: int) -> np.ndarray:
        size = np.dtype(kind).itemsize * count
        assert (address % np.uint64(size) == 0).all(), 'a load that is not aligned'
        result = np.empty((len(address), count), dtype=kind)
        part = self._places(address, size)
        for i in np.unique(part):
            mine = part == i
            first = ((address[mine] - self.starts[i]) // np.dtype(kind).itemsize).astype(np.int64)
            values = self.parts[i][: len(self.parts[i]) // np.dtype(kind).itemsize * np.dtype(kind).itemsize].view(kind)
            result[mine] = values[first[:, None] + np.arange(count)]
        return result

    def store(self, address: np.ndarray, values: np.ndarray) -> None:
        size = values.dtype.itemsize * values.shape[1]
        assert (address % np.uint64(size) == 0).all(), 'a store that is not aligned'
        part = self._places(address, size)
        for i in np.unique(part):
            mine = part == i
            first = ((address[mine] - self.starts[i]) // values.dtype.itemsize).astype(np.int64)
            whole = self.parts[i][: len(self.parts[i]) // values.dtype.itemsize * values.dtype.itemsize]
            whole.view(values.dtype)[first[:, None] + np.arange(values.shape[1])] = values[mine]


class Program:
    """The instructions of a kernel, as ``(predicate, opcode, operands)``, and where its labels are."""

    def __init__(self, text: str) -> None:
        body = text[text.index('{', text.index('.entry')) + 1 : text.rindex('}')]
        self.instructions: list[tuple[str | None, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in body.split('\n'):
            line = line.split('//')[0].strip()
            if re.fullmatch(r'[$\w]+:', line):
                self.labels[line[:-1]] = len(self.instructions)
            elif line and not line.startswith('.') and line not in '{}':
                self.instructions.append(_parsed(line))
        self.joins = {*self.labels.values()}


def _parsed(line: str) -> tuple[str | None, str, list[str]]:
    match = re.fullmatch(r'(?:@(!?%p\d+)\s+)?([a-z0-9_.]+)\s*(.*?)\s*;', line)
    assert match, f'not an instruction: {line}'
    predicate, opcode, rest = match.groups()
    operands = [operand.strip() for operand in re.findall(r'\{[^}]*\}|\[[^\]]*\]|[^,\s]+', rest)]
    return predicate, opcode, operands


class Threads:
    """All threads of a grid.

    Args:
        program: The kernel.
        grid: Blocks in two directions.
        block: Threads of a block.
        parameters: 64-bit words.
        memory: What the kernel may touch.
    """

    def __init__(self, program: Program, grid: tuple[int, int], block: int, parameters: list[int], memory: Memory):
        self.program, self.memory, self.parameters = program, memory, parameters
        self.count = grid[0] * grid[1] * block
        thread = np.arange(self.count)
        which = thread // block
        self.special = {
            '%tid.x': thread % block, '%ntid.x': np.full(self.count, block),
            '%ctaid.x': which % grid[0], '%ctaid.y': which // grid[0],
            '%nctaid.x': np.full(self.count, grid[0]), '%laneid': thread % WARP,
        }  # fmt: skip
        self.registers: dict[str, np.ndarray] = {}
        self.at = np.zeros(self.count, dtype=np.int64)

    def run(self) -> None:
        end = len(self.program.instructions)
        with np.errstate(all='ignore'):
            while (here := int(self.at.min())) < end:
                active = np.flatnonzero(self.at == here)
                self._run_block(here, active)

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
            if at in self.program.joins:
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
        if not operand.startswith('%'):
            return np.full(len(some), _number(operand, kind), dtype=kind)
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
        values = self.memory.load(self._address(operands[1], some), kind, len(targets))
        for i, target in enumerate(targets):
            self.write(target, np.ascontiguousarray(values[:, i]), some)

    def _st(self, flags: list[str], operands: list[str], some: np.ndarray) -> None:
        kind = TYPES[flags[-1]]
        sources = [source.strip() for source in operands[1].strip('{}').split(',')]
        values = np.stack([self.read(source, kind, some) for source in sources], axis=1)
        self.memory.store(self._address(operands[0], some), values)

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
        elif any(flag in flags for flag in ('rni', 'rzi', 'rmi', 'rpi')):
            raise NotImplementedError(flags)
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


def _number(operand: str, kind: type) -> Any:
    if operand.startswith('0f'):
        return np.array(int(operand[2:], 16), dtype=np.uint32).view(np.float32).astype(kind)
    if operand.startswith('0d'):
        return np.array(int(operand[2:], 16), dtype=np.uint64).view(np.float64).astype(kind)
    if kind == np.bool_:
        return bool(int(operand))
    size = np.dtype(kind).itemsize
    return np.array(int(operand, 0) & ((1 << 8 * size) - 1), dtype=f'u{size}').view(kind)


def _rounded(flags: list[str], exact: np.ndarray, kind: np.dtype) -> np.ndarray:
    """A float64 result in its type, rounded as the flags say."""
    result = exact.astype(kind)
    if 'rm' in flags:
        return np.where(result.astype(np.float64) > exact, np.nextafter(result, kind.type(-np.inf)), result)
    if 'rz' in flags:
        beyond = np.abs(result.astype(np.float64)) > np.abs(exact)
        return np.where(beyond, np.nextafter(result, kind.type(0)), result)
    return result


def _floating(function: Callable) -> Callable:
    """Computes float32 in float64 and rounds once, so that a multiply-add is fused."""

    @functools.wraps(function)
    def computed(flags: list[str], *values: np.ndarray) -> np.ndarray:
        kind = values[0].dtype
        if kind.kind != 'f':
            return function(*values)
        return _rounded(flags, function(*(value.astype(np.float64) for value in values)), kind)

    return computed


def _multiplied(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if 'wide' in flags:
        wider = {np.dtype(np.uint32): np.uint64, np.dtype(np.int32): np.int64}[x.dtype]
        return x.astype(wider) * y.astype(wider)
    return _floating(lambda a, b: a * b)(flags, x, y)


def _divided(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == 'f':
        return _floating(lambda a, b: a / b)(flags, x, y)
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = np.abs(x) // np.abs(safe)
    return np.where((x < 0) != (safe < 0), -quotient, quotient).astype(x.dtype) if x.dtype.kind == 'i' else x // safe


def _shifted(left: bool) -> Callable:
    def shift(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = y.astype(np.uint64).astype(x.dtype)
        return x << distance if left else x >> distance

    return shift


def _plain(function: Callable) -> Callable:
    return lambda flags, *values: function(*values)


ARITHMETIC: dict[str, Callable] = {
    'add': _floating(lambda x, y: x + y),
    'sub': _floating(lambda x, y: x - y),
    'mul': _multiplied,
    'mad': _floating(lambda x, y, z: x * y + z),
    'fma': _floating(lambda x, y, z: x * y + z),
    'div': _divided,
    'rcp': _floating(lambda x: 1.0 / x),
    'sqrt': _floating(np.sqrt),
    'ex2': _floating(np.exp2),
    'lg2': _floating(np.log2),
    'neg': _plain(lambda x: -x if x.dtype.kind != 'u' else (~x + x.dtype.type(1))),
    'abs': _plain(np.abs),
    'min': _plain(np.minimum),
    'max': _plain(np.maximum),
    'copysign': _plain(lambda sign, x: np.copysign(x, sign)),
    'and': _plain(lambda x, y: x & y),
    'or': _plain(lambda x, y: x | y),
    'xor': _plain(lambda x, y: x ^ y),
    'not': _plain(lambda x: ~x),
    'shl': _shifted(True),
    'shr': _shifted(False),
}


def _tensors(argument: Any) -> list[torch.Tensor]:
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [found for item in argument for found in _tensors(item)] if isinstance(argument, tuple) else []


_programs: dict[tuple, Program] = {}


class InterpretedKernel(Kernel):
    """Compiles as for a GPU, once for all kernels of one key, and interprets the PTX on tensors of the CPU."""

    def _program(self, description: tuple) -> Program:
        key = (self.key, self.layout, description)
        if key not in _programs:
            _programs[key] = Program(self.ptx(description, (9, 0))[0])
        return _programs[key]

    def __call__(self, device: torch.device, blocks: int, tiles: int, *arguments: Any) -> None:
        program = self._program(tuple(describe(argument) for argument in arguments))
        Threads(program, (blocks, tiles), self.block, [*words(arguments)], Memory(_tensors(arguments))).run()
