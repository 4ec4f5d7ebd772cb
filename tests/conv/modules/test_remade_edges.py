"""Modules that make edges anew of those that they are given."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.utils import remove_self_loops

import pygfuse
from tests.compiler import modules_of_remade_edges as remade
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, given

ARGUMENTS = {
    'Normalised': (remade.Normalised, lambda d: {k: d[k] for k in ('x', 'edge_index')}),
    'Attention': (remade.Attention, lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_attr')}),
    'Undirected': (remade.Undirected, lambda d: {k: d[k] for k in ('x', 'edge_index')}),
    'Undirected, weights': (remade.Undirected, lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_weight')}),
    'Remaining': (remade.Remaining, lambda d: {'data': {k: d[k] for k in ('x', 'edge_index')}}),
}
GRAPHS = {
    'any': lambda: given()['edge_index'],
    'self-loops alone': lambda: torch.arange(NODES).repeat(2, 2),
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'isolated nodes': lambda: torch.tensor([[3, 3, 4, 9, 4], [4, 9, 4, 3, 4]]),
}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('name', ARGUMENTS)
def test_outputs_and_gradients_are_those_of_its_own_code(name, graph):
    torch.manual_seed(0)
    kind, arguments_of = ARGUMENTS[name]
    edge_index = GRAPHS[graph]()
    data = {**given(edges=edge_index.shape[1]), 'edge_index': edge_index}
    assert_same(kind(), arguments_of(data))


@pytest.mark.parametrize('name', ARGUMENTS)
def test_each_call_makes_them_of_its_own_edges(name):
    torch.manual_seed(0)
    kind, arguments_of = ARGUMENTS[name]
    assert_each_call_is_of_its_own_edges(kind(), arguments_of)


class OfOldEdges(torch.nn.Module):
    """Takes features of the edges that it was given for those of the edges that it made, which are as many."""

    def forward(self, x, edge_index, edge_attr):
        row, col = remove_self_loops(edge_index)[0]
        return torch.zeros_like(x).index_add_(0, col, x[row] * edge_attr[:, :1])


def test_values_of_edges_before_are_for_its_own_code():
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_attr')}
    arguments['edge_index'][1] = (arguments['edge_index'][0] + 1) % NODES
    compiled = pygfuse.compile(copy.deepcopy(OfOldEdges()))
    torch.testing.assert_close(compiled(**arguments), OfOldEdges()(**arguments))
    assert compiled.note.reason == 'values of edges before they are made anew'


def test_no_edges_are_left():
    compiled = pygfuse.compile(WithoutLoops())
    for edges in (given()['edge_index'], torch.arange(NODES).repeat(2, 2)):
        x = given()['x']
        torch.testing.assert_close(compiled(x, edges), WithoutLoops()(x, edges))
    assert compiled.note.reason == 'there are no edges'


class WithoutLoops(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = remove_self_loops(edge_index)[0]
        return torch.zeros_like(x).index_add_(0, col, x[row])


def test_of_many_edges_it_sorts_those_that_come_again_once():
    edges = torch.randint(1000, (2, 12_000))
    compiled, x = pygfuse.compile(WithoutLoops()), torch.randn(1000, WIDTH)
    for _ in range(4):
        torch.testing.assert_close(compiled(x, edges), WithoutLoops()(x, edges), rtol=1e-4, atol=1e-4)
    assert compiled.note.remade is not None
    assert compiled.note.reason is None
