"""Modules that write into views, and by every operator that writes: what shares the memory is written to, too."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
import torch.nn.functional as F

import pygfuse
from tests.compiler.own_modules import WIDTH
from tests.conv.modules.arguments import given

BY_ANOTHER = 'it reads a tensor after a write to another one that may share its memory'


class Writing(torch.nn.Module):
    """A sum of neighbours, and what a function makes of it, of a value of no row and of one that the module stores."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.rand(WIDTH))

    def forward(self, x, edge_index, u):
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.function(self, summed, u)


def _row_of_a_copy(module, summed, u):
    copied = u.clone()
    copied[0].mul_(2)
    return summed, copied


def _transpose(module, summed, u):
    moved = u * 2
    other = moved.t()
    other += 1
    return summed, moved


def _detached(module, summed, u):
    moved = u * 2
    moved.detach().add_(1)
    return summed, moved


def _written_before_its_view_is_read(module, summed, u):
    copied = u.clone()
    column = copied[:, 0]
    copied += 1
    return summed, column


def _stored_value_of_a_parameter(module, summed, u):
    module.kept = module.weight * 2
    module.kept.unsqueeze(0).add_(1)
    return summed, u.sum()


def _other_shape_of_nodes(module, summed, u):
    F.relu(summed.view(-1, 2), inplace=True)
    return summed, u.sum()


def _all_numbers_of_nodes(module, summed, u):
    module.kept = summed
    flat = summed.view(-1)
    flat += 1
    return summed * 2, flat.sum()


THROUGH_VIEWS = [
    _row_of_a_copy, _transpose, _detached, _written_before_its_view_is_read, _stored_value_of_a_parameter,
    _other_shape_of_nodes, _all_numbers_of_nodes,
]  # fmt: skip


def assert_as_own_code(module) -> torch.nn.Module:
    """Checks results, gradients, arguments and what is stored; returns the compiled module."""
    compiled, found = pygfuse.compile(copy.deepcopy(module)), []
    for one in (module, compiled):
        data = given()
        x = data['x'].requires_grad_()
        results = one(x, data['edge_index'], data['u'])
        gradients = torch.autograd.grad(sum(result.square().sum() for result in results), [x, one.weight], None,
                                        allow_unused=True)  # fmt: skip
        found.append([*results, *gradients, data['u'], getattr(one, 'kept', None)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    return compiled


@pytest.mark.parametrize('function', THROUGH_VIEWS)
def test_writes_through_views(function):
    torch.manual_seed(0)
    assert assert_as_own_code(Writing(function)).note.reason == BY_ANOTHER


def _nothing_shares(name):
    def function(module, summed, u):
        first = summed = summed * 1
        summed = getattr(operator, name)(summed, 2)
        scaled = u + 0
        other = scaled
        scaled = getattr(operator, name)(scaled, 2)
        return first, summed, other, scaled

    function.__name__ = name
    return function


@pytest.mark.parametrize('name', ['iadd', 'isub', 'imul', 'itruediv', 'ipow', 'imod'])
def test_every_operator_that_writes(name):
    torch.manual_seed(0)
    assert assert_as_own_code(Writing(_nothing_shares(name))).note.reason is None


@pytest.mark.parametrize('name', ['ipow', 'imod', 'imul'])
def test_messages_that_are_written_to(name):
    class Seen(torch.nn.Module):
        def forward(self, x, edge_index):
            message = self.seen = x[edge_index[0]] * x[edge_index[1]]
            getattr(operator, name)(message, 2)
            return torch.zeros_like(x).index_add(0, edge_index[1], message)

    data, own, compiled = given(edges=5_000), Seen(), pygfuse.compile(Seen())
    for _ in range(2):
        expected, found = (one(data['x'], data['edge_index']) for one in (own, compiled))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(compiled.seen, own.seen)


def _copies(module, summed, x):
    moved = summed * 2
    module.kept = x.detach().clone()
    return (
        summed, moved, summed.clone(), x.clone(), moved + 0, summed.t().clone().t(), x.t().contiguous().t(),
        moved[:, :2].contiguous(), summed.view(-1, 2, 2).clone().view(-1, 4), torch.stack([summed, x])[0].mul(1),
    )  # fmt: skip


def _views(module, summed, x):
    module.kept = summed
    return summed, summed.view(-1, 2), summed.unsqueeze(1), summed.detach()


@pytest.mark.parametrize('function', [_copies, _views])
def test_results_have_the_memory_that_they_have_in_its_own_code(function):
    class Copying(torch.nn.Module):
        def forward(self, x, edge_index):
            return function(self, torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]), x)

    def shared(module):
        x, edge_index = torch.randn(60, 4), torch.randint(60, (2, 6_000))
        tensors = [x, *module(x, edge_index), module.kept]
        memory = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        return [memory.index(one) for one in memory]

    compiled = pygfuse.compile(Copying())
    assert shared(compiled) == shared(Copying())
    assert compiled.note.reason is None


def test_what_is_detached_in_place_is_left_to_its_own_code():
    def detached(module, summed, u):
        moved = summed * module.weight
        turned = moved.t()
        moved.detach_()
        return moved, turned

    module = Writing(detached)
    compiled = pygfuse.compile(copy.deepcopy(module))
    data = given()
    found, expected = (one(data['x'], data['edge_index'], data['u']) for one in (compiled, module))
    assert [one.requires_grad for one in found] == [one.requires_grad for one in expected] == [False, True]
    assert compiled.note.reason == 'it detaches a tensor in place'
