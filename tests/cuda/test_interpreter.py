"""What the interpreter of PTX refuses, on kernels of a few instructions."""

import pytest
import torch

from tests.support.device_memory import DeviceMemory, Fault, unwritten
from tests.support.interpreter import interpret
from tests.support.small_kernels import BLOCK, kernel_of


def run(text, first, second=None, team=32, seed=0):
    program = kernel_of(text, item_bytes=4)
    second = torch.zeros(BLOCK, dtype=torch.int32) if second is None else second
    pointers = [first.data_ptr(), second.data_ptr()]
    return interpret(program, (1, 1), BLOCK, pointers, (first, second), team, seed)


def numbers(count=BLOCK):
    return torch.arange(count, dtype=torch.int32)


def test_each_thread_may_write_what_it_reads():
    x = numbers()
    memory = run('ld.global.u32 %r2, [%rd4];\nadd.s32 %r2, %r2, %r2;\nst.global.u32 [%rd4], %r2;', x)
    assert torch.equal(x, 2 * numbers())
    assert memory.loaded.tolist() == [4 * BLOCK, 0]


CONSTANT = 'ld.global.nc.u32 %r2, [%rd4];'
STORE = 'st.global.u32 [%rd4], %r1;'
# of thread i, the place of thread i ^ 32: in another warp
ACROSS = 'xor.b32 %r3, %r1, 32;\nmul.wide.u32 %rd5, %r3, 4;\nadd.s64 %rd5, %rd1, %rd5;\n'
FAULTS = {
    'a constant that is stored later': (f'{CONSTANT}\n{STORE}', 'a store to what this kernel reads'),
    'a constant that was stored': (f'{STORE}\n{CONSTANT}', 'a non-coherent load of what this kernel stores'),
    'different values': ('st.global.u32 [%rd1], %r1;', 'two threads store different values'),
    'different values, one after another': (f'{STORE}\n{ACROSS}st.global.u32 [%rd5], %r1;', 'different values'),
    'what another warp stores': (f'{ACROSS}{STORE}\nld.global.u32 %r2, [%rd5];', 'another team'),
    'beyond the end': ('ld.global.u32 %r2, [%rd4+4];', 'outside of its tensor'),
    'before the beginning': ('ld.global.u32 %r2, [%rd4+-4];', 'outside of'),
    'nowhere': ('ld.global.u32 %r2, [%rd3];', 'outside of all tensors'),
    'not aligned': ('ld.global.v2.u32 {%r2, %r3}, [%rd4];', 'not aligned'),
}  # fmt: skip


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', FAULTS)
def test_faults_are_found_in_any_order(name, seed):
    text, message = FAULTS[name]
    with pytest.raises(Fault, match=message):
        run(text, numbers(), seed=seed)


def test_what_nobody_wrote():
    with unwritten():
        x = torch.empty(BLOCK)
    with pytest.raises(Fault, match='nobody has written'):
        run('ld.global.f32 %f1, [%rd4];', x)
    run('ld.global.f32 %f1, [%rd4];', x.fill_(1.0))


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64])
def test_what_nobody_wrote_of_any_type(dtype):
    with unwritten():
        x = torch.zeros(()).new_empty(2 * BLOCK, dtype=dtype)
    with pytest.raises(Fault, match='nobody has written'):
        run('ld.global.b64 %rd5, [%rd1];', x)
    x[0] = 0
    run('ld.global.b16 %rs1, [%rd1];' if x.element_size() == 2 else 'ld.global.b32 %r2, [%rd1];', x)


def test_the_same_value_and_the_same_team_are_no_races():
    run('mov.u32 %r2, 7;\nst.global.u32 [%rd1], %r2;', numbers())
    # a lane may read what its neighbour has stored
    neighbours = ACROSS.replace('32;', '1;', 1)
    run(f'{neighbours}{STORE}\nld.global.u32 %r2, [%rd5];', numbers())
    with pytest.raises(Fault, match='another team'):
        run(f'{neighbours}{STORE}\nld.global.u32 %r2, [%rd5];', numbers(), team=1)


def test_a_tensor_ends_where_its_neighbour_in_memory_begins():
    both = numbers(2 * BLOCK)
    with pytest.raises(Fault, match='outside of its tensor'):
        run('ld.global.u32 %r2, [%rd4+256];', both[:BLOCK], both[BLOCK:])


def test_views_of_one_memory_share_it():
    both = numbers(BLOCK + 1)
    with pytest.raises(Fault, match='different values'):
        run(f'{STORE}\nadd.s64 %rd5, %rd2, %rd3;\nst.global.u32 [%rd5], %r1;', both[:BLOCK], both[1:])


def test_an_unaligned_view_keeps_its_low_bits():
    x = numbers(BLOCK + 1)[1:]
    with pytest.raises(Fault, match='not aligned'):
        run('ld.global.v2.u32 {%r2, %r3}, [%rd1];', x)


def test_warps_run_in_another_order_for_each_seed(monkeypatch):
    orders, store = set(), DeviceMemory.store

    def noted(memory, address, values, threads):
        order.extend((threads // 32).tolist())
        store(memory, address, values, threads)

    monkeypatch.setattr(DeviceMemory, 'store', noted)
    for seed in range(8):
        order = []
        run(f'bra $L;\n$L:\n{STORE}\nbra $M;\n$M:\n{STORE}', numbers(), seed=seed)
        orders.add(tuple(order))
    assert len(orders) > 2


def test_a_shuffle_takes_all_its_lanes():
    odd_lanes = 'and.b32 %r3, %r1, 1;\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra $L;\n'
    with pytest.raises(AssertionError, match='should shuffle together are not'):
        run(f'{odd_lanes}shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n$L:', numbers())


# of thread i, its place in shared memory and the place of thread i ^ 32
OF_BLOCK = (
    'mov.u64 %rd6, numbers;\nadd.s64 %rd7, %rd6, %rd3;\n'
    'xor.b32 %r3, %r1, 32;\nmul.wide.u32 %rd8, %r3, 4;\nadd.s64 %rd8, %rd6, %rd8;\n'
)
TO_BLOCK, FROM_OTHER, WAIT = 'st.shared.u32 [%rd7], %r1;\n', 'ld.shared.u32 %r2, [%rd8];\n', 'bar.sync \t0;\n'


@pytest.mark.parametrize('seed', range(3))
def test_warps_of_a_block_pass_numbers(seed):
    x = numbers()
    # a barrier before what was loaded is overwritten
    run(f'{OF_BLOCK}{TO_BLOCK}{WAIT}{FROM_OTHER}{WAIT}{TO_BLOCK}st.global.u32 [%rd4], %r2;', x, seed=seed)
    assert torch.equal(x, numbers() ^ 32)


FAULTS_OF_BLOCKS = {
    'no barrier': (f'{TO_BLOCK}{FROM_OTHER}', 'another warp (stores|loads)|nobody has written'),
    'no barrier before the next': (f'{TO_BLOCK}{WAIT}{FROM_OTHER}{TO_BLOCK}', 'another warp (stores|loads)'),
    'one place': ('st.shared.u32 [numbers], %r1;\n', 'that another warp stores to|different values'),
    'the same number': ('mov.u32 %r2, 7;\nst.shared.u32 [numbers], %r2;\n', 'that another warp stores to'),
    'what nobody wrote': (FROM_OTHER, 'nobody has written'),
    'beyond the end': ('ld.shared.u32 %r2, [%rd7+4];\n', 'nobody has written|outside of shared memory'),
    'not aligned': ('st.shared.v2.u32 [%rd7], {%r1, %r1};\n', 'not aligned'),
}


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', FAULTS_OF_BLOCKS)
def test_faults_in_shared_memory_are_found_in_any_order(name, seed):
    text, message = FAULTS_OF_BLOCKS[name]
    with pytest.raises(Fault, match=message):
        run(OF_BLOCK + text, numbers(), seed=seed)


BARRIERS = {
    'that a warp never reaches': ('setp.lt.u32 %p1, %r1, 32;\n', 'never reach'),
    'that some lanes never reach': ('and.b32 %r3, %r1, 1;\nsetp.eq.s32 %p1, %r3, 0;\n', 'wait together are not'),
}


@pytest.mark.parametrize('name', BARRIERS)
def test_a_barrier_takes_all_threads(name):
    leaves, message = BARRIERS[name]
    with pytest.raises(AssertionError, match=message):
        run(f'{leaves}@%p1 bra $L;\n{WAIT}$L:', numbers())


@pytest.mark.parametrize(('rounding', 'outcomes'), [('', 2), ('.rn', 1)])
def test_what_lacks_a_rounding_may_be_fused(rounding, outcomes):
    """Of 1 + 2^-12 squared, less what it is rounded to, nothing is left but where the product is not rounded."""
    found = set()
    for number in range(16):
        x = torch.full((BLOCK,), 1 + 2**-12)
        run(
            f'mov.u32 %r2, {number};\nld.global.f32 %f1, [%rd4];\nmul{rounding}.f32 %f2, %f1, %f1;\n'
            f'add{rounding}.f32 %f3, %f2, 0fBF801000;\nst.global.f32 [%rd4], %f3;',
            x,
        )
        found.add(float(x[0]))
    assert len(found) == outcomes
