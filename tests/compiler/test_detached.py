"""What a message computes without gradients, or detaches, has none when it is compiled."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Linear, ReLU, Sequential
from torch_geometric.utils import scatter, softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

WIDTH = 8


class Weighed(Own):
    """A softmax of channels, without gradients."""

    def message(self, x_j, index, size_i):
        with torch.no_grad():
            weight = softmax(x_j, index, num_nodes=size_i)
        return weight * x_j


class Reduced(Own):
    """The largest of a target's messages is taken off them, without gradients."""

    def message(self, x_i, x_j):
        return x_i * x_j

    def aggregate(self, inputs, index, dim_size=None):
        with torch.no_grad():
            highest = scatter(inputs, index, 0, dim_size, 'max')
        return scatter((inputs - highest[index]).exp(), index, 0, dim_size, 'sum')


class Scored(Own):
    """Weights by a network without gradients, which has none either."""

    def __init__(self):
        super().__init__()
        self.lin, self.nn = Linear(WIDTH, WIDTH), Sequential(Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, 1))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x)) + 0.0 * sum(p.sum() for p in self.nn.parameters())

    @torch.no_grad()
    def score(self, x):
        return self.nn(x).sigmoid()

    def message(self, x_i, x_j):
        return self.score(x_i - x_j) * x_j


class Sorted(Scored):
    """Weights by operators that have no words."""

    def score(self, x):
        return torch.cumsum(x.detach(), dim=-1).tanh()


class Whole(Scored):
    """Messages without gradients."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + x

    def message(self, x_i, x_j):
        with torch.no_grad():
            return torch.cumsum(x_i * x_j, dim=-1)


KINDS = [Weighed, Reduced, Scored, Sorted, Whole]


def given(graph):
    example = GRAPHS[graph]()
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, WIDTH)}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges'])
@pytest.mark.parametrize('kind', KINDS)
def test_outputs_and_gradients_are_those_of_pyg(kind, graph):
    torch.manual_seed(0)
    assert_as_pyg(kind(), given(graph))


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('kind', KINDS)
def test_few_edges(kind):
    torch.manual_seed(0)
    assert_as_pyg(kind(), given('random'))


@pytest.mark.parametrize('create_graph', [False, True])
@pytest.mark.parametrize('kind', KINDS)
def test_gradients_of_gradients(kind, create_graph):
    torch.manual_seed(0)
    conv = kind().double()
    fused, found = pygfuse.compile(copy.deepcopy(conv)), []
    edge_index, x = random_edges(20, 20, 90), torch.randn(20, WIDTH, dtype=torch.float64)
    for layer in (conv, fused):
        leaf = x.clone().requires_grad_()
        out = layer(x=leaf, edge_index=edge_index)
        (first,) = torch.autograd.grad((out * x.cos()).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum() + 0.0 * leaf.sum(), leaf, create_graph=create_graph)
        found.append((out, first, second))
    torch.testing.assert_close(found[1], found[0])
    assert fused.note.reason is None


class Seen(torch.nn.Module):
    """A value of edges and the same without gradients, both returned and both summed."""

    def forward(self, x, edge_index):
        gate = (x[edge_index[0]] * x[edge_index[1]]).sigmoid()
        seen = gate.detach()
        out = torch.zeros_like(x).index_add(0, edge_index[1], gate * seen)
        return out, gate, seen, gate.sum() - seen.mean(), (gate * seen).sum(0)


def test_what_is_detached_of_values_in_memory_is_there():
    x, found = torch.randn(40, WIDTH, dtype=torch.float64, requires_grad=True), []
    edge_index, compiled = random_edges(40, 40, 3_000), pygfuse.compile(Seen())
    for module in (Seen(), compiled):
        results = module(x, edge_index)
        total = sum(result.square().sum() for result in results if result.requires_grad)
        found.append((*results, *torch.autograd.grad(total, x)))
    torch.testing.assert_close(found[1], found[0])
    assert compiled.note.reason is None
    assert [result.requires_grad for result in found[1][:5]] == [True, True, False, True, True]
