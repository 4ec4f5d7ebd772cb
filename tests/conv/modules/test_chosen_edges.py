"""Modules that make edges of those that they are given by functions of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.compiler import modules_of_chosen_edges as chosen
from tests.compiler.own_modules import NODES
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, given

ARGUMENTS = {
    chosen.ByEnds: ('x', 'edge_index', 'edge_attr'),
    chosen.ByWeights: ('x', 'edge_index', 'edge_weight', 'edge_type'),
    chosen.BothDirections: ('x', 'edge_index', 'edge_attr'),
    chosen.RowsOfBothDirections: ('x', 'edge_index', 'edge_weight'),
    chosen.LoopsBehind: ('x', 'edge_index', 'edge_weight'),
    chosen.LoopsOfRows: ('x', 'row', 'col'),
    chosen.SharesOfBothEnds: ('x', 'edge_index', 'edge_weight'),
    chosen.OfEnds: ('x', 'edge_index', 'edge_weight'),
    chosen.InOrder: ('x', 'edge_index', 'edge_weight'),
    chosen.WithoutGradients: ('x', 'edge_index', 'edge_weight'),
    chosen.OfOneEnd: ('x', 'edge_index', 'edge_attr', 'edge_type'),
    chosen.OfTwoSets: ('users', 'items', 'edge_index', 'edge_type'),
}
GRAPHS = {
    'any': lambda: given()['edge_index'],
    'one way': lambda: given()['edge_index'].sort(dim=0)[0],
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'isolated nodes': lambda: torch.randint(3, 9, (2, 60)),
}


def arguments_of(kind, data):
    row, col = data['edge_index']
    others = {'row': row, 'col': col, 'users': data['x'], 'items': data['x'][: NODES - 3].flip(0)}
    found = {name: {**data, **others}[name] for name in ARGUMENTS[kind]}
    if kind is chosen.OfTwoSets:
        found['edge_index'] = torch.stack([row, col.clamp(max=NODES - 4)])
    return found


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', ARGUMENTS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    edge_index = GRAPHS[graph]()
    data = {**given(edges=edge_index.shape[1]), 'edge_index': edge_index}
    assert_same(kind(), arguments_of(kind, data))


@pytest.mark.parametrize('kind', [kind for kind in ARGUMENTS if kind is not chosen.OfTwoSets])
def test_each_call_makes_them_of_its_own_edges(kind):
    torch.manual_seed(0)
    assert_each_call_is_of_its_own_edges(kind(), lambda data: arguments_of(kind, data))


@pytest.mark.parametrize('is_training', [True, False])
def test_edges_that_are_drawn_are_those_that_its_own_code_draws(is_training):
    module = chosen.Dropped().train(is_training)
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = arguments_of(chosen.LoopsBehind, given())
    del arguments['edge_weight']
    for seed in range(3):
        outputs = []
        for one in (module, compiled):
            torch.manual_seed(seed)
            outputs.append(one(**arguments))
        torch.testing.assert_close(*outputs)
    assert compiled.note.reason is None


@pytest.mark.parametrize('kind', [chosen.BothDirections, chosen.LoopsBehind, chosen.OfEnds, chosen.OfOneEnd])
def test_edges_of_int32(kind):
    torch.manual_seed(0)
    data = {**given(), 'edge_index': given()['edge_index'].int()}
    assert_same(kind(), arguments_of(kind, data))


class Compares(torch.nn.Module):
    """Compares numbers of edges, which are the same ones."""

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        if edge_weight.size(0) != col.size(0) or x[row].size(0) != edge_index.size(1):
            x = x * 2
        return torch.zeros_like(x).index_add_(0, col, x[row] * edge_weight.unsqueeze(-1))


def test_numbers_of_the_same_edges_are_equal():
    arguments = {name: given()[name] for name in ('x', 'edge_index', 'edge_weight')}
    assert_same(Compares(), arguments)


class ComparesChosen(torch.nn.Module):
    """Compares numbers of edges before and after some are chosen."""

    def forward(self, x, edge_index):
        chosen_edges = edge_index[:, edge_index[0] != edge_index[1]]
        if chosen_edges.size(1) != edge_index.size(1):
            x = x * 2
        row, col = chosen_edges
        return torch.zeros_like(x).index_add_(0, col, x[row])


class OfAllWeights(torch.nn.Module):
    """Chooses half of the edges, and takes the weights of the first that there are."""

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index[:, 1::2]
        return torch.zeros_like(x).index_add_(0, col, x[row] * edge_weight.chunk(2)[0].unsqueeze(-1))


class Counted(torch.nn.Module):
    """As many ones as there were edges, each edge of which is there twice: torch repeats one of a single edge."""

    def forward(self, x, edge_index):
        ones = torch.ones(edge_index.size(1))
        row, col = torch.cat([edge_index, edge_index], dim=1)
        return torch.zeros_like(x).index_add_(0, col, x[row] * ones.unsqueeze(-1))


class Written(torch.nn.Module):
    """Writes into what it has made edges' weights of."""

    def forward(self, x, edge_index, edge_weight):
        weight = edge_weight * 2
        some = weight[20:]
        weight.mul_(3)
        row, col = edge_index[:, 20:]
        return torch.zeros_like(x).index_add_(0, col, x[row] * some.unsqueeze(-1))


@pytest.mark.parametrize(
    ('kind', 'reason'),
    [
        (ComparesChosen, 'it compares numbers of different edges'),
        (Written, 'it writes into a tensor that something else may share'),
    ],
)
def test_what_has_no_form_is_for_its_own_code(kind, reason):
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_type', 'edge_weight')}
    arguments = {name: arguments[name] for name in kind.forward.__code__.co_varnames if name in arguments}
    assert_same(kind(), arguments, reason)


def test_values_of_more_edges_than_it_chooses():
    compiled = pygfuse.compile(OfAllWeights())
    arguments = {name: given(edges=200)[name] for name in ('x', 'edge_index', 'edge_weight')}
    torch.testing.assert_close(compiled(**arguments), OfAllWeights()(**arguments))
    assert compiled.note.reason is None
    arguments = {name: given(edges=201)[name] for name in ('x', 'edge_index', 'edge_weight')}
    for module in (OfAllWeights(), compiled):
        with pytest.raises(RuntimeError, match='must match the size of tensor b'):
            module(**arguments)
    assert compiled.note.reason == 'values of edges that are not as many as these'


def test_as_many_as_there_were_before():
    x, edge_index = torch.randn(5, 4), torch.tensor([[1], [2]])
    compiled = pygfuse.compile(Counted())
    torch.testing.assert_close(compiled(x, edge_index), Counted()(x, edge_index))
    assert compiled.note.reason == 'a number of other edges than it reads'


class Compared(MessagePassing):
    """Weighs edges that are no loops, in a message."""

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j, edge_weight, edge_index_i, edge_index_j):
        return x_j * (edge_weight * (edge_index_i != edge_index_j)).unsqueeze(-1)


def test_ends_that_a_message_compares_are_no_objects():
    arguments = arguments_of(chosen.LoopsBehind, given())
    compiled = pygfuse.compile(Compared())
    torch.testing.assert_close(compiled(**arguments), Compared()(**arguments))
    assert compiled.note.reason == 'it reads the edges themselves (ne)'
