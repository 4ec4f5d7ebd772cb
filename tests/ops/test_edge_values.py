"""Functions of edges by PyTorch's operators on chunks: values, gradients and gradients of gradients."""

from __future__ import annotations

import pytest
import torch

from pygfuse.memory import peak_bytes, saved_bytes
from pygfuse.ops import Edges
from pygfuse.ops import edge_values as module
from pygfuse.ops.edge_values import edge_values
from tests.support.parity import random_edges

WIDTH = 3


@pytest.fixture(params=[True, False], ids=['several chunks', 'one chunk'])
def chunks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr('pygfuse.mapping.edge_chunks.LEAST_EDGES', 4)
        monkeypatch.setattr(module, 'ROWS_AT_ONCE', 5)


def function(rows, generator):
    source, target, edge, weight = rows
    values = torch.tanh(source * target) @ weight + edge.unsqueeze(-1) * source.sin()
    return values if generator is None else values * torch.rand(values.shape, generator=generator).to(values.dtype)


def operands(num_sources, num_targets, num_edges, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = (num_sources, WIDTH), (num_targets, WIDTH), (num_edges,), (WIDTH, WIDTH)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def run(edge_index, sizes, given, reduce, seed=None):
    sided = list(zip(('source', 'target', 'edge', 'shared'), given, strict=True))
    return edge_values(function, Edges(edge_index, *sizes), sided, WIDTH, WIDTH, reduce, seed)


def expected(edge_index, sizes, given, reduce):
    source, target, edge, weight = given
    values = function((source[edge_index[0]], target[edge_index[1]], edge, weight), None)
    if reduce == 'none':
        return values
    kind = {'sum': 'sum', 'max': 'amax'}[reduce]
    index = edge_index[1].unsqueeze(1).expand_as(values)
    return values.new_zeros(sizes[1], WIDTH).scatter_reduce(0, index, values, kind, include_self=False)


SORTED = torch.tensor([[0, 3, 1, 2, 0, 4], [0, 0, 1, 1, 3, 3]])
GRAPHS = {
    'random': (random_edges(7, 6, 23), (7, 6)),
    'sorted by target': (SORTED, (5, 4)),
    'no edges': (torch.empty(2, 0, dtype=torch.int64), (5, 4)),
    'hub': (torch.stack([torch.arange(30) % 7, torch.zeros(30, dtype=torch.int64)]), (7, 2)),
    'int32': (random_edges(7, 6, 23).int(), (7, 6)),
}


@pytest.mark.parametrize('reduce', ['sum', 'max', 'none'])
@pytest.mark.parametrize('graph', GRAPHS)
def test_values_and_gradients(graph, reduce, chunks):
    edge_index, sizes = GRAPHS[graph]
    given = operands(*sizes, edge_index.shape[1])
    found, reference = run(edge_index, sizes, given, reduce), expected(edge_index.long(), sizes, given, reduce)
    torch.testing.assert_close(found, reference)
    grad = torch.randn(found.shape, dtype=found.dtype)
    gradients = [torch.autograd.grad(out, given, grad) for out in (found, reference)]
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize('reduce', ['sum', 'max', 'none'])
def test_gradients_of_gradients(reduce, chunks):
    edge_index, sizes = GRAPHS['random']
    given = operands(*sizes, edge_index.shape[1])
    assert torch.autograd.gradcheck(lambda *tensors: run(edge_index, sizes, tensors, reduce), given)
    assert torch.autograd.gradgradcheck(lambda *tensors: run(edge_index, sizes, tensors, reduce), given)


@pytest.mark.parametrize('reduce', ['sum', 'max', 'none'])
@pytest.mark.parametrize('wanted', [(0,), (1, 3), (2,)])
def test_gradients_of_some_operands_again(reduce, wanted, chunks):
    edge_index, sizes = GRAPHS['random']
    results = []
    for compute in (run, expected):
        given = operands(*sizes, edge_index.shape[1])
        for i, tensor in enumerate(given):
            tensor.requires_grad_(i in wanted)
        kept = [given[i] for i in wanted]
        first = torch.autograd.grad(compute(edge_index, sizes, given, reduce).square().sum(), kept, create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), kept, create_graph=True)
        third = torch.autograd.grad(sum(one.square().sum() for one in second), kept)
        results.append([*first, *second, *third])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_random_numbers_are_the_same_in_backward(chunks):
    edge_index, sizes = GRAPHS['random']
    given = operands(*sizes, edge_index.shape[1])
    assert torch.autograd.gradcheck(lambda *tensors: run(edge_index, sizes, tensors, 'sum', seed=3), given)
    assert not torch.equal(*(run(edge_index, sizes, given, 'sum', seed=seed) for seed in (3, 4)))


@pytest.mark.parametrize('times', [0, 1, 2])
def test_memory_does_not_grow_with_edges_times_features(times):
    peaks, saved = [], []
    for num_edges in (20_000, 40_000):
        edge_index, sizes = random_edges(50, 50, num_edges), (50, 50)
        given = operands(*sizes, num_edges, torch.float32)

        def forward(given=given, edge_index=edge_index, sizes=sizes):
            return run(edge_index, sizes, given, 'sum')

        def differentiated(forward=forward, given=given):
            out = forward()
            for turn in range(times):
                out = torch.autograd.grad(out.square().sum(), given[:1], create_graph=turn < times - 1)[0]
            return out

        differentiated()  # sorts the edges
        peaks.append(peak_bytes(differentiated))
        saved.append(saved_bytes(forward, exclude=[*given, edge_index]))
    assert saved[0] == saved[1]
    # the gradient of one number an edge, that of its gradient, and places of rows
    assert peaks[1] - peaks[0] <= 20_000 * (0, 8, 24)[times]


def test_batches_of_gradients():
    edge_index, sizes = GRAPHS['random']
    given = operands(*sizes, edge_index.shape[1])
    out, reference = run(edge_index, sizes, given, 'sum'), expected(edge_index, sizes, given, 'sum')
    grads = torch.randn(4, *out.shape, dtype=out.dtype)
    found = torch.autograd.grad(out, given, grads, is_grads_batched=True)
    for got, want in zip(found, torch.autograd.grad(reference, given, grads, is_grads_batched=True), strict=True):
        torch.testing.assert_close(got, want)
