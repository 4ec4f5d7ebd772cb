"""Tensors of the layer with a row for each edge, which a forward set before its messages read them, or parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Linear, Parameter

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 6, 11, 50


class Weighed(Own):
    def __init__(self):
        super().__init__()
        self.lin = Linear(WIDTH, WIDTH)

    def forward(self, edge_index, x, weight):
        self.weight = weight
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return self.weight.view(-1, 1) * x_j.tanh()


class Features(Weighed):
    def message(self, x_i, x_j):
        return torch.relu(x_i - x_j + self.weight)


class Mapped(Weighed):
    """A network of them, and of sources."""

    def __init__(self):
        super().__init__()
        self.nn = torch.nn.Sequential(Linear(2 * WIDTH, WIDTH), torch.nn.ReLU(), Linear(WIDTH, WIDTH))

    def message(self, x_j):
        return self.nn(torch.cat([x_j, self.weight], dim=-1))


class Learned(Own):
    def __init__(self, edges=EDGES):
        super().__init__()
        self.weight = Parameter(torch.rand(edges))

    def message(self, x_j):
        return x_j.tanh() * self.weight.unsqueeze(-1)


def given(edges=EDGES, width=WIDTH):
    torch.manual_seed(0)
    return {'edge_index': random_edges(NODES, NODES, edges), 'x': torch.randn(NODES, width)}


@pytest.mark.parametrize(('kind', 'width'), [(Weighed, ()), (Features, (WIDTH,)), (Mapped, (WIDTH,))])
def test_outputs_and_gradients_are_those_of_pyg(kind, width):
    assert_as_pyg(kind(), {**given(), 'weight': torch.rand(EDGES, *width)})


def test_a_parameter():
    assert_as_pyg(Learned(), given())


def test_other_numbers_of_edges_take_the_same_plan():
    conv = Weighed()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for edges in (EDGES, EDGES, EDGES + 7, EDGES, 3 * EDGES, EDGES):
        arguments = {**given(edges), 'weight': torch.rand(edges)}
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert fused.note.reason is None
    assert len(fused.plans()) == 1


@pytest.mark.parametrize('shape', [(EDGES + 1,), (EDGES - 1,), (1,), ()], ids=str)
def test_tensors_of_another_length(shape):
    """They broadcast, or raise, as in PyG."""
    conv = Weighed()
    fused = pygfuse.compile(copy.deepcopy(conv))
    fused(**given(), weight=torch.rand(EDGES))
    arguments = {**given(), 'weight': torch.rand(shape)}
    if shape in ((1,), ()):
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
    else:
        for layer in (conv, fused):
            with pytest.raises(RuntimeError):
                layer(**arguments)


class Channels(Own):
    """A number for each channel, of which there are as many as edges in some call."""

    def __init__(self):
        super().__init__()
        self.scale = Parameter(torch.rand(WIDTH))

    def message(self, x_j):
        return x_j.tanh() * self.scale


class Hidden(Channels):
    def __init__(self):
        super().__init__()
        self.lin = Linear(4, WIDTH)

    def message(self, x_j):
        return self.lin(x_j).tanh() * self.scale


@pytest.mark.parametrize(('kind', 'width'), [(Channels, WIDTH), (Hidden, 4)])
def test_as_many_edges_as_channels(kind, width):
    conv = kind()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for edges in (WIDTH, EDGES, WIDTH, EDGES):
        arguments = given(edges, width)
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert edges == WIDTH or fused.note.reason is None


def test_torch_compile():
    conv = Weighed()
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager')
    arguments = {**given(), 'weight': torch.rand(EDGES)}
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
