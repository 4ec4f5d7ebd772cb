"""Modules that gather both ends of their edges at once, or read edges by columns."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import pygfuse
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.compiler.own_modules import WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, assert_same_in_traces, given


class Ends(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2 * WIDTH, WIDTH)


class Columns(Ends):
    """As transaction networks are read: ``x[edge_index.T]`` are pairs of rows."""

    def forward(self, x, edge_index):
        h = self.lin(x[edge_index.T].reshape(-1, 2 * WIDTH)).relu()
        return torch.zeros_like(x).index_add(0, edge_index[1], h), h


class Rows(Ends):
    def forward(self, x, edge_index):
        sources, targets = x[edge_index]
        out = torch.zeros_like(x).index_add(0, edge_index[1], sources * targets.sigmoid())
        return out + torch.zeros_like(x).index_add(0, edge_index[0], x[edge_index][1])


class Reduced(Ends):
    """The product of both ends, their mean, and edges by columns."""

    def forward(self, x, edge_index):
        columns = edge_index.t()
        row, col = columns[:, 0], columns[:, 1]
        score = x[edge_index].prod(dim=0).sum(dim=-1, keepdim=True).tanh()
        message = torch.mean(x[edge_index], 0) * score + sum(x.sin()[edge_index].unbind())
        return torch.zeros_like(x).index_add(0, col, message * x[row]) * len(x[edge_index])


class Chosen(Ends):
    """Rows of columns are edges of their own."""

    def forward(self, x, edge_index):
        edge_index = edge_index.t()[edge_index[0] != edge_index[1]].t()
        return torch.zeros_like(x).index_add(0, edge_index[1], self.lin(x[edge_index.T.T.T].flatten(1)))


KINDS = [Columns, Rows, Reduced, Chosen]


def arguments_of(data):
    return {name: data[name] for name in ('x', 'edge_index')}


@pytest.mark.parametrize('kind', KINDS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments_of(given()))


@pytest.mark.parametrize('kind', KINDS)
def test_each_call_has_its_own_edges(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), arguments_of)
    assert len(compiled.plans()) == 1


@pytest.mark.parametrize('kind', [Columns, Rows, Reduced])
def test_traces_of_them(kind):
    torch.manual_seed(0)
    assert_same_in_traces(kind(), arguments_of(given()))


class Maximum(Ends):
    def forward(self, x, edge_index):
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index].amax(dim=0))


def test_an_extreme_of_both_ends():
    arguments = arguments_of(given())
    # ends that tie share the gradient
    arguments['edge_index'][1, ::3] = arguments['edge_index'][0, ::3]
    assert_same(Maximum(), arguments)


class Table(Ends):
    """Edges are given by columns."""

    def forward(self, x, atom_graph, weight):
        centers, others = x[atom_graph[:, 0]], torch.index_select(x, 0, atom_graph[:, 1])
        message = self.lin(torch.cat([centers, others], dim=1)).tanh() * weight.view(-1, 1)
        return torch.zeros_like(x).index_add(0, atom_graph[:, 0], message)


class Unbound(Ends):
    def forward(self, x, edges, weight):
        i, j = edges.long().unbind(1)
        rows, _ = edges.t()
        message = self.lin(x[edges].flatten(1)).relu() * weight.view(-1, 1)
        out = torch.zeros_like(x).index_add(0, j, message * x[rows])
        return out, message * x[i], edges.size(0) == weight.size(0)


TABLES = {Table: 'atom_graph', Unbound: 'edges'}


def by_columns(kind, data):
    return {'x': data['x'], TABLES[kind]: data['edge_index'].t().contiguous(), 'weight': data['edge_weight']}


@pytest.mark.parametrize('kind', TABLES)
def test_edges_by_columns(kind):
    torch.manual_seed(0)
    assert_same(kind(), by_columns(kind, given()))


@pytest.mark.parametrize('kind', TABLES)
def test_each_call_has_its_own_columns(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), lambda data: by_columns(kind, data))
    assert len(compiled.plans()) == 1


def test_columns_that_change_in_place():
    torch.manual_seed(0)
    module, arguments = Table(), by_columns(Table, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None
        arguments['atom_graph'][:, 1] = arguments['atom_graph'][:, 1].flip(0)


def test_columns_in_traces():
    torch.manual_seed(0)
    assert_same_in_traces(Table(), by_columns(Table, given()))


def test_few_edges_by_columns(by_pyg):
    torch.manual_seed(0)
    module = Table()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for edges, reason in ((100, SO_FEW_EDGES), (100, SO_FEW_EDGES), (9000, None)):
        arguments = by_columns(Table, given(edges=edges))
        torch.testing.assert_close(compiled(**arguments), module(**arguments), rtol=1e-4, atol=1e-4)
        assert compiled.note.reason == reason
