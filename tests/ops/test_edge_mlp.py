"""Networks on chunks of edges, against the same with values of all edges at once."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import (
    Affine,
    Map,
    Rectifier,
    edge_moments,
    edge_reduce,
)
from pygfuse.ops.edge_mlp.reference import reference_moments, reference_reduce
from pygfuse.program.activation import Activation
from tests.support.parity import GRAPHS

WIDTH, OUT = 6, 4


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


STAGES = {
    'nothing': lambda: [],
    'activation': lambda: [Activation('elu', (1.0, 1.0))],
    'map': lambda: [Map(leaf(OUT, WIDTH), leaf(OUT))],
    'affine': lambda: [Affine(leaf(WIDTH), leaf(WIDTH))],
    'rectifier': lambda: [Rectifier(leaf(WIDTH))],
    'all': lambda: [
        *(Activation('tanh'), Map(leaf(OUT, WIDTH), leaf(OUT)), Rectifier(leaf(OUT)), Affine(leaf(OUT), leaf(OUT))),
        *(Activation('relu'), Map(leaf(WIDTH, OUT), leaf(WIDTH))),
    ],
}
CHUNKS = {'whole': (2**21, 256), 'small': (1, 7)}


@pytest.fixture(params=CHUNKS)
def setting(request, monkeypatch):
    chunk_bytes, least = CHUNKS[request.param]
    monkeypatch.setattr('pygfuse.ops.edge_mlp.tape.CHUNK_BYTES', chunk_bytes)
    monkeypatch.setattr('pygfuse.ops.edge_mlp.tape.LEAST_EDGES', least)
    monkeypatch.setattr('pygfuse.ops.edge_mlp.reduction.SETTLED_AFTER', 2)


@pytest.mark.parametrize('reduce', ['sum', 'max', 'moments'])
@pytest.mark.parametrize('name', STAGES)
@pytest.mark.parametrize('graph', ['bipartite, more targets', 'isolated nodes', 'path', 'one node with a loop'])
def test_against_the_reference(graph, name, reduce, setting):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    edges = Edges(example.edge_index, example.num_sources, example.num_targets)
    source, target, stages = leaf(example.num_sources, WIDTH), leaf(example.num_targets, WIDTH), STAGES[name]()
    tensors = [t for stage in stages if not isinstance(stage, Activation) for t in vars(stage).values()]
    operands = (source, target, stages, edges)
    if reduce == 'moments':
        got, expected = edge_moments(*operands), reference_moments(*operands)
    else:
        got, expected = (edge_reduce(*operands, reduce),), (reference_reduce(*operands, reduce),)
    torch.testing.assert_close(got, tuple(expected))
    grads = [torch.randn_like(result) for result in got]
    for found, right in zip(
        torch.autograd.grad(got, [source, target, *tensors], grads),
        torch.autograd.grad(expected, [source, target, *tensors], grads),
        strict=True,
    ):
        torch.testing.assert_close(found, right)


def test_no_edges():
    edges = Edges(torch.empty(2, 0, dtype=torch.int64), 3, 2)
    out = edge_reduce(leaf(3, WIDTH), leaf(2, WIDTH), STAGES['all'](), edges, 'max')
    assert torch.equal(out, torch.zeros(2, WIDTH, dtype=torch.float64))
    out.sum().backward()


def test_moments_far_from_zero():
    edges = Edges(torch.randint(50, (2, 5000)), 50, 50)
    source, target = torch.randn(50, WIDTH), 1000 + torch.randn(50, WIDTH)
    mean, covariance = edge_moments(source, target, [], edges)
    right_mean, right = reference_moments(source.double(), target.double(), [], edges)
    torch.testing.assert_close(mean, right_mean, rtol=1e-7, atol=0)
    # what the sums of both ends are rounded to, against squares of 1e6
    torch.testing.assert_close(covariance, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('width', [1, 5, 16, 21, 300])
def test_widths(width):
    torch.manual_seed(0)
    edges = Edges(torch.randint(9, (2, 80)), 9, 9)
    operands = leaf(9, width), leaf(9, width), [Map(leaf(3, width), leaf(3))], edges
    got, expected = edge_reduce(*operands, 'max'), reference_reduce(*operands, 'max')
    torch.testing.assert_close(got, expected)
    for found, right in zip(
        torch.autograd.grad(got.square().sum(), operands[:2]),
        torch.autograd.grad(expected.square().sum(), operands[:2]),
        strict=True,
    ):
        torch.testing.assert_close(found, right)
