"""Modules that take all nodes, all edges or groups of nodes together."""

from __future__ import annotations

import copy

import pytest
import torch

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler import modules_of_all_nodes as all_nodes
from tests.conv.modules.arguments import assert_same, given

ARGUMENTS = {
    all_nodes.Centred: ('x', 'edge_index'),
    all_nodes.Energy: ('x', 'edge_index', 'edge_weight'),
    all_nodes.Ranking: ('x', 'edge_index'),
    all_nodes.Readout: ('x', 'edge_index', 'batch'),
    all_nodes.Counts: ('x', 'edge_index', 'edge_weight'),
    all_nodes.Parts: ('x', 'edge_index'),
    all_nodes.PartsOfParameters: ('x', 'edge_index'),
}


def arguments_of(kind, data):
    return {name: data[name] for name in ARGUMENTS[kind]}


@pytest.mark.parametrize('kind', ARGUMENTS, ids=lambda kind: kind.__name__)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments_of(kind, given()))


@pytest.mark.parametrize('kind', ARGUMENTS, ids=lambda kind: kind.__name__)
def test_other_numbers_of_nodes_and_edges(kind):
    torch.manual_seed(0)
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for nodes, edges in ((40, 300), (53, 170), (31, 400)):
        arguments = arguments_of(kind, given(nodes=nodes, edges=edges))
        torch.testing.assert_close(compiled(**arguments), module(**arguments), rtol=1e-3, atol=1e-4)
        assert compiled.note.reason is None


def test_a_sum_over_all_edges_keeps_nothing_for_them():
    compiled = pygfuse.compile(all_nodes.Energy())

    def kept(edges):
        arguments = arguments_of(all_nodes.Energy, given(edges=edges))
        x = arguments['x'].requires_grad_()
        compiled(**arguments)
        return saved_bytes(lambda: compiled(**arguments), exclude=[*arguments.values(), x])

    assert kept(4000) <= kept(1000) + 3000 * 24


class Twice(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        found = torch.zeros_like(x).index_add_(0, col, x[row])
        first, second = torch.zeros(3, x.size(1)), torch.zeros(3, x.size(1))
        first.index_add_(0, torch.arange(x.size(1)).clamp(max=2), torch.einsum('ni,nj->ij', found, found))
        return found, first, second


def test_what_is_written_into_one_tensor_is_not_in_another():
    arguments = {name: given()[name] for name in ('x', 'edge_index')}
    compiled = pygfuse.compile(Twice())
    for found, expected in zip(compiled(**arguments), Twice()(**arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert compiled.note.reason is None


class Summed(torch.nn.Module):
    """A function of what nodes add up."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, edge_index):
        return self.function(torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]]))


CASES = {
    'choices by values': (lambda x: x[x[:, 0] > 0], 'an index by values'),
    'as many numbers as there are nodes': (lambda x: x.flatten(), 'flatten moves the dimension of edges'),
    'all nodes by all nodes': (lambda x: torch.cdist(x, x), 'cdist has no fused form on edges'),
    'drawn numbers': (lambda x: torch.bernoulli(x.sigmoid()), 'bernoulli has no fused form on edges'),
    'numbers': (lambda x: x * x.sum().item(), 'item of a parameter'),
    'what torch has': (lambda x: (x - x.median(dim=0).values).logcumsumexp(0), None),
}


@pytest.mark.parametrize('case', CASES)
def test_what_depends_on_values_or_numbers_of_nodes_is_for_its_own_code(case):
    function, reason = CASES[case]
    arguments = {name: given()[name] for name in ('x', 'edge_index')}
    compiled = pygfuse.compile(Summed(function))
    found = compiled(**arguments)
    assert compiled.note.reason == reason
    if case != 'drawn numbers':
        torch.testing.assert_close(found, Summed(function)(**arguments))
