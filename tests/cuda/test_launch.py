"""What launches pass, as a stand-in for the CUDA driver sees it."""

import struct
import threading
from types import SimpleNamespace

import pytest
import torch

from pygfuse.call.call import Call, Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.codegen.packing import kinds_of, packer
from pygfuse.cuda import backend, kernel
from pygfuse.cuda.arguments import MOST_ITEMS, PARAMETERS, WIDE_PARAMETERS, describe, is_wide
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.program import PROGRAMS
from tests.support.comparison import check, random_call, random_graph
from tests.support.interpreter import forget_kernels


def neighbours(channels=4):
    """A sum over neighbours: the call that takes the least to compile."""
    torch.manual_seed(0)
    graph = random_graph(5, 4, 14)
    return Call(NEIGHBOURS.bind(('x',)), graph, {'x': torch.randn(5, channels)}, {}, 1, channels)


def summed(call):
    edges = call.graph.coo()
    found = torch.zeros(call.graph.num_targets, call.width)
    return found.index_add(0, edges[1], call.tensors['x'][edges[0]])


def test_a_launch_passes_what_it_should(driver):
    call = neighbours()
    torch.testing.assert_close(backend.forward(call)[0], summed(call))
    (launch,) = driver.launches
    assert launch.grid == (1, 1)
    assert driver.checks == [0]  # that the toolkit's versions fit is known before anything is compiled


def test_arguments_become_words():
    x = torch.randn(3)
    half = struct.unpack('q', struct.pack('d', 0.5))[0]
    arguments = (x, None, -1), 0.5, 2**40
    packed = packer(kinds_of(arguments), form=PARAMETERS)(*arguments)
    assert packed.tolist()[len(PARAMETERS.head) :] == [x.data_ptr(), -1, half, 2**40]


def test_kernels_are_compiled_and_loaded_once(driver):
    call = neighbours()
    for _ in range(3):
        backend.forward(call)
    assert len(driver.modules) == 1
    assert len(driver.launches) == 3
    # the same kernel for other types of its arguments
    rows = call.graph.csr
    rows.index, rows._edge_id = rows.index.long(), rows._edge_id.long()
    torch.testing.assert_close(backend.forward(call)[0], summed(call))
    assert len(driver.modules) == 2
    assert len({launch.function for launch in driver.launches}) == 2


def test_kernels_that_would_spill_take_the_registers_of_fewer_blocks(driver):
    driver.spilled_bytes = lambda text: 100 if '.minnctapersm 7' in text else 0
    check(backend, random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 4, torch.float32), 2e-5)
    forward = [at for at, text in enumerate(driver.modules) if '.minnctapersm 7' in text]
    assert forward
    assert all('.minnctapersm 2' in driver.modules[at + 1] for at in forward)
    assert any('.minnctapersm 5' in text for text in driver.modules)  # backward, which spills nothing
    launched = {launch.function for launch in driver.launches if launch.name.startswith('gat forward')}
    assert len(launched) == 1
    driver.launches.clear()
    backend.forward(random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 4, torch.float32))
    assert {launch.function for launch in driver.launches if launch.name.startswith('gat forward')} == launched


@pytest.mark.parametrize(('items', 'expected'), [(MOST_ITEMS, False), (MOST_ITEMS + 1, True)])
def test_offsets_of_32_bits_are_for_tensors_that_they_reach(items, expected):
    arguments = (3, torch.empty(4, device='meta')), torch.empty(items, dtype=torch.bfloat16, device='meta')
    assert is_wide(arguments) == expected
    kinds = kinds_of(arguments)
    assert (packer(kinds, form=PARAMETERS)(*arguments) is None) == expected
    assert packer(kinds, form=WIDE_PARAMETERS)(*arguments) is not None
    assert describe(arguments, expected) != describe(arguments, not expected)


def test_kernels_with_offsets_of_64_bits(driver, monkeypatch):
    call, texts = random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 4, torch.float32, dropout=0.3), []
    for wide in (False, True):
        monkeypatch.setattr(kernel, 'is_wide', lambda arguments, wide=wide: wide)
        forget_kernels()
        driver.modules.clear()
        check(backend, call, 2e-5)
        texts.append({*driver.modules})
    assert len(texts[0]) == len(texts[1]) > 1
    assert not texts[0] & texts[1]


@pytest.mark.parametrize('channels', [602, pytest.param(520, marks=pytest.mark.slow)])
def test_wide_rows_are_read_once(driver, channels):
    call = neighbours(channels)
    torch.testing.assert_close(backend.forward(call)[0], summed(call))
    (launch,) = driver.launches
    assert launch.grid == (1, 2)  # blocks lie along the first axis, tiles along the second
    rows = call.graph.num_edges * channels * 4
    assert rows <= launch.loaded[call.tensors['x'].data_ptr()] <= 1.05 * rows


def test_a_thread_without_a_context_takes_that_of_its_device(driver):
    driver.device = 0  # which is the current one of each thread, so torch need not go there
    call, found = neighbours(), []
    thread = threading.Thread(target=lambda: found.append(backend.forward(call)[0]))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], summed(call))
    assert len(driver.launches) == 1


def test_a_failure_of_the_driver_is_told(driver, monkeypatch):
    monkeypatch.setattr(driver, 'stream', lambda device: 0)
    monkeypatch.setattr(torch.cuda, 'current_stream', lambda device: SimpleNamespace(cuda_stream=1))
    with pytest.raises(RuntimeError, match='CUDA could not launch a kernel: AssertionError: the current stream'):
        backend.forward(neighbours())


def test_rows_that_begin_anywhere(driver):
    call = neighbours()
    call.tensors['x'] = shifted(call.tensors['x'])
    torch.testing.assert_close(backend.forward(call)[0], summed(call))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['gatv2', 'gat'])
def test_operands_that_begin_anywhere(driver, name):
    call = random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 8, torch.float32, dropout=0.3)
    call.tensors.update({key: shifted(tensor) for key, tensor in call.tensors.items()})
    assert all(tensor.data_ptr() % 16 == 4 for tensor in call.tensors.values())
    check(backend, call, 2e-5)
    out, statistics = backend.forward(call)
    grad = torch.randn_like(out)
    found, expected = (
        backend.backward(Gradient(call, one, statistics, other, [*call.tensors]))
        for one, other in ((shifted(out), shifted(grad)), (out, grad))
    )
    assert all(torch.equal(found[name], expected[name]) for name in call.tensors)


def shifted(tensor):
    """The same numbers behind the beginning of an allocation."""
    memory = torch.empty(tensor.numel() + 4, dtype=tensor.dtype)
    begin = (4 - memory.data_ptr() % 16 // 4) % 4 + 1
    return memory[begin : begin + tensor.numel()].view(tensor.shape).copy_(tensor)


@pytest.mark.parametrize('seed', [7, torch.tensor(7)])
def test_all_that_a_kernel_reads_is_on_its_device(seed):
    call = random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 8, torch.float32)
    tensors = {name: tensor.to('meta') for name, tensor in call.tensors.items()}
    call = Call(call.bound, call.graph, tensors, call.scalars, 2, 8, dropout=Dropout(0.5, seed))
    assert backend._draws(call).seed.device.type == 'meta'
