"""What is absent when a layer is captured, what is added to it afterwards, and numbers of rows in arithmetic."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

import pygfuse
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 20, 90, 4


class Summing(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH)])
        self.factors = nn.ParameterList([nn.Parameter(torch.rand(WIDTH)) for _ in range(2)])

    def forward(self, x, edge_index):
        row, col = edge_index
        return self.behind(torch.zeros_like(x).index_add(0, col, x[row].tanh()), x)

    def behind(self, out, x):
        return out


class FirstCall(Summing):
    def behind(self, out, x):
        if not hasattr(self, 'ready'):
            self.ready = True
            return out * 5
        return out


class Previous(Summing):
    def behind(self, out, x):
        before = getattr(self, 'before', None)
        self.before = out.detach()
        return out if before is None else out + before


class Scaled(Summing):
    def behind(self, out, x):
        return out * getattr(self.maps, 'scale', 1.0)


class Mapped(Summing):
    def behind(self, out, x):
        return self.maps(out)


class Listed(Summing):
    def behind(self, out, x):
        for layer in self.layers:
            out = layer(out)
        return out * len(self.layers)


class Weighed(Summing):
    def behind(self, out, x):
        for factor in self.factors:
            out = out * factor
        return out * len(self.factors)


class Last(Summing):
    def behind(self, out, x):
        return self.layers[-1](out)


def arguments():
    torch.manual_seed(0)
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES, EDGES)}


@pytest.mark.parametrize('kind', [FirstCall, Previous])
def test_what_the_first_call_stores(kind):
    module, given = kind(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(3):
        torch.testing.assert_close(compiled(**given), module(**given))
        assert compiled.note.reason is None


class ComparedWithNone(Summing):
    """As some write it: a tensor equals neither None, nor a text, nor a list."""

    def forward(self, x, edge_index, state=None, mode='sum'):
        if state == None:  # noqa: E711
            state = torch.zeros_like(x)
        if state != None and x != mode and x != [1]:  # noqa: E711
            state = state + 2
        row, col = edge_index
        return torch.zeros_like(x).index_add(0, col, x[row].tanh() * state[col])


@pytest.mark.parametrize('has_state', [False, True])
def test_what_is_compared_with_none(has_state):
    module, given = ComparedWithNone(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    given |= {'state': given['x'].cos()} if has_state else {}
    torch.testing.assert_close(compiled(**given), module(**given))
    assert compiled.note.reason is None


def add(module):
    torch.manual_seed(1)
    module.maps.scale = 3.0
    module.maps.append(nn.Linear(WIDTH, WIDTH))
    module.layers.append(nn.Linear(WIDTH, WIDTH))
    module.factors.append(nn.Parameter(torch.rand(WIDTH)))


@pytest.mark.parametrize('is_traced', [False, True])
@pytest.mark.parametrize('kind', [Scaled, Mapped, Listed, Weighed, Last])
def test_what_is_added_later(kind, is_traced):
    torch._dynamo.reset()
    module, given = kind(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    run = torch.compile(compiled, backend='aot_eager') if is_traced else compiled
    torch.testing.assert_close(run(**given), module(**given))
    add(module)
    add(compiled)
    torch.testing.assert_close(run(**given), module(**given))
    assert compiled.note.reason is None


NUMBERS = {
    # as values of the plan
    'quotient': lambda out, count: out / count,
    'product': lambda out, count: out * count,
    'in place': lambda out, count: out.div_(count),
    'function': lambda out, count: torch.clamp(out, max=count / 1000) if type(count) is float else out.clamp(max=count),
    'filled': lambda out, count: out + out.new_full((1,), count),
    'like': lambda out, count: out + torch.full_like(out, count),
    'alpha': lambda out, count: out.add(out, alpha=count),
    'normalised': lambda out, count: nn.functional.normalize(out, eps=count),
}


VALUES = 'quotient', 'product', 'in place'


@pytest.mark.parametrize('of_edges', [False, True])
@pytest.mark.parametrize('name', NUMBERS)
def test_numbers_of_rows_that_are_computed_with(name, of_edges):
    function = NUMBERS[name]

    class Computing(Summing):
        def forward(self, x, edge_index):
            row, col = edge_index
            out = torch.zeros_like(x).index_add(0, col, x[row].tanh())
            return function(out, edge_index.size(1) if of_edges else x.size(0))

    compiled, given = pygfuse.compile(Computing()), arguments()
    torch.testing.assert_close(compiled(**given), Computing()(**given))
    assert (compiled.note.reason is None) is (name in VALUES and not of_edges)


class Between(nn.Module):
    def forward(self, x, y, edge_index):
        out = torch.zeros_like(y).index_add(0, edge_index[1], x[edge_index[0]] / x.size(0))
        return y.size(0) - out * y.size(0)


class Averaged(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j.sin()

    def aggregate(self, inputs, index, dim_size=None):
        out = scatter(inputs, index, 0, dim_size)
        return out - out.sum(dim=0) / dim_size


@pytest.mark.parametrize('kind', [Between, Averaged])
def test_numbers_of_nodes_of_each_call(kind):
    module, results = kind(), []
    compiled = pygfuse.compile(copy.deepcopy(module))
    for sources, targets in ((NODES, NODES), (31, 17), (NODES, NODES + 1)):
        targets = sources if kind is Averaged else targets
        given = {'x': torch.randn(sources, WIDTH), 'edge_index': random_edges(sources, targets, EDGES)}
        given |= {'y': torch.randn(targets, WIDTH)} if kind is Between else {}
        results.append((compiled(**given), module(**given)))
        assert compiled.note.reason is None
    torch.testing.assert_close(*zip(*results, strict=True))
    # one for a set of nodes, and one for two
    assert len(compiled.plans()) == 1 + (kind is Between)
