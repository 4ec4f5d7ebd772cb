from __future__ import annotations

import doctest
import gc
import threading
import weakref

import pytest
import torch
from torch_geometric import EdgeIndex

import pygfuse.memory
from pygfuse.memory import peak_bytes, saved_bytes


class _Scratch(torch.autograd.Function):
    """Needs 8000 bytes of scratch in forward and 40000 in backward; gives 4000."""

    @staticmethod
    def forward(ctx, x):
        return _double_with_scratch(x)

    @staticmethod
    def backward(ctx, grad):
        torch.empty(10_000)
        return grad


@torch.library.custom_op('pygfuse_tests::double_with_scratch', mutates_args=())
def _double_with_scratch(x: torch.Tensor) -> torch.Tensor:
    scratch = torch.empty(2000)
    del scratch
    out = torch.empty_like(x)
    out[:] = x
    return out


def test_docstrings():
    names = {'torch': torch, 'saved_bytes': saved_bytes, 'peak_bytes': peak_bytes}
    result = doctest.testmod(pygfuse.memory, extraglobs=names)
    assert result.attempted > 0
    assert result.failed == 0


# What is saved


def test_saved_bytes_counts_a_storage_once():
    x = torch.ones(100, 10, requires_grad=True)
    assert saved_bytes(lambda: x * x) == 4000
    assert saved_bytes(lambda: (x[:50] * x[50:], x.t() * x.t())) == 4000


def test_saved_bytes_counts_intermediates():
    x = torch.ones(1000, requires_grad=True)
    assert saved_bytes(lambda: x.exp().exp()) == 8000
    assert saved_bytes(lambda: x + 1) == 0
    assert saved_bytes(lambda: x.double().exp()) == 8000


def test_saved_bytes_counts_a_view_whole():
    x = torch.ones(1000, requires_grad=True)
    y = torch.ones(5000)
    assert saved_bytes(lambda: x * y[:1000], exclude=[x]) == 20_000


def test_saved_bytes_without_grad():
    x = torch.ones(1000, requires_grad=True)
    with torch.no_grad():
        assert saved_bytes(lambda: x.exp()) == 0


def test_saved_bytes_with_exclude():
    x = torch.ones(1000, 3, requires_grad=True)
    index = torch.arange(1000)
    assert saved_bytes(lambda: x[index] * x[index]) == 2 * 12_000 + 8000
    assert saved_bytes(lambda: x[index] * x[index], exclude=[index]) == 2 * 12_000
    assert saved_bytes(lambda: x[index] * x[index], exclude=iter([index[5:], x])) == 2 * 12_000


def test_saved_bytes_of_a_step_with_backward():
    x = torch.ones(1000, requires_grad=True)

    def step():
        for _ in range(3):  # the freed storages of one round must not hide those of the next
            x.exp().sum().backward()

    assert saved_bytes(step) == 12_000
    assert torch.allclose(x.grad, 3 * x.detach().exp())


def test_saved_bytes_of_a_double_backward():
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)

    def step():
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert torch.equal(second, 6 * x)

    assert saved_bytes(step, exclude=[x]) > 0


def test_saved_bytes_leaves_no_reference():
    x = torch.ones(1000, requires_grad=True)
    outputs = []
    saved_bytes(lambda: outputs.append(weakref.ref(x.exp())))
    gc.collect()
    assert outputs[0]() is None


def _sparse_eye(layout: str) -> tuple[torch.Tensor, int]:
    """An identity matrix of ten rows, and the bytes of its index arrays."""
    pointers, indices, ones = torch.arange(11), torch.arange(10), torch.ones(10)
    if layout == 'coo':
        return torch.sparse_coo_tensor(torch.stack([indices, indices]), ones), 2 * 10 * 8
    construct = {'csr': torch.sparse_csr_tensor, 'csc': torch.sparse_csc_tensor}[layout]
    return construct(pointers, indices, ones, size=(10, 10)), (11 + 10) * 8


@pytest.mark.filterwarnings('ignore:Sparse')
@pytest.mark.parametrize('layout', ['coo', 'csr', 'csc'])
def test_saved_bytes_of_sparse_tensors(layout):
    adjacency, index_bytes = _sparse_eye(layout)
    x = torch.ones(10, 4, requires_grad=True)
    assert saved_bytes(lambda: torch.mm(adjacency, x), exclude=[x]) == index_bytes + 10 * 4
    assert saved_bytes(lambda: torch.mm(adjacency, x), exclude=[x, adjacency]) == 0


def test_saved_bytes_excludes_an_edge_index():
    edge_index = EdgeIndex([[0, 1, 2], [1, 2, 0]], sparse_size=(3, 3))
    row = edge_index.as_tensor()[0]
    x = torch.ones(3, 4, requires_grad=True)
    assert saved_bytes(lambda: x.index_select(0, row)) == 2 * 3 * 8
    assert saved_bytes(lambda: x.index_select(0, row), exclude=[edge_index]) == 0


@pytest.mark.parametrize('exclude', [torch.ones(3), ['x']])
def test_saved_bytes_rejects_bad_exclude(exclude):
    with pytest.raises(TypeError, match="Expected 'exclude' to"):
        saved_bytes(lambda: None, exclude=exclude)


# The peak


def test_peak_bytes_of_a_known_sequence():
    def function():
        a = torch.empty(1000)  # 4000
        b = torch.empty(3000)  # 16000
        del a  # 12000
        c = torch.empty(2000)  # 20000, the peak
        del b, c
        return torch.empty(4000)  # 16000

    assert peak_bytes(function) == 20_000


def test_peak_bytes_of_nothing():
    assert peak_bytes(lambda: None) == 0


def test_peak_bytes_is_relative_to_the_start():
    kept = [torch.empty(100_000)]
    assert peak_bytes(lambda: kept.append(torch.empty(10))) == 40


def test_peak_bytes_sees_inside_a_custom_op():
    x = torch.ones(1000)
    assert peak_bytes(lambda: _double_with_scratch(x)) == 8000


def test_peak_bytes_sees_backward():
    x = torch.ones(1000, requires_grad=True)
    grad = torch.ones(1000)
    assert peak_bytes(lambda: _Scratch.apply(x)) == 8000
    x.grad = None
    # The output lives while backward takes its scratch.
    assert peak_bytes(lambda: _Scratch.apply(x).backward(grad)) == 4000 + 40_000


def test_peak_bytes_sees_a_resize():
    assert peak_bytes(lambda: torch.empty(0).resize_(100).resize_(1000)) == 4400  # old and new while it copies


@pytest.mark.slow
def test_peak_bytes_with_warmup_knows_what_the_last_call_left():
    kept = []

    def replace():
        kept.clear()
        kept.append(torch.empty(1000))

    assert peak_bytes(replace) == 4000
    assert peak_bytes(replace, warmup=1) == 0
    assert peak_bytes(replace, warmup=3) == 0


def test_peak_bytes_of_work_space():
    x = torch.rand(100, 100)
    x.sort()
    # Values and indices, at least.
    assert peak_bytes(lambda: x.sort()) >= 100 * 100 * (4 + 8)


def test_peak_bytes_repeats():
    x = torch.rand(300, 300, requires_grad=True)

    def step():
        (x @ x).softmax(-1).sum().backward()
        x.grad = None

    assert len({peak_bytes(step) for _ in range(3)}) == 1


def test_peak_bytes_calls_the_function_as_often_as_it_says():
    calls = []
    peak_bytes(lambda: calls.append(1), warmup=2)
    assert len(calls) == 3


def test_peak_bytes_passes_errors_on_and_recovers():
    def fail():
        raise KeyError('mine')

    with pytest.raises(KeyError, match='mine'):
        peak_bytes(fail)
    assert peak_bytes(lambda: torch.empty(10)) == 40


def test_peak_bytes_does_not_nest():
    with pytest.raises(RuntimeError, match='running already'):
        peak_bytes(lambda: peak_bytes(lambda: None))


def test_peak_bytes_on_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(peak_bytes(lambda: torch.empty(10))))
    thread.start()
    thread.join()
    assert found == [40]


def test_peak_bytes_rejects_bad_arguments():
    with pytest.raises(ValueError, match=r"Expected 'device' to .*'meta'"):
        peak_bytes(lambda: None, device='meta')
    with pytest.raises(ValueError, match=r"Expected 'warmup' to .*-1"):
        peak_bytes(lambda: None, warmup=-1)


@pytest.mark.cuda
def test_peak_bytes_on_a_gpu():
    def function():
        a = torch.empty(1024, device='cuda')
        b = torch.empty(2048, device='cuda')
        del a, b
        return torch.empty(1024, device='cuda')

    assert peak_bytes(function, device='cuda') == 3 * 4096
