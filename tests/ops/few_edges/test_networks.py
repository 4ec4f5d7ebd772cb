"""Networks on few edges as they come: the numbers of PyG's layer, with ties shared, and who takes them otherwise."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import Linear, ReLU, Sequential, SiLU, Tanh

from pygfuse.cpu.compilation import team
from pygfuse.ops.few_edges.networks import network_along
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork
from tests.support.operators import Names
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES, WIDTH = 21, 13, 150, 3
ACTS = {ReLU: Activation('relu'), SiLU: Activation('silu'), Tanh: Activation('tanh')}
NETWORKS = {
    'one map': lambda: Sequential(Linear(2 * WIDTH, 5)),
    'one map, no bias, silu': lambda: Sequential(Linear(2 * WIDTH, 70, bias=False), SiLU()),
    'two maps': lambda: Sequential(Linear(2 * WIDTH, 9), ReLU(), Linear(9, 6)),
    'two maps side by side': lambda: Sequential(Linear(2 * WIDTH, 9), Linear(9, 4), Tanh()),
    'three maps': lambda: Sequential(
        Linear(2 * WIDTH, 80), Tanh(), Linear(80, 7, bias=False), SiLU(), Linear(7, 66), ReLU()
    ),
}
every = pytest.mark.parametrize('name', NETWORKS)
reduces = pytest.mark.parametrize('reduce', ['sum', 'mean', 'max', 'min'])


def network_of(nn: Sequential, reduce: str, dtype: torch.dtype, shared: bool) -> FewEdgeNetwork:
    first, *others = nn
    stages = tuple(stage.weight.shape[0] if isinstance(stage, Linear) else ACTS[type(stage)] for stage in others)
    biased = tuple(stage.bias is not None for stage in nn if isinstance(stage, Linear))
    return FewEdgeNetwork(WIDTH, len(first.weight), stages, reduce, dtype, shared, biased)


def few(num_sources: int, num_targets: int, flow: str = 'source_to_target') -> FewEdges:
    edge_index = random_edges(num_sources, num_targets, EDGES)
    # a target without edges
    edge_index[1][edge_index[1] == 2] = 1
    return FewEdges(edge_index if flow == 'source_to_target' else edge_index.flip(0), flow, num_sources, num_targets)


def rows(count: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(count)).to(dtype).requires_grad_()


def along(network, edges, pair, nn) -> torch.Tensor:
    maps = [stage for stage in nn if isinstance(stage, Linear)]
    return network_along(network, edges, pair, [m.weight for m in maps], [m.bias for m in maps])


def given(name: str = 'two maps', reduce: str = 'max', shared: bool = True, dtype: torch.dtype = torch.float64):
    torch.manual_seed(1)
    nn = NETWORKS[name]().to(dtype)
    edges = few(SOURCES, SOURCES if shared else TARGETS)
    pair = (rows(SOURCES, dtype), None if shared else rows(TARGETS, dtype))
    return network_of(nn, reduce, dtype, shared), edges, pair, nn


def leaves(pair, nn) -> list[torch.Tensor]:
    return [*(x for x in pair if x is not None), *nn.parameters()]


def plain(edges, pair, nn, reduce) -> torch.Tensor:
    x, x_target = pair
    # a constructor given the network would draw its parameters anew
    conv = pyg.EdgeConv(torch.nn.Identity(), aggr=reduce, flow=edges.flow)
    conv.nn = nn
    return conv(x if x_target is None else (x, x_target), edges.edge_index)


@every
@reduces
@pytest.mark.parametrize('shared', [True, False])
def test_the_numbers_of_the_layer_of_pyg(name, reduce, shared):
    network, edges, pair, nn = given(name, reduce, shared)
    found, expected = along(network, edges, pair, nn), plain(edges, pair, nn, reduce)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves(pair, nn), grad), torch.autograd.grad(expected, leaves(pair, nn), grad)
    )
    with torch.no_grad():
        assert torch.equal(along(network, edges, pair, nn), found)


def test_the_other_flow():
    network, _, pair, nn = given()
    edges = few(SOURCES, SOURCES, 'target_to_source')
    found, expected = along(network, edges, pair, nn), plain(edges, pair, nn, 'max')
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(out.sum(), leaves(pair, nn)) for out in (found, expected)))


@pytest.mark.parametrize('create_graph', [False, True])
@pytest.mark.parametrize('reduce', ['max', 'min'])
def test_edges_that_tie_share_the_gradient(reduce, create_graph):
    network, edges, (x, _), nn = given('two maps', reduce)
    # small numbers of which all sums are exact, as a library's products of equal rows may differ; no extreme is 0
    with torch.no_grad():
        for tensor in leaves((x,), nn):
            tensor.copy_((2 * tensor).round())
        nn[2].bias.add_(0.5)
    found, expected = along(network, edges, (x, None), nn), plain(edges, (x, None), nn, reduce)
    of_found = torch.autograd.grad(found.sin().sum(), leaves((x,), nn), create_graph=create_graph)
    torch.testing.assert_close(of_found, torch.autograd.grad(expected.sin().sum(), leaves((x,), nn)))


@reduces
@pytest.mark.parametrize('shared', [True, False])
def test_second_derivatives(reduce, shared):
    network, edges, pair, nn = given('one map, no bias, silu', reduce, shared)
    found = []
    for out in (along(network, edges, pair, nn), plain(edges, pair, nn, reduce)):
        first = torch.autograd.grad(out.square().sum(), leaves(pair, nn), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves(pair, nn)))
    torch.testing.assert_close(*found)


def test_many_gradients_at_once():
    network, edges, pair, nn = given()
    out = along(network, edges, pair, nn)
    grads = torch.randn(3, *out.shape, dtype=out.dtype)
    many = torch.autograd.grad(out, pair[0], grads, is_grads_batched=True, retain_graph=True)[0]
    one_by_one = [torch.autograd.grad(out, pair[0], grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(many, torch.stack(one_by_one))


def test_who_intercepts_operators_sees_some():
    network, edges, pair, nn = given()
    out = along(network, edges, pair, nn).square().sum()
    (expected,) = torch.autograd.grad(out, pair[0], retain_graph=True)
    with Names() as names:
        (found,) = torch.autograd.grad(out, pair[0])
    assert any('index_add' in name for name in names.seen)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('value', [float('inf'), float('nan')])
@pytest.mark.parametrize('of', ['a node without edges', 'a node', 'a weight'])
@pytest.mark.parametrize('reduce', ['max', 'sum'])
def test_what_is_not_finite(value, of, reduce):
    network, edges, (x, _), nn = given('two maps', reduce)
    edges.edge_index[edges.edge_index == 4] = 5
    with torch.no_grad():
        if of == 'a weight':
            nn[0].weight[1, 1] = value
        else:
            x[4 if of == 'a node without edges' else 5, 1] = value
    found, expected = along(network, edges, (x, None), nn), plain(edges, (x, None), nn, reduce)
    torch.testing.assert_close(found, expected, equal_nan=True)
    of_found, of_expected = (torch.autograd.grad(out.sum(), leaves((x,), nn)) for out in (found, expected))
    torch.testing.assert_close(of_found, of_expected, equal_nan=True)


@pytest.mark.parametrize('place', [0, 1])
@pytest.mark.parametrize('node', [-1, SOURCES])
def test_nodes_that_are_not_there(place, node):
    network, edges, pair, nn = given()
    edges.edge_index[place, 17] = node
    with pytest.raises(ValueError, match=rf'edge_index\[{place}\] holds node {node} at position 17'):
        along(network, edges, pair, nn)


def test_edges_that_are_written_to_before_backward():
    network, edges, pair, nn = given()
    out = along(network, edges, pair, nn)
    edges.edge_index[0, 0] = 0
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


@pytest.mark.parametrize('dtype', [torch.int64, torch.int32])
def test_hooks_of_saved_tensors(dtype):
    """What they give back may be laid out otherwise."""
    network, edges, pair, nn = given()
    (expected,) = torch.autograd.grad(along(network, edges, pair, nn).sum(), pair[0])

    def packed(tensor):
        if tensor.dim() < 2:
            return tensor
        return (tensor if tensor.is_floating_point() else tensor.to(dtype)).t().contiguous()

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda t: t if t.dim() < 2 else t.t()):
        out = along(network, edges, pair, nn)
    assert torch.equal(torch.autograd.grad(out.sum(), pair[0])[0], expected)


def test_gradients_that_nobody_wants():
    network, edges, (x, _), nn = given()
    nn[0].weight.requires_grad_(False)
    expected = torch.autograd.grad(along(network, edges, (x, None), nn).sum(), [nn[0].bias, nn[2].weight])
    out = along(network, edges, (x.detach(), None), nn)
    out.sum().backward()
    assert x.grad is None
    assert nn[0].weight.grad is None
    torch.testing.assert_close([nn[0].bias.grad, nn[2].weight.grad], list(expected))


def test_no_edges_and_no_nodes():
    network, _, pair, nn = given()
    for count in (SOURCES, 0):
        edges = FewEdges(torch.empty(2, 0, dtype=torch.int64), 'source_to_target', count, count)
        x = pair[0][:count]
        out = along(network, edges, (x, None), nn)
        assert torch.equal(out, torch.zeros(count, 6, dtype=x.dtype))
        assert not any(g.any() for g in torch.autograd.grad(out.sum(), list(nn.parameters())))


def test_no_team_is_woken(monkeypatch):
    network, edges, pair, nn = given(dtype=torch.float32)
    monkeypatch.setattr(team, 'run', None)
    along(network, edges, pair, nn).sum().backward()


def test_rows_that_are_not_laid_out_one_behind_another():
    network, edges, (x, _), nn = given()
    other = copy.deepcopy(nn)
    other[0].weight = torch.nn.Parameter(nn[0].weight.detach().t().contiguous().t())
    turned = x.detach().t().contiguous().t().requires_grad_()
    found, expected = along(network, edges, (turned, None), other), along(network, edges, (x, None), nn)
    assert torch.equal(found, expected)
    grad = torch.randn_like(found.t()).t()
    of_found = torch.autograd.grad(found, leaves((turned,), other), grad)
    torch.testing.assert_close(of_found, torch.autograd.grad(expected, leaves((x,), nn), grad))
