"""Gradients of EdgeConv, compiled and repeated."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.autograd import gradcheck

from tests.support.edge_conv import FEATURES, NETWORKS, RANDOM, pair
from tests.support.parity import Example, results

pytestmark = pytest.mark.usefixtures('few_or_many')
SMALL = Example(torch.tensor([[0, 1, 2, 2, 3, 1, 1, 3], [1, 2, 0, 1, 3, 1, 2, 0]]), 5, 5)


@pytest.mark.parametrize('aggr', ['max', 'mean'])
@pytest.mark.parametrize('name', ['norm, relu', 'relu, norm', 'two, norm after each', 'three, nothing rises'])
def test_gradients(name, aggr):
    _, conv = pair(NETWORKS[name](), aggr)
    names = [name for name, _ in conv.named_parameters()]
    x = torch.randn(5, FEATURES).double().requires_grad_()

    def run(x, *parameters):
        return torch.func.functional_call(conv, dict(zip(names, parameters, strict=True)), (x, SMALL.edge_index))

    assert gradcheck(run, (x, *conv.parameters()))
    assert conv.note.reason is None


@pytest.mark.slow
@pytest.mark.parametrize('name', ['norm, relu', 'two, norm after each'])
def test_a_double_backward(name):
    found = []
    for conv in pair(NETWORKS[name](), 'mean'):
        x = SMALL.x(FEATURES).double().requires_grad_()
        (first,) = torch.autograd.grad(conv(x, SMALL.edge_index).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *conv.parameters()], allow_unused=True))
    for got, expected in zip(found[1], found[0], strict=True):
        if expected is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize('aggr', ['max', 'mean'])
def test_a_batch_of_gradients(aggr):
    found = []
    for conv in pair(NETWORKS['two, norm after each'](), aggr):
        x = SMALL.x(FEATURES).double().requires_grad_()
        out = conv(x, SMALL.edge_index)
        grads = torch.randn(3, *out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        found.append(torch.autograd.grad(out, [x, *conv.parameters()], grads, is_grads_batched=True))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize('aggr', ['max', 'sum'])
@pytest.mark.parametrize('name', ['norm, relu', 'gelu, norm', 'two, norm after each'])
def test_compiled_without_a_graph_break(name, aggr):
    torch._dynamo.reset()
    _, conv = pair(NETWORKS[name](), aggr)
    x = RANDOM.x(FEATURES).double().requires_grad_()
    found = []
    for function in (copy.deepcopy(conv), torch.compile(conv, fullgraph=True, backend='aot_eager')):
        out = function(x, RANDOM.edge_index)
        found.append((out, *torch.autograd.grad(out.square().sum(), [x, *function.parameters()])))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(('norm', 'reason'), [('batch_norm', None), ('layer_norm', 'nn normalises by batch')])
def test_mlps_are_compiled_without_a_graph_break(norm, reason):
    torch._dynamo.reset()
    _, conv = pair(pyg.MLP([2 * FEATURES, 8, 4], norm=norm))
    x = RANDOM.x(FEATURES).double()
    compiled = torch.compile(conv, fullgraph=True, backend='aot_eager')
    torch.testing.assert_close(compiled(x, RANDOM.edge_index), conv(x, RANDOM.edge_index))
    assert conv.note.reason == reason


@pytest.mark.parametrize('name', ['norm, relu', 'two, norm after each'])
def test_bits_do_not_change_from_run_to_run(name):
    found = []
    for _ in range(2):
        _, conv = pair(NETWORKS[name](), dtype=torch.float32)
        found.append(results(conv, {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}, torch.float32, 0))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
