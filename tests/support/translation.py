"""PTX as LLVM's text: each kernel a coroutine that a thread runs on a CPU, from one shuffle to the next.

A shuffle leaves what it gives in four words of the thread's own, and suspends; `tests.support.warps` resumes the thread
once all that it shuffles with are there. So does a barrier, with which nobody shuffles. An address of global memory is
looked up among the launch's tensors before anything is loaded or stored. Instructions mean what they do in
`tests.support.ptx`; what is rounded in one direction is computed in float64 first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tests.support.coroutine import NOBODY, around
from tests.support.ptx import REGISTERS, TYPES, UNORDERED, Program, number

LLVM = {
    np.bool_: 'i1', np.uint8: 'i8', np.int16: 'i16', np.uint16: 'i16', np.int32: 'i32', np.uint32: 'i32',
    np.int64: 'i64', np.uint64: 'i64', np.float16: 'half', np.float32: 'float', np.float64: 'double',
}  # fmt: skip
SPECIAL = {
    '%tid.x': '%thread', '%ntid.x': '%threads', '%ctaid.x': '%block_x', '%ctaid.y': '%block_y',
    '%nctaid.x': '%blocks_x', '%laneid': '%lane',
}  # fmt: skip
# what does not change what an instruction computes here: approximations are exact, small numbers are kept
_MEANINGLESS = {'rn', 'approx', 'ftz', 'lo'}
_OF_INTEGERS = {'add': 'add', 'sub': 'sub', 'mul': 'mul', 'and': 'and', 'or': 'or', 'xor': 'xor'}
_OF_FLOATS = {'add': 'fadd', 'sub': 'fsub', 'mul': 'fmul', 'div': 'fdiv'}
_FUNCTIONS = {'sqrt': 'sqrt', 'ex2': 'exp2', 'lg2': 'log2', 'abs': 'fabs', 'min': 'minnum', 'max': 'maxnum'}
_INTEGRAL = {'rni': 'rint', 'rzi': 'trunc', 'rmi': 'floor', 'rpi': 'ceil'}
_DIRECTED = {'rm': 'rounded_down', 'rz': 'rounded_to_zero'}
_UNSIGNED = {'lo': 'ult', 'ls': 'ule', 'hi': 'ugt', 'hs': 'uge'}


class Translation:
    """LLVM's text of a program.

    Args:
        program: The kernel.

    Attributes:
        text: A module with ``kernel`` and what `tests.support.coroutine` says.
        slots: How many instructions load or store.
    """

    def __init__(self, program: Program) -> None:
        self._lines: list[str] = []
        self._declared, self._used = {'declare double @llvm.fabs.f64(double)'}, set[str]()
        self._values = self.slots = 0
        self._end = len(program.instructions)
        self._labels, self._shared = program.labels, program.shared
        for at, instruction in enumerate(program.instructions):
            self._translate(at, *instruction)
        self._lines += [f'at{self._end}:', '  br label %finish']
        body = '\n'.join(self._lines) + '\n'
        self.text = around(self.slots, self._registers(), body) + '\n'.join(sorted(self._declared)) + '\n'

    def _registers(self) -> str:
        """Memory for each register, zero at first: LLVM makes values of it."""
        lines = []
        for name in sorted(self._used):
            kind = LLVM[_kind_of(name)]
            lines.append(f'  {name} = alloca {kind}\n  store {kind} zeroinitializer, ptr {name}\n')
        return ''.join(lines)

    def _emit(self, text: str) -> str:
        """Writes an instruction that has a value, and names it."""
        self._values += 1
        self._lines.append(f'  %v{self._values} = {text}')
        return f'%v{self._values}'

    def _call(self, function: str, kind: str, *values: tuple[str, str]) -> str:
        """Calls one of LLVM's functions on pairs of a type and a value."""
        types = ', '.join(pair[0] for pair in values)
        self._declared.add(f'declare {kind} @llvm.{function}({types})')
        return self._emit(f'call {kind} @llvm.{function}({", ".join(map(" ".join, values))})')

    def _translate(self, at: int, predicate: str | None, opcode: str, operands: Sequence[str]) -> None:
        """One instruction, in a block of its own from which the next one is reached."""
        self._lines.append(f'at{at}:')
        after = f'label %at{at + 1}'
        if opcode in ('bra', 'bra.uni', 'ret'):
            to = f'label %at{self._end if opcode == "ret" else self._labels[operands[0]]}'
            self._lines.append(f'  br {to}' if predicate is None else f'  br i1 {self._is(predicate)}, {to}, {after}')
            return
        if predicate is not None:
            self._lines += [f'  br i1 {self._is(predicate)}, label %if{at}, {after}', f'if{at}:']
        name, *flags = opcode.split('.')
        special = getattr(self, f'_{name}', None)
        if special is not None:
            special(at, flags, operands)
        else:
            kind = TYPES[flags[-1]]
            target, *sources = operands
            values = [self._read(source, kind) for source in sources]
            self._write(target, *self._computed(name, flags, kind, values))
        self._lines.append(f'  br {after}')

    # Operands

    def _is(self, predicate: str) -> str:
        value = self._read(predicate.lstrip('!'), np.bool_)
        return self._emit(f'xor i1 {value}, true') if predicate.startswith('!') else value

    def _read(self, operand: str, kind: type) -> str:
        """The value of a register or a number, its bits taken as `kind` (of narrower ones the low bits)."""
        if operand in SPECIAL:
            return self._as(SPECIAL[operand], np.uint32, kind)
        if operand in self._shared:
            return str(self._shared[operand])
        if operand.startswith('%'):
            stored = self._stored(operand)
            return self._as(self._emit(f'load {LLVM[stored]}, ptr {operand}'), stored, kind)
        value = number(operand, kind)
        if np.dtype(kind).kind == 'f':
            size = np.dtype(kind).itemsize
            return f'bitcast (i{8 * size} {int(value.view(f"u{size}"))} to {LLVM[kind]})'
        return str(int(value))

    def _write(self, operand: str, value: str, kind: type) -> None:
        if operand != '_':
            stored = self._stored(operand)
            self._lines.append(f'  store {LLVM[stored]} {self._as(value, kind, stored)}, ptr {operand}')

    def _stored(self, register: str) -> type:
        self._used.add(register)
        return _kind_of(register)

    def _as(self, value: str, kind: type, to: type) -> str:
        """The bits of a value as another type; of integers the low bits, or as many more as their sign says."""
        before, after = LLVM[kind], LLVM[to]
        if before == after:
            return value
        sizes = _bits(kind), _bits(to)
        if sizes[0] == sizes[1]:
            return self._emit(f'bitcast {before} {value} to {after}')
        assert np.dtype(kind).kind in 'ui', f'{before} as {after}'
        if np.dtype(to).kind == 'f':
            return self._as(self._as(value, kind, _WORDS[sizes[1]]), _WORDS[sizes[1]], to)
        longer = 'sext' if np.dtype(kind).kind == 'i' else 'zext'
        return self._emit(f'{longer if sizes[1] > sizes[0] else "trunc"} {before} {value} to {after}')

    # Instructions

    def _computed(self, name: str, flags: list[str], kind: type, values: list[str]) -> tuple[str, type]:
        """What arithmetic gives, and its type."""
        if name == 'mul' and 'wide' in flags:
            wider = {np.uint32: np.uint64, np.int32: np.int64}[kind]
            return self._emit('mul i64 {}, {}'.format(*(self._as(value, kind, wider) for value in values))), wider
        rounding = _DIRECTED.keys() & set(flags)
        assert {*flags[:-1]} <= _MEANINGLESS | rounding, f'{name}.{".".join(flags)}'
        if rounding:
            assert kind is np.float32, flags
            exact = self._floating(name, np.float64, [self._emit(f'fpext float {value} to double') for value in values])
            return self._emit(f'call float @{_DIRECTED[rounding.pop()]}(double {exact})'), kind
        return (self._floating if np.dtype(kind).kind == 'f' else self._integer)(name, kind, values), kind

    def _floating(self, name: str, kind: type, values: list[str]) -> str:
        type_, function = LLVM[kind], f'f{_bits(kind)}'
        given = [(type_, value) for value in values]
        if name in _OF_FLOATS:
            return self._emit(f'{_OF_FLOATS[name]} {type_} {values[0]}, {values[1]}')
        if name in _FUNCTIONS:
            return self._call(f'{_FUNCTIONS[name]}.{function}', type_, *given)
        if name in ('fma', 'mad', 'fms', 'fnma'):
            negated = {'fms': 2, 'fnma': 0}.get(name)
            if negated is not None:
                given[negated] = type_, self._emit(f'fneg {type_} {values[negated]}')
            return self._call(f'fma.{function}', type_, *given)
        if name == 'copysign':
            return self._call(f'copysign.{function}', type_, *given[::-1])
        if name == 'rcp':
            return self._emit(f'fdiv {type_} 1.0, {values[0]}')
        assert name == 'neg', name
        return self._emit(f'fneg {type_} {values[0]}')

    def _integer(self, name: str, kind: type, values: list[str]) -> str:
        type_, signed = LLVM[kind], np.dtype(kind).kind == 'i'
        if name in _OF_INTEGERS:
            return self._emit(f'{_OF_INTEGERS[name]} {type_} {values[0]}, {values[1]}')
        if name in ('min', 'max'):
            return self._call(f'{"s" if signed else "u"}{name}.{type_}', type_, *((type_, value) for value in values))
        if name == 'mad':
            return self._emit(f'add {type_} {self._integer("mul", kind, values[:2])}, {values[2]}')
        if name == 'div':
            is_zero = self._emit(f'icmp eq {type_} {values[1]}, 0')
            divisor = self._emit(f'select i1 {is_zero}, {type_} 1, {type_} {values[1]}')
            return self._emit(f'{"s" if signed else "u"}div {type_} {values[0]}, {divisor}')
        if name in ('shl', 'shr'):
            return self._shifted(name, kind, *values)
        if name == 'abs':
            return self._call(f'abs.{type_}', type_, (type_, values[0]), ('i1', 'false'))
        assert name in ('neg', 'not'), name
        return self._emit(f'{"sub" if name == "neg" else "xor"} {type_} {0 if name == "neg" else -1}, {values[0]}')

    def _shifted(self, name: str, kind: type, value: str, distance: str) -> str:
        """A shift, of which all that is as far as the word is long shifts everything out."""
        type_, most = LLVM[kind], _bits(kind) - 1
        within = self._call(f'umin.{type_}', type_, (type_, distance), (type_, str(most)))
        if name == 'shr' and np.dtype(kind).kind == 'i':
            return self._emit(f'ashr {type_} {value}, {within}')
        word = 'shl' if name == 'shl' else 'lshr'
        moved, beyond = (
            self._emit(f'{word} {type_} {value}, {within}'),
            self._emit(f'icmp ugt {type_} {distance}, {most}'),
        )
        return self._emit(f'select i1 {beyond}, {type_} 0, {type_} {moved}')

    def _pointer(self, at: int, space: str, operand: str, size: int) -> str:
        """The address of an operand; a thread that has none there in a tensor ends."""
        base, _, offset = operand.strip('[]').partition('+')
        address = self._emit(f'add i64 {self._read(base, np.uint64)}, {int(offset or 0)}')
        if space == 'shared':
            return self._emit(f'getelementptr i8, ptr %shared, i64 {address}')
        assert space == 'global', space
        slot = f'ptr getelementptr ([2 x i64], ptr @slots, i64 {self.slots})'
        self.slots += 1
        found = self._emit(f'call i1 @found(i64 {address}, i64 {size}, {slot}, i64 {at + 1})')
        self._lines += [f'  br i1 {found}, label %there{at}, label %finish', f'there{at}:']
        return self._emit(f'inttoptr i64 {address} to ptr')

    def _ld(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        kind = TYPES[flags[-1]]
        if flags[0] == 'param':
            which = int(re.search(r'_param_(\d+)', operands[1]).group(1))
            place = self._emit(f'getelementptr i64, ptr %parameters, i64 {which}')
            self._write(operands[0], self._emit(f'load {LLVM[kind]}, ptr {place}'), kind)
            return
        targets = _listed(operands[0])
        pointer = self._pointer(at, flags[0], operands[1], np.dtype(kind).itemsize * len(targets))
        for i, target in enumerate(targets):
            place = self._emit(f'getelementptr {LLVM[kind]}, ptr {pointer}, i64 {i}')
            self._write(target, self._emit(f'load {LLVM[kind]}, ptr {place}'), kind)

    def _st(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        kind, sources = TYPES[flags[-1]], _listed(operands[1])
        values = [self._read(source, kind) for source in sources]
        pointer = self._pointer(at, flags[0], operands[0], np.dtype(kind).itemsize * len(sources))
        for i, value in enumerate(values):
            place = self._emit(f'getelementptr {LLVM[kind]}, ptr {pointer}, i64 {i}')
            self._lines.append(f'  store {LLVM[kind]} {value}, ptr {place}')

    def _mov(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        target, source = operands
        kind = TYPES[flags[-1]]
        if not (source + target).count('{'):
            self._write(target, self._read(source, kind), kind)
            return
        half = {np.uint32: np.uint16, np.uint64: np.uint32}[kind]
        type_, bits = LLVM[kind], _bits(half)
        if source.startswith('{'):
            low, high = (self._as(self._read(part, half), half, kind) for part in _listed(source))
            self._write(target, self._emit(f'or {type_} {low}, {self._emit(f"shl {type_} {high}, {bits}")}'), kind)
            return
        value = self._read(source, kind)
        for part, distance in zip(_listed(target), (0, bits), strict=True):
            self._write(part, self._as(self._emit(f'lshr {type_} {value}, {distance}'), kind, half), half)

    def _setp(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        comparison, kind = flags[0], TYPES[flags[1]]
        x, y = (self._read(operand, kind) for operand in operands[1:])
        if np.dtype(kind).kind == 'f':
            ordered = {'nan': 'uno', 'num': 'ord'}.get(comparison, f'o{comparison}')
            word = f'fcmp u{UNORDERED[comparison]}' if comparison in UNORDERED else f'fcmp {ordered}'
        elif comparison in ('eq', 'ne'):
            word = f'icmp {comparison}'
        else:
            sign = 's' if np.dtype(kind).kind == 'i' else 'u'
            word = f'icmp {_UNSIGNED.get(comparison, sign + comparison)}'
        self._write(operands[0], self._emit(f'{word} {LLVM[kind]} {x}, {y}'), np.bool_)

    def _selp(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        kind = TYPES[flags[-1]]
        x, y = (f'{LLVM[kind]} {self._read(operand, kind)}' for operand in operands[1:3])
        self._write(operands[0], self._emit(f'select i1 {self._is(operands[3])}, {x}, {y}'), kind)

    def _cvt(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        to, source = TYPES[flags[-2]], TYPES[flags[-1]]
        value, type_ = self._read(operands[1], source), LLVM[source]
        assert {*flags[:-2]} <= {'rn', 'sat', *_INTEGRAL}, flags
        if 'sat' in flags:
            above = self._call(f'maxnum.f{_bits(source)}', type_, (type_, value), (type_, '0.0'))
            value = self._call(f'minnum.f{_bits(source)}', type_, (type_, above), (type_, '1.0'))
        for flag in _INTEGRAL.keys() & set(flags):
            value = self._call(f'{_INTEGRAL[flag]}.f{_bits(source)}', type_, (type_, value))
        self._write(operands[0], self._converted(value, source, to), to)

    def _converted(self, value: str, kind: type, to: type) -> str:
        before, after = LLVM[kind], LLVM[to]
        floats = np.dtype(kind).kind == 'f', np.dtype(to).kind == 'f'
        if floats == (False, False) or before == after:
            return self._as(value, kind, to)
        if floats == (True, True):
            return self._emit(f'{"fpext" if _bits(to) > _bits(kind) else "fptrunc"} {before} {value} to {after}')
        signed = np.dtype(kind if floats[1] else to).kind == 'i'
        if floats[1]:
            return self._emit(f'{"s" if signed else "u"}itofp {before} {value} to {after}')
        return self._call(f'fpto{"s" if signed else "u"}i.sat.{after}.f{_bits(kind)}', after, (before, value))

    def _bfi(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        kind = TYPES[flags[-1]]
        type_, position, length = LLVM[kind], int(operands[3]), int(operands[4])
        low, into = (self._read(operand, kind) for operand in operands[1:3])
        mask = (1 << length) - 1 << position
        moved = self._emit(f'and {type_} {self._emit(f"shl {type_} {low}, {position}")}, {mask}')
        kept = self._emit(f'and {type_} {into}, {~mask & (1 << _bits(kind)) - 1}')
        self._write(operands[0], self._emit(f'or {type_} {kept}, {moved}'), kind)

    def _shfl(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        assert flags == ['sync', 'bfly', 'b32'], flags
        target, source, distance, _, members = operands
        for operand, place in ((source, '%exchange'), (members, '%mask_at'), (distance, '%distance_at')):
            self._lines.append(f'  store i32 {self._read(operand, np.uint32)}, ptr {place}')
        self._suspend(at)
        self._write(target.split('|')[0], self._emit('load i32, ptr %exchange'), np.uint32)

    def _bar(self, at: int, flags: list[str], operands: Sequence[str]) -> None:
        assert (flags, operands) == (['sync'], ['0']), (flags, operands)
        self._lines.append(f'  store i32 {NOBODY}, ptr %mask_at')
        self._suspend(at)

    def _suspend(self, at: int) -> None:
        self._lines.append(f'  store i32 {at}, ptr %place_at')
        way = self._emit('call i8 @llvm.coro.suspend(token none, i1 false)')
        self._lines += [
            f'  switch i8 {way}, label %suspended [i8 0, label %resumed{at} i8 1, label %destroyed]', f'resumed{at}:'
        ]  # fmt: skip


_WORDS = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def _bits(kind: type) -> int:
    return 1 if kind is np.bool_ else 8 * np.dtype(kind).itemsize


def _kind_of(register: str) -> type:
    return REGISTERS[re.match(r'%[a-z]+', register).group()]


def _listed(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip('{}').split(',')]
