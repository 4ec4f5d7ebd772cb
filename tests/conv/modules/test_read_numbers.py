"""Modules that read numbers out of integers and truth values of a call: each number has a plan."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import pygfuse
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_same, given


class Readout(nn.Module):
    """Sums over graphs, whose number their numbers tell."""

    def forward(self, x, edge_index, batch):
        row, col = edge_index
        x = torch.zeros_like(x).index_add_(0, col, x[row].tanh() * x[col])
        graphs = int(batch.max()) + 1
        return x.new_zeros(graphs, WIDTH).index_add_(0, batch, x)


class Branches(nn.Module):
    """Doubles its nodes if there is a loop."""

    def forward(self, x, edge_index):
        row, col = edge_index
        if (row == col).any():
            x = x * 2
        return torch.zeros_like(x).index_add_(0, col, x[row].sin())


class OfFeatures(nn.Module):
    """Depends on floating numbers."""

    def forward(self, x, edge_index):
        row, col = edge_index
        if x.sum() > 0:
            x = x * 2
        return torch.zeros_like(x).index_add_(0, col, x[row] * x.max().item())


class OfDrawn(nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        if (torch.rand(row.size(0)) > 0.5).sum() > 90:
            x = x * 2
        return torch.zeros_like(x).index_add_(0, col, x[row])


def test_outputs_and_gradients_are_those_of_its_own_code():
    torch.manual_seed(0)
    data = given()
    assert_same(Readout(), {name: data[name] for name in ('x', 'edge_index', 'batch')})
    edges = data['edge_index'].sort(dim=0)[0]
    for edge_index in (edges, edges[:, edges[0] != edges[1]]):
        assert_same(Branches(), {'x': data['x'], 'edge_index': edge_index})


def test_each_number_has_a_plan():
    compiled = pygfuse.compile(Readout())
    for graphs in (2, 5, 2, 5, 3):
        data = given(graphs)
        batch = torch.arange(NODES) % graphs
        arguments = data['x'], data['edge_index'], batch
        torch.testing.assert_close(compiled(*arguments), Readout()(*arguments))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 3


def test_both_branches_in_turn():
    compiled = pygfuse.compile(Branches())
    edges = given()['edge_index'].sort(dim=0)[0]
    for edge_index in [edges, edges[:, edges[0] != edges[1]]] * 2:
        x = given()['x']
        torch.testing.assert_close(compiled(x, edge_index), Branches()(x, edge_index))
        assert compiled.note.reason is None


def test_numbers_that_are_others_in_each_call_are_for_its_own_code():
    compiled = pygfuse.compile(Readout())
    x, edge_index = given()['x'], given()['edge_index']
    for graphs in range(1, 20):
        batch = torch.arange(NODES) % graphs
        torch.testing.assert_close(compiled(x, edge_index, batch), Readout()(x, edge_index, batch))
    assert compiled.note.reason == 'what its message reads changed more than 16 times'


@pytest.mark.parametrize('kind', [OfFeatures, OfDrawn])
def test_floating_and_drawn_numbers_are_for_its_own_code(kind):
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for sign in (1, -1):
        x, edge_index = sign * given()['x'].abs(), given()['edge_index']
        outputs = []
        for one in (module, compiled):
            torch.manual_seed(0)
            outputs.append(one(x, edge_index))
        torch.testing.assert_close(*outputs)
        assert compiled.note.reason == (
            'its control flow depends on ' + ('values' if kind is OfFeatures else 'the edges')
        )
