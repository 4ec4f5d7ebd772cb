"""Kernels as this machine's processor runs them: what the interpreter computes, and what is refused."""

import os

import pytest
import torch

from pygfuse.cuda import backend
from pygfuse.program.program import PROGRAMS
from tests.support.comparison import check, random_call, random_graph

if os.environ.get('CI', '').lower() not in ('1', 'true'):
    pytest.importorskip('numba_cuda')
from tests.support.coroutine import IS_UNDERSTOOD
from tests.support.device_memory import Fault
from tests.support.interpreter import interpret
from tests.support.processor import CompiledProgram, Processor
from tests.support.small_kernels import BLOCK, kernel_of

pytestmark = pytest.mark.skipif(not IS_UNDERSTOOD, reason='needs a later LLVM')


def numbers(text, x, y, interpreted=False):
    """What a text makes of two tensors."""
    program, given = kernel_of(text, item_bytes=8), (x.clone(), y.clone())
    words = [tensor.data_ptr() for tensor in given]
    if interpreted:
        interpret(program, (1, 1), BLOCK, words, given, 32)
    else:
        CompiledProgram(program).run((1, 1), BLOCK, words, given)
    return given[0]


REGISTER = {'f32': '%f', 'f64': '%fd', 'b32': '%r', 'u32': '%r', 's32': '%r', 'b64': '%rd', 'u64': '%rd', 's64': '%rd'}
FLOATS = (
    'add.f32', 'add.rz.f32', 'sub.f32', 'mul.f32', 'div.rn.f32', 'min.f32', 'max.f32', 'copysign.f32', 'add.f64',
    'mul.rn.f64', 'fma.rn.f32', 'fma.rm.f32', 'sqrt.rn.f32', 'rcp.rn.f32', 'neg.f32', 'abs.f64',
)  # fmt: skip
INTEGERS = (
    'add.s64', 'sub.s32', 'mul.lo.s64', 'div.s64', 'div.u32', 'min.s64', 'max.s64', 'and.b32', 'or.b64', 'xor.b32',
    'shl.b32', 'shr.u64', 'shr.s32', 'not.b64', 'neg.s64', 'mad.lo.s32',
)  # fmt: skip
OPERANDS = {'sqrt': 1, 'rcp': 1, 'neg': 1, 'abs': 1, 'not': 1, 'fma': 3, 'mad': 3}


@pytest.mark.parametrize('opcode', FLOATS + INTEGERS)
def test_arithmetic_is_that_of_the_interpreter(opcode):
    kind = opcode.split('.')[-1]
    register, is_float = REGISTER[kind], kind.startswith('f')
    generator = torch.Generator().manual_seed(0)
    dtype = {'f32': torch.float32, 'f64': torch.float64}.get(kind, torch.int32 if '32' in kind else torch.int64)
    count = BLOCK * 8 // dtype.itemsize
    if is_float:
        x, y = (torch.randn(count, generator=generator, dtype=dtype) * 100 for _ in range(2))
    else:
        x, y = (torch.randint(-40, 40, (count,), generator=generator, dtype=dtype) for _ in range(2))
        if opcode.startswith('sh'):
            y = torch.randint(0, int(kind[1:]), (count,), generator=generator, dtype=dtype)
    operands = ', '.join(f'{register}{i}' for i in (11, 12, 11)[: OPERANDS.get(opcode.split('.')[0], 2)])
    text = (
        f'ld.global.{kind} {register}11, [%rd4];\nld.global.{kind} {register}12, [%rd5];\n'
        f'{opcode} {register}13, {operands};\nst.global.{kind} [%rd4], {register}13;'
    )
    found, expected = numbers(text, x, y), numbers(text, x, y, interpreted=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


LOAD = 'ld.global.v2.u32 {%r2, %r3}, [%rd4];\n'
STORE = 'st.global.v2.u32 [%rd4], {%r4, %r5};'
TEXTS = {
    'a butterfly': f'{LOAD}shfl.sync.bfly.b32 %r4|%p1, %r2, 8, 31, -1;\nmov.b32 %r5, %r3;\n{STORE}',
    'butterflies of half a warp': (
        f'{LOAD}and.b32 %r6, %r1, 16;\nmov.b32 %r8, 65535;\nshl.b32 %r7, %r8, %r6;\n'
        f'shfl.sync.bfly.b32 %r4|%p1, %r2, 1, 31, %r7;\nshfl.sync.bfly.b32 %r5|%p1, %r4, 4, 31, %r7;\n{STORE}'
    ),
    'a loop': (
        f'{LOAD}mov.u32 %r5, 0;\nand.b32 %r4, %r1, 7;\n$L:\nadd.s32 %r5, %r5, %r2;\nsub.s32 %r4, %r4, 1;\n'
        f'setp.gt.s32 %p1, %r4, 0;\n@%p1 bra $L;\n{STORE}'
    ),
    'a predicate': f'{LOAD}setp.lt.s32 %p1, %r2, 0;\nselp.b32 %r4, 1, %r3, %p1;\n@!%p1 mov.u32 %r5, 7;\n{STORE}',
    'halves of a word': f'{LOAD}mov.b64 %rd9, {{%r2, %r3}};\nmov.b64 {{%r5, %r4}}, %rd9;\n{STORE}',
    'conversions': (
        f'{LOAD}cvt.rn.f32.s32 %f1, %r2;\ndiv.rn.f32 %f2, %f1, 0f40600000;\ncvt.sat.f32.f32 %f3, %f2;\n'
        f'mov.b32 %r4, %f3;\ncvt.s64.s32 %rd9, %r3;\nshr.s64 %rd9, %rd9, 40;\ncvt.u32.u64 %r5, %rd9;\n{STORE}'
    ),
    'halves': (
        f'{LOAD}cvt.rn.f32.s32 %f1, %r2;\ndiv.rn.f32 %f2, %f1, 0f40600000;\ncvt.rn.f16.f32 %rs1, %f2;\n'
        f'cvt.f32.f16 %f3, %rs1;\nmov.b32 %r4, %f3;\nmov.b32 %r5, {{%rs1, %rs1}};\n{STORE}'
    ),
    'shared memory': (
        f'{LOAD}mov.u64 %rd6, numbers;\nadd.s64 %rd7, %rd6, %rd3;\n'
        'st.shared.v2.u32 [%rd7], {%r2, %r3};\nbar.sync \t0;\n'
        'xor.b32 %r6, %r1, 41;\nmul.wide.u32 %rd8, %r6, 8;\nadd.s64 %rd8, %rd6, %rd8;\n'
        f'ld.shared.u32 %r4, [%rd8+4];\nld.shared.u32 %r5, [numbers+16];\n{STORE}'
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', TEXTS)
def test_other_instructions_are_those_of_the_interpreter(name):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-40, 40, (2 * BLOCK,), generator=generator, dtype=torch.int32)
    found, expected = (numbers(TEXTS[name], x, x, interpreted) for interpreted in (False, True))
    assert torch.equal(found, expected)
    assert not torch.equal(found, x)


FAULTS = {
    'beyond the end': ('ld.global.u32 %r2, [%rd4+8];', 'outside of all tensors'),
    'before the beginning': ('st.global.u32 [%rd4+-4], %r1;', 'outside of all tensors'),
    'partly beyond the end': ('ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd4];', 'outside of all tensors, or not'),
    'not aligned': ('ld.global.v2.u32 {%r2, %r3}, [%rd1+4];', 'not aligned'),
}  # fmt: skip


@pytest.mark.parametrize('name', FAULTS)
def test_stray_addresses_are_refused(name):
    text, message = FAULTS[name]
    # one tensor, as what lies beyond it may be another
    memory = torch.zeros(6 * BLOCK, dtype=torch.int32)
    x = memory[2 * BLOCK : 4 * BLOCK]
    program = kernel_of(text, item_bytes=8)
    with pytest.raises(Fault, match=message):
        CompiledProgram(program).run((1, 1), BLOCK, [x.data_ptr(), x.data_ptr()], [x, x])


ODD_LANES = 'and.b32 %r3, %r1, 1;\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra $L;\n'
SHUFFLES = {
    'not together': (
        f'{ODD_LANES}shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n$L:',
        'should shuffle or wait together are not',
    ),
    'at two instructions': (
        f'{ODD_LANES}shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n'
        'bra $M;\n$L:\nshfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n$M:',
        'should shuffle or wait together are not',
    ),
    'at a barrier and not': (f'{ODD_LANES}bar.sync \t0;\n$L:', 'should shuffle or wait together are not'),
    'a warp at a barrier and one not': (
        'setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $L;\nbar.sync \t0;\n$L:',
        'should shuffle or wait together are not',
    ),
    'with who takes no part': ('shfl.sync.bfly.b32 %r2|%p2, %r1, 16, 31, 65535;', 'takes no part'),
}


@pytest.mark.parametrize('name', SHUFFLES)
def test_shuffles_and_barriers_take_all_their_lanes(name):
    text, message = SHUFFLES[name]
    x = torch.zeros(2 * BLOCK, dtype=torch.int32)
    with pytest.raises(AssertionError, match=message):
        CompiledProgram(kernel_of(text, item_bytes=8)).run((1, 1), BLOCK, [x.data_ptr(), x.data_ptr()], [x])


def test_a_walk_gives_the_same_bits_as_in_the_interpreter(driver):
    call, found = random_call(PROGRAMS['gine'], random_graph(5, 4, 14), 2, 8, torch.float32), []
    found.append(backend.forward(call)[0])
    with Processor().installed() as processor:
        found.append(backend.forward(call)[0])
    assert [launch.name for launch in driver.launches] == [launch.name for launch in processor.launches]
    assert torch.equal(*found)


@pytest.mark.parametrize('name', ['gat', pytest.param('gaussian_2', marks=pytest.mark.slow)])
@pytest.mark.usefixtures('processor')
def test_programs_on_few_edges(name):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 8, torch.float32), 2e-5)
