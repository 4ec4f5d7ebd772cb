"""Modules that take all nodes, all edges or groups of nodes together."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler import modules_of_all_nodes as all_nodes
from tests.compiler.own_modules import WIDTH
from tests.conv.modules.arguments import assert_same, given

ARGUMENTS = {
    all_nodes.Centred: ('x', 'edge_index'),
    all_nodes.Energy: ('x', 'edge_index', 'edge_weight'),
    all_nodes.Ranking: ('x', 'edge_index'),
    all_nodes.Readout: ('x', 'edge_index', 'batch'),
    all_nodes.Counts: ('x', 'edge_index', 'edge_weight'),
    all_nodes.Parts: ('x', 'edge_index'),
    all_nodes.PartsOfParameters: ('x', 'edge_index'),
    all_nodes.Spread: ('x', 'edge_index'),
    all_nodes.Standardised: ('x', 'edge_index'),
    all_nodes.Detached: ('x', 'edge_index'),
    all_nodes.Extremes: ('x', 'edge_index'),
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
    'as many numbers as there are nodes': (lambda x: x.flatten(), None),
    'all nodes by all nodes': (lambda x: torch.cdist(x, x), None),
    'drawn numbers': (lambda x: torch.bernoulli(x.sigmoid()), 'bernoulli has no fused form on edges'),
    'drawn choices': (lambda x: F.gumbel_softmax(x, dim=0), 'gumbel_softmax has no fused form on edges'),
    'numbers': (lambda x: x * x.sum().item(), 'its control flow depends on values'),
    'what torch has': (lambda x: (x - x.median(dim=0).values).logcumsumexp(0), None),
}


@pytest.mark.parametrize('case', CASES)
def test_what_depends_on_values_or_numbers_of_nodes_is_for_its_own_code(case):
    function, reason = CASES[case]
    arguments = {name: given()[name] for name in ('x', 'edge_index')}
    compiled = pygfuse.compile(Summed(function))
    found = compiled(**arguments)
    assert compiled.note.reason == reason
    if not case.startswith('drawn'):
        torch.testing.assert_close(found, Summed(function)(**arguments))


@pytest.mark.parametrize('nodes', [20, 2_000])
def test_a_tensor_for_each_node(nodes):
    """Of many, each of which would be taken out of all again."""
    arguments = {name: given(nodes=nodes)[name] for name in ('x', 'edge_index')}
    own = Summed(lambda x: torch.stack([row.tanh() for row in x.unbind(0)]))
    compiled = pygfuse.compile(copy.deepcopy(own))
    torch.testing.assert_close(compiled(**arguments), own(**arguments))
    assert (compiled.note.reason is None) == (nodes == 20)


class Typed(MessagePassing):
    """A product by the matrix of a type beside a sum over all edges."""

    def __init__(self):
        super().__init__(aggr='sum')
        self.matrices = torch.nn.Parameter(torch.randn(4, WIDTH, WIDTH))

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, edge_type=edge_type)

    def message(self, x_j, edge_type):
        return torch.bmm(x_j.unsqueeze(1), self.matrices[edge_type]).squeeze(1) * x_j.sum(0).tanh()


def test_a_sum_over_edges_beside_matrices_of_types():
    arguments = {name: given()[name] for name in ('x', 'edge_index', 'edge_type')}
    assert_same(Typed(), arguments)


def _first_row_zeroed(x):
    x[0].mul_(0.0)
    return x


def _row_of_shared_scaled(x):
    shared = torch.ones(3, x.size(1)) * 1
    shared[1].add_(1.0)
    return x + shared.sum(0)


def _last_part_scaled(x):
    shared = torch.eye(x.size(1))
    torch.narrow(shared, 0, 2, 2).mul_(3.0)
    return x @ shared


def _rectified_in_place(x):
    x = F.leaky_relu_(F.elu_(x * 2), 0.1)
    return torch.sigmoid_(x) + F.relu(x - 0.5, inplace=True)


BY_ANOTHER = 'it reads a tensor after a write to another one that may share its memory'


@pytest.mark.parametrize(
    ('function', 'reason'),
    [
        (_first_row_zeroed, BY_ANOTHER),
        (_row_of_shared_scaled, BY_ANOTHER),
        (_last_part_scaled, BY_ANOTHER),
        (_rectified_in_place, None),
    ],
)
def test_what_is_written_into_views_and_in_place(function, reason):
    arguments = {name: given()[name] for name in ('x', 'edge_index')}
    compiled = pygfuse.compile(Summed(function))
    torch.testing.assert_close(compiled(**arguments), Summed(function)(**arguments))
    assert compiled.note.reason == reason


def test_a_repetition_of_anything_else_is_for_its_own_code():
    torch.manual_seed(0)
    arguments = arguments_of(all_nodes.Ranking, given())
    assert_same(all_nodes.Tiled(), arguments, 'a shape of shared values depends on the number of edges')


def test_numbers_that_are_the_same_everywhere_keep_their_widths():
    arguments = arguments_of(all_nodes.Ranking, given())
    module = pygfuse.compile(all_nodes.Ones())
    for found, expected in zip(module(**arguments), all_nodes.Ones()(**arguments), strict=True):
        torch.testing.assert_close(found, expected)
    assert module.note.reason is None
