"""Modules that count their calls."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 20, 90, 4


class TooManyCallsError(Exception):
    pass


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.calls, self.most, self.others = 0, 5, 0

    def forward(self, x, edge_index):
        row, col = edge_index
        self.count()
        return torch.zeros_like(x).index_add(0, col, self.lin(x)[row].relu())

    def count(self):
        self.calls += 1


class Limited(Counting):
    def count(self):
        if self.calls > self.most:
            raise TooManyCallsError
        self.calls += 1


class Warm(Counting):
    """The first calls are others than those that follow."""

    def forward(self, x, edge_index):
        self.calls = 1 + self.calls
        out = super().forward(x, edge_index)
        return out * 2 if self.calls <= 4 else out


class Down(Counting):
    def count(self):
        self.calls -= 2
        self.others += 3


class Layer(MessagePassing):
    calls = 0

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        self.calls = self.calls + 1
        return x_j.tanh()


class Writing(Layer):
    """A message that writes into what it is given before it counts."""

    def message(self, x_j):
        x_j *= 2
        self.calls = self.calls + 1
        return x_j.tanh()


class WritingModule(Counting):
    def forward(self, x, edge_index):
        row, col = edge_index
        x += 1
        self.calls += 1
        return torch.zeros_like(x).index_add(0, col, self.lin(x)[row].relu())


class Scaled(Counting):
    def forward(self, x, edge_index):
        return super().forward(x * self.calls, edge_index)


class Elsewhere(Counting):
    def count(self):
        self.others = self.calls + 1
        self.calls += 1


def arguments():
    torch.manual_seed(0)
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES, EDGES)}


def counts(module):
    return module.calls, getattr(module, 'others', None)


@pytest.mark.parametrize('kind', [Counting, Limited, Warm, Down, Layer, Writing, WritingModule])
def test_each_call_is_counted(kind):
    module, given = kind(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(4):
        theirs = {name: tensor.clone() for name, tensor in given.items()}
        torch.testing.assert_close(compiled(**theirs), module(**given))
        torch.testing.assert_close(theirs, given)
        assert counts(compiled) == counts(module)
        assert compiled.note.reason is None
    assert len(compiled.plans()) == (2 if kind is Warm else 1)


@pytest.mark.parametrize('kind', [Counting, Layer])
def test_copies_count_their_own_calls(kind):
    given = arguments()
    compiled = pygfuse.compile(kind())
    compiled(**given)
    twin = copy.deepcopy(compiled)
    twin(**given)
    twin(**given)
    assert (compiled.calls, twin.calls) == (1, 3)


def test_errors_of_what_is_counted():
    module, given = Limited(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(6):
        compiled(**given)
    with pytest.raises(TooManyCallsError):
        compiled(**given)
    compiled.calls = 0
    torch.testing.assert_close(compiled(**given), module(**given))
    assert (compiled.calls, compiled.note.reason) == (1, None)


def test_a_counter_that_is_no_number_any_more():
    module, given = Limited(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    compiled(**given)
    compiled.calls = 0.5
    torch.testing.assert_close(compiled(**given), module(**given))
    assert compiled.calls == 1.5


@pytest.mark.parametrize('kind', [Scaled, Elsewhere])
def test_what_is_computed_with_is_no_counter(kind):
    module, given = kind(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(3):
        torch.testing.assert_close(compiled(**given), module(**given))
        assert counts(compiled) == counts(module)
    said = {Scaled: 'it computes with calls, which it counts up', Elsewhere: 'it stores calls in others'}
    assert compiled.note.reason == said[kind]


@pytest.mark.parametrize('kind', [Counting, Limited])
def test_in_traces(kind):
    torch._dynamo.reset()
    module, given = kind(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced = torch.compile(compiled, backend='aot_eager')
    for _ in range(3):
        torch.testing.assert_close(traced(**given), module(**given))
    assert compiled.calls == module.calls == 3
