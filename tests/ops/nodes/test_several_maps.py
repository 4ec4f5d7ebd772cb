from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes import linear
from pygfuse.ops.nodes.several_maps import Map, apply_at_ends, apply_both, apply_linears, maps_of_rows, products

ROWS = 100


def take_every_map(monkeypatch, request):
    if request.param != 'few rows':
        monkeypatch.setattr(linear, 'LEAST_BYTES', 0)
        monkeypatch.setattr(linear, 'SHARE_PER_BYTE', 1.0)
    monkeypatch.setattr(product_list, 'is_faster', lambda *_: request.param == 'by lists')


every_map = pytest.fixture(take_every_map, params=['by torch', 'by lists'])
every_size = pytest.fixture(take_every_map, params=['few rows', 'by torch', 'by lists'])


def check(function, reference, given, seed=0):
    """Results and gradients, of a loss that reads some results and some rows more than others."""
    found = []
    for compute in (function, reference):
        tensors = [tensor.detach().clone().requires_grad_() for tensor in given]
        results = compute(*tensors)
        torch.manual_seed(seed)
        loss = sum((result * torch.randn_like(result)).square().sum() for result in results)
        found.append([*results, *torch.autograd.grad(loss, tensors)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def three_maps():
    x = torch.randn(ROWS, 5).double()
    weights = [torch.randn(width, 5).double() for width in (3, 5, 2)]
    return x, *weights, torch.randn(5).double()


def test_several_maps_of_the_same_rows(every_size):
    check(
        lambda x, first, second, third, bias: maps_of_rows(x, [Map(first), Map(second, bias), Map(third)]),
        lambda x, first, second, third, bias: [F.linear(x, first), F.linear(x, second, bias), F.linear(x, third)],
        three_maps(),
    )


def test_a_bias_of_another_type(every_map):
    x, weight, bias = torch.randn(ROWS, 5), torch.randn(3, 5), torch.randn(3).double()
    with torch.no_grad():
        (found,) = products(x, [weight], [bias])
    torch.testing.assert_close(found, (x @ weight.t() + bias).float())


@pytest.mark.parametrize('active', [0, 20, 60])
def test_rows_without_a_gradient_are_left_out(every_map, active, monkeypatch):
    x, *weights, _ = three_maps()
    seen, of_rows = [], linear.weight_gradient
    monkeypatch.setattr(linear, 'weight_gradient', lambda *given: seen.append(len(given[1])) or of_rows(*given))
    check(
        lambda x, *weights: [each[:active] for each in maps_of_rows(x, [Map(weight) for weight in weights])],
        lambda x, *weights: [F.linear(x, weight)[:active] for weight in weights],
        (x, *weights),
    )
    assert seen == ([active] * 3 if active <= 50 else [])


def test_a_result_without_a_gradient(every_map):
    x, first, second, *_ = three_maps()
    check(
        lambda x, first: maps_of_rows(x, [Map(first), Map(second)])[:1],
        lambda x, first: [F.linear(x, first)],
        (x, first),
    )


def test_nodes_without_edges_turn_nothing_into_nan(every_map):
    x, first, second, *_ = three_maps()
    counts = (torch.arange(ROWS) > 0).double()
    x[0] = torch.nan
    first.requires_grad_(), second.requires_grad_()
    found = maps_of_rows(x, [Map(first, None, lambda: counts), Map(second)])
    of_first, of_second = torch.autograd.grad(sum(each.sum() for each in found), (first, second))
    torch.testing.assert_close(of_first, x[1:].sum(0).expand_as(first))
    assert bool(of_second.isnan().all())


def test_twice_differentiated(every_map):
    x, *weights, _ = (tensor[:4].requires_grad_() for tensor in three_maps())

    def mapped(x, *weights):
        return [each.tanh() for each in maps_of_rows(x, [Map(weight) for weight in weights])]

    assert torch.autograd.gradgradcheck(mapped, (x, *weights))
    modules = torch.nn.Linear(5, 3).double(), torch.nn.Linear(5, 3).double()
    assert torch.autograd.gradgradcheck(lambda x: apply_both(modules[0], x, modules[1], x.sin()).tanh(), (x,))


@pytest.mark.parametrize('biases', [(True, True), (True, False), (False, False)])
def test_the_sum_of_two_maps(every_size, biases):
    one, other = (torch.nn.Linear(width, 3, bias).double() for width, bias in zip((5, 4), biases, strict=True))
    given = torch.randn(ROWS, 5).double(), torch.randn(ROWS, 4).double()
    check(
        lambda first, second: [apply_both(one, first, other, second)],
        lambda first, second: [one(first) + other(second)],
        given,
    )
    grads = []
    for compute in (lambda: apply_both(one, given[0], other, given[1]), lambda: one(given[0]) + other(given[1])):
        parameters = [*one.parameters(), *other.parameters()]
        grads.append(torch.autograd.grad(compute().square().sum(), parameters))
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_module_that_is_more_than_a_map_is_called(every_map):
    modules, x, seen = [torch.nn.Linear(5, 3) for _ in range(3)], torch.randn(ROWS, 5), []
    modules[1].register_forward_hook(lambda *_: seen.append(1))
    expected = [module(x) for module in modules]
    for found in (apply_linears(modules, x), apply_at_ends(modules[0], modules[1:], (x, x))):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
    apply_both(modules[0], x, modules[1], x)
    assert len(seen) == 4


def test_two_ends(every_map):
    modules, x = [torch.nn.Linear(5, 3) for _ in range(3)], (torch.randn(ROWS, 5), torch.randn(7, 5))
    found = apply_at_ends(modules[0], modules[1:], x)
    for one, other in zip(found, (modules[0](x[1]), modules[1](x[0]), modules[2](x[0])), strict=True):
        torch.testing.assert_close(one, other)


def test_without_gradients(every_map):
    modules, x = [torch.nn.Linear(5, 3) for _ in range(2)], torch.randn(ROWS, 5)
    with torch.no_grad():
        torch.testing.assert_close(apply_both(modules[0], x, modules[1], x), modules[0](x) + modules[1](x))
        for one, module in zip(apply_linears(modules, x), modules, strict=True):
            torch.testing.assert_close(one, module(x))
