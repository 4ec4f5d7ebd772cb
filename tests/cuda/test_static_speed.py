"""What machine code tells of speed without a GPU, and that no kernel is worse than recorded."""

from __future__ import annotations

import ctypes
import dataclasses
import doctest
import importlib
import itertools
import os
import pkgutil
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pygfuse.bench.machine import machine
from pygfuse.bench.schema import Result, Row
from pygfuse.program.library.gaussian import gaussian
from pygfuse.program.program import EdgeProgram, operands

IN_CI = os.environ.get('CI', '').lower() in ('1', 'true')
if not IN_CI:
    pytest.importorskip('numba_cuda')

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'
# a walk of two edges a turn, whose sums a rare branch scales down; and what it calls
SASS = """
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   IADD3 R20, R20, 0x1, RZ ;
.L_x_2:
        /*0020*/                   MOV R8, RZ ;
.L_x_3:
        /*0030*/                   LDG.E.CONSTANT R2, desc[UR4][R10.64] ;
        /*0040*/                   LDG.E.CONSTANT R3, desc[UR4][R10.64+0x4] ;
        /*0050*/                   IMAD.WIDE R12, R2, 0x4, R14 ;
        /*0060*/                   LDG.E.128.CONSTANT R4, desc[UR4][R12.64] ;
        /*0070*/                   IMAD.WIDE R12, R3, 0x4, R14 ;
        /*0080*/                   LDG.E.128.CONSTANT R16, desc[UR4][R12.64] ;
        /*0090*/                   MUFU.EX2 R9, R4 ;
        /*00a0*/                   BRA.DIV UR6, `(.L_x_9) ;
        /*00b0*/              @!P1 BRA `(.L_x_4) ;
        /*00c0*/                   FMUL R8, R8, R9 ;
.L_x_4:
        /*00d0*/                   FADD R8, R8, R17 ;
        /*00e0*/               @P0 BRA `(.L_x_3) ;
        /*00f0*/                   STG.E desc[UR4][R22.64], R8 ;
        /*0100*/              @!P0 CALL.REL.NOINC `(.L_x_5) ;
        /*0110*/                   BRA `(.L_x_2) ;
.L_x_5:
        /*0120*/              @!P2 CALL.REL.NOINC `(.L_x_6) ;
        /*0130*/                   BRA `(.L_x_1) ;
.L_x_6:
        /*0140*/                   EXIT ;
.L_x_9:
        /*0150*/                   MOV R30, R8 ;
        /*0160*/                   MOV R31, R8 ;
        /*0170*/                   MOV R32, R8 ;
        /*0180*/                   WARPSYNC.COLLECTIVE R8, `(.L_x_4) ;
        /*0190*/                   BRA `(.L_x_4) ;
"""


@pytest.fixture(autouse=True)
def _on_path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def speed():
    """Gives a module of `static_speed` by its name."""
    return lambda name: importlib.import_module(f'static_speed.{name}')


def names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(BENCHMARKS / 'static_speed')])]


@pytest.mark.parametrize('name', names())
def test_examples(speed, name):
    assert doctest.testmod(speed(name)).failed == 0


def test_loops_of_machine_code(speed):
    loops = speed('loops')
    blocks = loops.blocks_of(speed('disassembly').instructions(SASS))
    assert [loop.depth for loop in loops.loops_of(blocks)] == [1, 2, 3]
    edges = loops.loop_over_edges(blocks)
    shortest, longest = loops.one_turn(blocks, edges)
    # lanes that are apart are no usual way; sums that are scaled are on the longer one
    assert [len(shortest), len(longest)] == [11, 12]
    assert [one.kind for one in longest].count('LDG') == 4


def test_loads_in_flight_end_where_they_are_read(speed):
    loops, instruction = speed('loops'), speed('instruction').Instruction
    code = speed('disassembly').instructions(SASS)
    # each row waits for its index, the second index is under way with the first row
    assert loops.loads_in_flight(code) == (2, 32)
    rows = [instruction('LDG.E.128', f'R{4 * i}, desc[UR4][R90.64]', 16) for i in range(5)]
    reads = [instruction('FADD', f'R99, R99, R{4 * i + 3}') for i in range(5)]
    assert loops.loads_in_flight([*rows, *reads]) == (5, 80)
    assert loops.loads_in_flight([*itertools.chain(*zip(rows, reads, strict=True))]) == (1, 16)


def test_a_kernel_without_edges_has_no_loop_over_them(speed):
    loops = speed('loops')
    code = speed('disassembly').instructions(SASS.replace('LDG.E', 'LDS').replace('.128', ''))
    assert loops.loop_over_edges(loops.blocks_of(code)) is None


# a sum of neighbours' rows, two edges a turn
PTX = """
$L__BB0_1:
    ld.param.u64    %rd1, [entry_param_4];
    ld.param.u64    %rd2, [entry_param_5];
$L__BB0_2:
    ld.global.nc.u32    %r1, [%rd9];
$L__BB0_3:
    add.s64     %rd3, %rd1, %rd8;
    ld.global.nc.u32    %r2, [%rd3];
    ld.global.nc.u32    %r3, [%rd3+4];
    mul.wide.s32    %rd4, %r2, 256;
    add.s64     %rd5, %rd4, %rd2;
    ld.global.nc.v4.f32     {%f1, %f2, %f3, %f4}, [%rd5];
    mad.wide.s32    %rd6, %r3, 256, %rd2;
    ld.global.nc.v4.f32     {%f5, %f6, %f7, %f8}, [%rd6+16];
    @%p1 bra    $L__BB0_3;
    @%p2 bra    $L__BB0_2;
    @%p3 bra    $L__BB0_1;
    ret;
"""


@pytest.fixture
def description():
    """The types of the arguments of `PTX`'s kernel."""
    from pygfuse.codegen import arguments

    empty = dict.fromkeys(arguments.Operands._fields, ())
    return (
        'int',
        arguments.WalkedEdges('int64', 'int32', 'int32', 'int32', 'NoneType'),
        arguments.Operands(**{**empty, 'gathered_channels': ('float32',)}),
        *((), 'int', 'int', 'NoneType', 'NoneType', 'NoneType'),
        arguments.Results('float32', 'NoneType'),
        arguments.PartialStates('float32', 'float32', 'float32'),
    )


def test_traffic_is_told_by_array(speed, description):
    from pygfuse.cuda.layout import Layout

    traffic = speed('traffic')
    found = traffic.one_turn(PTX, 'forward', Layout('float32', 4, 16), description)
    # an index and a row
    assert found == traffic.Turn(edges=2, loads=4, edge_bytes=4 + 256)


def test_the_widest_load_is_not_of_an_index(speed, description):
    widest_load = speed('traffic').widest_load
    rows = re.compile(r'ld\.global\.nc\.v4.*')
    assert widest_load(PTX, 'forward', description) == 16
    narrow = rows.sub('ld.global.nc.f32 %f1, [%rd5];', PTX)
    assert widest_load(narrow, 'forward', description) == 4
    # a walk that only writes rows loads indices alone
    assert widest_load(rows.sub('', PTX), 'forward', description) == 0
    assert widest_load(rows.sub('', PTX), None, ()) == 4


HEADER = Path('nvidia/cu13/include/cuda_occupancy.h')
OCCUPANCY = """
#include <limits.h>
#include <string.h>
#include "cuda_occupancy.h"
int warps(int major, int blocks_shared, int registers, int shared, int threads) {
    cudaOccDeviceProp has;
    cudaOccFuncAttributes takes;
    cudaOccDeviceState state;
    cudaOccResult result;
    memset(&has, 0, sizeof has); memset(&takes, 0, sizeof takes); memset(&state, 0, sizeof state);
    has.computeMajor = major; has.maxThreadsPerBlock = 1024; has.maxThreadsPerMultiprocessor = 2048;
    has.regsPerBlock = has.regsPerMultiprocessor = 65536; has.warpSize = 32; has.numSms = 1;
    has.sharedMemPerBlock = 49152; has.sharedMemPerMultiprocessor = blocks_shared;
    has.sharedMemPerBlockOptin = blocks_shared - 1024; has.reservedSharedMemPerBlock = 1024;
    takes.maxThreadsPerBlock = INT_MAX; takes.numRegs = registers; takes.sharedSizeBytes = shared;
    takes.numBlockBarriers = 1;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &has, &takes, &state, threads, 0)) return -1;
    return result.activeBlocksPerMultiprocessor * ((threads + 31) / 32);
}
"""


@pytest.mark.parametrize(('architecture', 'major'), [('sm_80', 8), ('sm_90', 9), ('sm_100', 10)])
def test_resident_warps_are_those_of_the_toolkit(speed, tmp_path, architecture, major):
    import nvidia

    headers = [path for folder in nvidia.__path__ if (path := Path(folder).parent / HEADER).exists()]
    if not headers or shutil.which('cc') is None:
        pytest.skip('needs a C compiler and cuda_occupancy.h (nvidia-cuda-runtime)')
    (tmp_path / 'occupancy.c').write_text(OCCUPANCY)
    library = tmp_path / 'occupancy.so'
    command = ['cc', '-shared', '-fPIC', f'-I{headers[0].parent}', tmp_path / 'occupancy.c', '-o', library]
    subprocess.run(command, check=True)
    occupancy = speed('occupancy')
    warps, shared = ctypes.CDLL(str(library)).warps, occupancy.MULTIPROCESSORS[architecture].shared
    for registers, bytes_, threads in itertools.product(range(16, 256, 3), (0, 100, 9000, 40000), (32, 96, 128, 512)):
        wanted = warps(major, shared, registers, bytes_, threads)
        assert occupancy.resident_warps(architecture, registers, bytes_, threads) == wanted, (
            registers,
            bytes_,
            threads,
        )


def test_the_slowest_roof_holds_a_walk_up(speed):
    estimate, edge = speed('estimate'), speed('figures').OfEdge(40.0, 1.0, 2.0, 264, 8, 128)
    device = estimate.DEVICES['sm_90']
    roofs = {'memory': {'bytes': 2640}, 'instructions': {'instructions': 4000.0}, 'exponentials': {'special': 900.0}}
    for name, changed in roofs.items():
        assert estimate.estimated(dataclasses.replace(edge, **changed), 256, 4, device)[1] == name
    # 132 multiprocessors begin four instructions of a warp in each of 1.98 cycles a nanosecond
    assert estimate.picoseconds(edge, device)['instructions'] == pytest.approx(40 / (132 * 4 * 1.98) * 1000)


@pytest.mark.parametrize(
    ('name', 'now', 'is_worse'),
    [
        ('registers', 66, True),
        ('registers', 65, False),
        ('warps', 28, True),
        ('instructions', 41.5, True),
        ('instructions', 41.0, False),
        ('bytes', 300, True),
        ('loads in flight', 4, True),
        ('spills', 8, True),
        ('estimate', 9.0, False),
    ],
)
def test_what_is_worse_than_recorded_is_told(speed, name, now, is_worse):
    values = {'registers': 64, 'warps': 32, 'instructions': 40.0, 'bytes': 264, 'loads in flight': 8, 'spills': 0}
    row = Row({'kernel': 'a walk'}, values={f'sm_90 {key}': value for key, value in values.items()})
    assert len([*speed('record').worse(row, {f'sm_90 {name}': now})]) == is_worse
    assert [*speed('record').worse(row, row.values)] == []


def test_programs_are_those_of_the_package():
    listed = importlib.import_module('static_speed.launched').programs
    before = {program.name for program in listed()}
    made = EdgeProgram('made_elsewhere', operands(source='x'), message=lambda x: 2.0 * x)
    gaussian(5)
    assert {program.name for program in listed()} == before
    assert made.name not in before
    assert {'gat', 'res_gated_sigmoid', 'gaussian_2'} <= before


@pytest.fixture
def estimates():
    """The script and the record, where the compilers are those of the record; where CI is set they have to be."""
    script = importlib.import_module('gpu_estimate')
    recorded, found = Result.read(script.RECORD), machine(*script.COMPILERS)
    others = [
        f'{name} {recorded.machine[name]}' for name in script.COMPILERS if found.get(name) != recorded.machine[name]
    ]
    if others:
        (pytest.fail if IN_CI else pytest.skip)(f'needs {", ".join(others)}')
    return script, recorded


ONE = '^gat forward, 4 x 16, float32$'


def of(script, recorded: Result, pattern: str, architecture: tuple[int, int]) -> list[str]:
    """What is worse of the kernels of a pattern."""
    worse, lines, count = importlib.import_module('static_speed.record').worse, [], 0
    for name, kernel, description in script.chosen(pattern):
        lines += worse(recorded.row(name), script.measured(kernel, description, [architecture]))
        count += 1
    assert count, pattern
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ('pattern', 'architecture'),
    [
        *((ONE, architecture) for architecture in ((8, 0), (9, 0), (10, 0))),
        ('^gat backward by source, 4 x 16, float32$', (9, 0)),
        ('^neighbours forward, 1 x 64, float32$', (9, 0)),
        ('^gatv2 (forward|backward by source), 1 x 64, float32$', (9, 0)),
        ('^transformer forward, 8 x 8, float32$', (9, 0)),
    ],
)
def test_no_kernel_is_worse_than_recorded(estimates, pattern, architecture):
    assert of(*estimates, pattern, architecture) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ('where', 'replacement', 'told'),
    [
        # rows that are loaded in vectors of two values
        ('pygfuse.cuda.layout.LOAD_BYTES', 8, 'instructions'),
        # one edge in flight instead of four
        ('pygfuse.cuda.row_tiling.LARGEST_BATCH', 1, 'loads in flight'),
    ],
)
def test_a_worse_kernel_is_noticed(estimates, monkeypatch, where, replacement, told):
    monkeypatch.setattr(where, replacement)
    from pygfuse.cuda import row_tiling

    row_tiling.tiling.cache_clear()
    try:
        lines = of(*estimates, ONE, (9, 0))
    finally:
        row_tiling.tiling.cache_clear()
    assert any(told in line for line in lines), lines
