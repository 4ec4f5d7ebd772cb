"""Gradients of gradients of networks on chunks of edges, against the same with values of all edges at once."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Linear, Sequential
from torch_geometric.nn.models.schnet import ShiftedSoftplus

from pygfuse.conv import CFConv
from pygfuse.cpu.networks.row_networks import RowNetwork
from pygfuse.memory import peak_bytes, saved_bytes
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import Begin, Map, edge_network, edge_reduce, edge_states
from pygfuse.ops.edge_mlp.reference import reference_network
from pygfuse.program.activation import Activation
from tests.ops.edge_mlp.test_edge_mlp import (  # noqa: F401
    NAMES,
    STAGES,
    WIDTH,
    edges_of,
    leaf,
    leaves_of,
    setting,
    with_features,
)
from tests.support.parity import GRAPHS

ACTIVATIONS = [
    *(Activation('relu'), Activation('leaky_relu', (0.2,)), Activation('elu', (1.0, 1.5)), Activation('silu')),
    *(Activation('gelu'), Activation('gelu_tanh'), Activation('tanh'), Activation('sigmoid')),
    *(Activation('shifted_softplus', (0.7,)), Activation('softplus', (2.0, 20.0))),
]


@pytest.fixture
def no_reference(monkeypatch):
    """Fails where gradients are taken by values of all edges at once."""

    def refused(*_):
        raise AssertionError('values of all edges at once')

    monkeypatch.setattr('pygfuse.ops.edge_mlp.autograd.by_reference', refused)


def second(results, tensors, seed: int, moved=None) -> list[torch.Tensor]:
    """Gradients of a function of the gradients of those `moved`, for all tensors and for the gradients of the results.

    Without `moved`, of all gradients.
    """
    moved = tensors if moved is None else moved
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(r.shape, dtype=r.dtype, generator=generator).requires_grad_() for r in results]
    first = torch.autograd.grad(results, moved, grads, create_graph=True)
    directions = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in first]
    total = sum((t * direction).sum() for t, direction in zip(first, directions, strict=True))
    found = torch.autograd.grad(total, [*tensors, *grads], allow_unused=True, retain_graph=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip([*tensors, *grads], found, strict=True)]


def assert_equal(stages, results, expected) -> None:
    tensors = leaves_of(stages)
    # forces are gradients of no weight
    weights = {id(t) for stage in stages if isinstance(stage, Map) for t in (stage.weight, stage.bias)}
    for moved in (tensors, [t for t in tensors if id(t) not in weights]):
        pairs = zip(second(results, tensors, 1, moved), second(expected, tensors, 1, moved), strict=True)
        for found, right in pairs:
            torch.testing.assert_close(found, right)


@pytest.mark.parametrize('name', STAGES)
@pytest.mark.parametrize('graph', ['bipartite, more targets', 'isolated nodes', 'one node with a loop'])
def test_networks_of_both_ends(graph, name, setting, no_reference):  # noqa: F811
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    edges = edges_of(example)
    stages = [Begin(leaf(example.num_sources, WIDTH), leaf(example.num_targets, WIDTH)), *STAGES[name]()]
    assert_equal(stages, (edge_reduce(stages, edges, 'sum'),), reference_network(stages, edges, 'sum')[:1])


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('graph', ['random', 'bipartite, more targets', 'repeated edges'])
def test_features_of_edges(graph, name, setting, no_reference):  # noqa: F811
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    stages = with_features(example.num_sources, example.num_targets, example.num_edges)[name]
    edges = edges_of(example)
    assert_equal(stages, edge_network(stages, edges, 'sum'), reference_network(stages, edges, 'sum'))
    assert_equal(stages, (edge_states(stages, edges),), reference_network(stages, edges, 'none')[1:])


@pytest.mark.parametrize('act', ACTIVATIONS, ids=lambda act: act.name)
def test_activations(act, no_reference):
    torch.manual_seed(0)
    edges = edges_of(GRAPHS['random']())
    stages = [Begin(leaf(60, WIDTH), leaf(60, WIDTH)), act, Map(leaf(3, WIDTH), leaf(3))]
    assert_equal(stages, (edge_reduce(stages, edges, 'sum'),), reference_network(stages, edges, 'sum')[:1])


def test_a_maximum_takes_operators():
    torch.manual_seed(0)
    edges = edges_of(GRAPHS['random']())
    stages = [Begin(leaf(60, WIDTH), leaf(60, WIDTH)), Activation('tanh'), Map(leaf(3, WIDTH), leaf(3))]
    assert_equal(stages, (edge_reduce(stages, edges, 'max'),), reference_network(stages, edges, 'max')[:1])


def energy_of(stages, edges) -> torch.Tensor:
    return edge_reduce(stages, edges, 'sum').square().sum()


def test_the_third_order():
    torch.manual_seed(0)
    edges = edges_of(GRAPHS['random']())
    x, features = leaf(60, WIDTH), leaf(edges.num_user_edges, WIDTH)
    stages = [Begin(x, None, features), Activation('tanh'), Map(leaf(3, WIDTH), leaf(3))]
    found = []
    for energy in (energy_of(stages, edges), reference_network(stages, edges, 'sum')[0].square().sum()):
        (first,) = torch.autograd.grad(energy, features, create_graph=True)
        (again,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(again.square().sum(), [x, features, stages[-1].weight]))
    torch.testing.assert_close(found[0], found[1])


def test_rows_of_a_hessian_at_once():
    torch.manual_seed(0)
    edges = Edges(torch.tensor([[0, 2, 1, 1, 0], [1, 0, 1, 2, 2]]), 3, 3)
    weight, features = leaf(3, WIDTH), leaf(5, WIDTH)

    def energy(features):
        return energy_of([Begin(features=features), Activation('tanh'), Map(weight, None)], edges)

    first, second = (
        torch.autograd.functional.hessian(energy, features, vectorize=at_once) for at_once in (True, False)
    )
    torch.testing.assert_close(first, second)
    assert second.any()


def forces_of(conv, x, edges):
    """A loss on the gradient of the energy by what edges have."""
    edge_index, length, edge_attr = edges
    (first,) = torch.autograd.grad(conv(x, edge_index, length, edge_attr).square().sum(), edge_attr, create_graph=True)
    return first.square().sum()


def test_nothing_of_edges_is_kept_or_formed():
    torch.manual_seed(0)
    width = 128
    conv = CFConv(8, 8, width, Sequential(Linear(4, width), ShiftedSoftplus(), Linear(width, width)), 3.0)
    x = torch.randn(50, 8, requires_grad=True)

    def measured(num_edges: int) -> tuple[int, int]:
        edges = torch.randint(50, (2, num_edges)), torch.rand(num_edges), torch.randn(num_edges, 4).requires_grad_()
        saved = saved_bytes(lambda: forces_of(conv, x, edges), exclude=[x, *edges, *conv.parameters()])
        return saved, peak_bytes(lambda: forces_of(conv, x, edges).backward(), warmup=1)

    first, second = measured(20_000), measured(40_000)
    # a few numbers of each edge, not of each edge and filter
    assert second[0] - first[0] <= 20_000 * 4 * 12
    assert second[1] - first[1] <= 20_000 * 4 * 24


def test_gradients_of_weights_that_nobody_takes_are_not_computed(monkeypatch):
    torch.manual_seed(0)
    conv = CFConv(8, 8, 6, Sequential(Linear(4, 6), ShiftedSoftplus(), Linear(6, 6)), 3.0)
    x, seen = torch.randn(50, 8, requires_grad=True), []
    edges = torch.randint(50, (2, 400)), torch.rand(400), torch.randn(400, 4).requires_grad_()
    backward = RowNetwork.backward

    def watched(network, *arguments):
        seen.extend(copies is not None for copies in (*arguments[-2], *arguments[-1]))
        backward(network, *arguments)

    monkeypatch.setattr(RowNetwork, 'backward', watched)
    torch.autograd.grad(conv(x, *edges).sum(), edges[2])
    assert seen
    assert not any(seen)
    conv(x, *edges).sum().backward()
    assert any(seen)


class _NoGradient(torch.autograd.Function):
    """Twice its argument, whose gradient says nothing of the second one."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return None


@pytest.mark.parametrize('way', ['eager', 'operator'])
def test_values_of_edges_that_nobody_gives_a_gradient(way):
    """Autograd calls their backward pass all the same, and must not be given what memory held before."""
    edges, x = edges_of(GRAPHS['random']()), leaf(60, 3)
    watched = pytest.MonkeyPatch()
    with watched.context() as patch:
        if way == 'operator':
            patch.setattr('pygfuse.ops.edge_mlp.is_watched', lambda tensors: True)
        values = edge_states([Begin(source=x), Activation('silu')], edges)
    used = torch.full((values.numel(),), torch.nan, dtype=values.dtype)  # what memory holds
    del used
    total = _NoGradient.apply(values).sum() + x.square().sum()
    torch.testing.assert_close(torch.autograd.grad(total, x)[0], 2 * x)
