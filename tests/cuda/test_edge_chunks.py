"""What operators of torch do with chunks of edges on a GPU is what the CPU's kernels do."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from pygfuse.cpu import edge_chunks as kernels
from pygfuse.cuda import edge_chunks as operators
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.edge_chunks import EdgeChunk, chunks_of
from pygfuse.ops.dropout_draws import dropout_draws, edge_marks
from pygfuse.ops.edge_mlp import Affine, Begin, Contract, Map, Normalise, Plus, Rectifier, Times
from pygfuse.ops.edge_mlp.stages import written
from pygfuse.ops.edge_mlp.tape import Tape
from pygfuse.program.activation import Activation
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES, WIDTH = 7, 9, 60, 5
KIND = torch.float64, torch.device('cpu')
SIZES = pytest.mark.parametrize('size', [1, 4, 13, EDGES])


@pytest.fixture(params=['sorted', 'in any order'])
def csr(request) -> Csr:
    edge_index = random_edges(SOURCES, TARGETS - 2, EDGES, 1) + torch.tensor([[0], [1]])
    if request.param == 'sorted':
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    return Graph.of(edge_index, num_sources=SOURCES, num_targets=TARGETS).csr


def numbers(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows(chunk: EdgeChunk, seed: int = 5) -> Tensor:
    return numbers(EDGES, WIDTH, seed=seed)[chunk.first : chunk.last].clone()


def by_both(run) -> tuple[list[Tensor], list[Tensor]]:
    """What a function of a module gives with each."""
    return run(kernels), run(operators)


def assert_same(run) -> None:
    for found, expected in zip(*by_both(run), strict=True):
        torch.testing.assert_close(expected, found, equal_nan=True)


def test_both_have_the_same_functions():
    for name, function in vars(operators).items():
        if inspect.isfunction(function) and function.__module__ == operators.__name__ and name[0] != '_':
            others = inspect.signature(getattr(kernels, name)).parameters
            assert [*inspect.signature(function).parameters] == [*others], name


@SIZES
@pytest.mark.parametrize('ends', ['both', 'source', 'target'])
def test_ends(csr, size, ends):
    source = numbers(SOURCES, WIDTH) if ends != 'target' else None
    target = numbers(TARGETS, WIDTH) if ends != 'source' else None

    def run(module):
        found = []
        for chunk in chunks_of(csr, size):
            found.append(torch.empty(chunk.edges, WIDTH, dtype=torch.float64))
            module.add_ends(csr, chunk, source, target, found[-1])
        return found

    assert_same(run)


@SIZES
@pytest.mark.parametrize('name', ['add_to_targets', 'add_to_sources'])
def test_sums(csr, size, name):
    def run(module):
        out = torch.zeros(max(SOURCES, TARGETS), WIDTH, dtype=torch.float64)
        for chunk in chunks_of(csr, size):
            getattr(module, name)(csr, chunk, rows(chunk), out)
        return [out]

    assert_same(run)


@SIZES
def test_dropouts(csr, size):
    marks, draws = edge_marks(EDGES, torch.device('cpu'), torch.float64), dropout_draws((WIDTH,), 0.3, *KIND)

    def run(module):
        found = []
        for chunk in chunks_of(csr, size):
            found.append(rows(chunk))
            module.dropped(found[-1], marks[chunk.first : chunk.last], draws, found[-1])
        return found

    assert_same(run)


@SIZES
@pytest.mark.parametrize('values', ['distinct', 'ties', 'not finite', 'all the least'])
def test_the_largest(csr, size, values):
    """And what becomes of their gradients."""
    given = numbers(EDGES, WIDTH)
    if values == 'ties':
        given = given.round()
    elif values == 'all the least':
        given = given.new_full(given.shape, -torch.inf)
    elif values == 'not finite':
        given[::7] = torch.nan
        given[1::5], given[2::5] = torch.inf, -torch.inf
    grad = numbers(TARGETS, WIDTH)

    def run(module):
        out, winners = torch.zeros(2, TARGETS, WIDTH, dtype=torch.float64)
        chunks, found = chunks_of(csr, size), []
        for chunk in chunks:
            module.keep_largest(csr, chunk, given[chunk.first : chunk.last].clone(), out, winners)
        for chunk in chunks:
            found += [torch.empty(chunk.edges, WIDTH, dtype=torch.float64) for _ in range(2)]
            module.spread(csr, chunk, grad, winners, found[-1])
            module.spread(csr, chunk, grad, None, found[-2])
        return [out, winners, *found]

    assert_same(run)


@SIZES
@pytest.mark.parametrize('adds', [False, True])
def test_rows_of_edges(csr, size, adds):
    given = numbers(EDGES, WIDTH)

    def run(module):
        put, found = torch.zeros(EDGES, WIDTH, dtype=torch.float64), []
        for chunk in chunks_of(csr, size):
            found.append(rows(chunk))
            module.take_edges(csr, chunk, given, found[-1], adds)
            module.put_edges(csr, chunk, rows(chunk), put)
        return [put, *found]

    assert_same(run)


@pytest.mark.parametrize('tangents', [False, True])
@pytest.mark.parametrize('feature_width', [0, 1, WIDTH])
@pytest.mark.parametrize('with_source', [False, True])
def test_products_with_factors(csr, tangents, feature_width, with_source):
    def run(module):
        found = []
        for chunk in chunks_of(csr, 13):
            shape = (2, chunk.edges, WIDTH) if tangents else (chunk.edges, WIDTH)
            values, grad = numbers(*shape, seed=1), numbers(*shape, seed=2)
            source, features = numbers(SOURCES, WIDTH), numbers(chunk.edges, max(1, feature_width))
            factors = [source if with_source else None, features if feature_width else None]
            moved = [None if part is None or not tangents else part.flip(0) for part in factors]
            out = torch.empty(shape, dtype=torch.float64)
            module.times(csr, chunk, values, (*factors, *moved), out)
            of_source = torch.zeros(chunk.edges, WIDTH, dtype=torch.float64) if with_source else None
            of_features = torch.zeros_like(features) if feature_width else None
            module.times_back(csr, chunk, values, (*factors, *moved), grad, of_source, of_features)
            found += [part for part in (out, grad, of_source, of_features) if part is not None]
            # in place, too
            module.times(csr, chunk, values, (*factors, *moved), values)
            found.append(values)
        return found

    assert_same(run)


def test_products_and_activations():
    values, grad, weight, bias = numbers(20, 4), numbers(20, 6), numbers(6, 4), numbers(6)

    def run(module):
        out = torch.ones(20, 6, dtype=torch.float64)
        found = [module.mapped(values, weight, bias, out.clone()), module.mapped(values, weight, None, out.clone())]
        found += [module.add_mapped(values, weight, out.clone()), module.mapped_back(grad, weight)]
        sums = torch.ones(6, 4, dtype=torch.float64)
        module.add_over_rows(grad, values, sums)
        activated = values.clone()
        module.activated(Activation('silu'), activated, activated)
        return [*found, sums, activated]

    assert_same(run)


def test_chunks_are_found_once_and_are_larger_on_a_gpu(csr):
    assert chunks_of(csr, 13) is chunks_of(csr, 13)
    assert operators.chunk_size(256) > kernels.chunk_size(256)
    assert operators.chunk_size(256, most=64) == operators.chunk_size(256)


@pytest.fixture
def elsewhere(monkeypatch):
    """Makes tensors that are not on the CPU, and has the graph cut in two chunks."""
    chunks = [EdgeChunk(0, 30, 0, 5), EdgeChunk(30, 60, 4, 5)]
    monkeypatch.setattr('pygfuse.ops.edge_mlp.tape.chunks_of', lambda csr, size: chunks)
    for module in ('operands', 'tape'):
        monkeypatch.setattr(f'pygfuse.ops.edge_mlp.{module}.edge_chunks_of', lambda device: operators)
    return functools.partial(torch.empty, device='meta')


# torch refuses a tensor on another device than the others
@pytest.mark.parametrize('reduce', ['sum', 'max'])
@pytest.mark.parametrize('is_sorted', [True, False])
def test_all_tensors_are_on_one_device(is_sorted, reduce, elsewhere):
    new, index = elsewhere, functools.partial(elsewhere, dtype=torch.int32)
    csr = Csr(index(TARGETS + 1), index(EDGES), None if is_sorted else index(EDGES))
    edges = SimpleNamespace(graph=lambda: SimpleNamespace(csr=csr))
    features, factors = new(EDGES, 3), new(EDGES, 1)
    stages = [
        *(Begin(new(SOURCES, WIDTH), new(TARGETS, WIDTH)), Plus(features, new(WIDTH, 3)), Activation('tanh')),
        *(Normalise(new(WIDTH), new(WIDTH), 1e-5), Map(new(4, WIDTH), new(4)), Times(new(SOURCES, 4), factors)),
        *(Affine(new(4), new(4)), Rectifier(new(4)), Contract(new(SOURCES, 2), new(6, 8)), Activation('silu')),
        Map(new(WIDTH, 6), new(WIDTH)),
    ]
    tensors = written(stages)[1]
    tape = Tape(tensors, stages, edges, True)
    assert tape.kernels is operators
    out, winners = new(TARGETS, WIDTH), new(TARGETS, WIDTH)
    for chunk in tape.chunks:
        values = tape.forward(chunk)
        if reduce == 'max':
            operators.keep_largest(csr, chunk, values[-1], out, winners)
            operators.spread(csr, chunk, out, winners, tape.grad_of_values(chunk))
        else:
            operators.add_to_targets(csr, chunk, values[-1], out)
            operators.spread(csr, chunk, out, None, tape.grad_of_values(chunk))
        tape.backward(chunk, values)
    found = tape.found()
    assert [(each.shape, each.device) for each in found] == [(each.shape, each.device) for each in tensors]
    assert found[0].device.type == 'meta'
