"""What a capture that is refused leaves behind, and what may be captured after it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 20, 90, 4


def add_up(x, edge_index):
    return x.new_zeros(NODES, x.shape[1]).index_add(0, edge_index[1], x[edge_index[0]])


class Noisy(nn.Module):
    def forward(self, x, edge_index):
        return add_up(x, edge_index) * torch.rand(WIDTH)


class NoisyMessage(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j * torch.rand(WIDTH)


class Mapped(nn.Module):
    def __init__(self, lin):
        super().__init__()
        self.lin = lin

    def forward(self, x, edge_index):
        return add_up(self.lin(x).relu(), edge_index)


class MappedMessage(MessagePassing):
    def __init__(self, lin):
        super().__init__()
        self.lin = lin

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.lin(x_i - x_j).relu()


class Asking(nn.Module):
    """What holds for an argument in one call need not in the next."""

    def forward(self, x, edge_index):
        out = add_up(x, edge_index)
        return out if x.is_contiguous() else out * 2


class Comparing(nn.Module):
    def forward(self, x, y, edge_index):
        out = add_up(x, edge_index)
        return out + x if x is y else out


class OnEdges(MessagePassing):
    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return x_j * edge_attr if x_j.is_contiguous() and edge_attr.is_contiguous() else x_j


def arguments():
    torch.manual_seed(0)
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES, EDGES)}


@pytest.mark.parametrize('kind', [Noisy, NoisyMessage])
def test_nothing_is_drawn_by_a_capture(kind):
    module, given = kind(), arguments()
    compiled, drawn = pygfuse.compile(copy.deepcopy(module)), []
    for one in (module, compiled):
        torch.manual_seed(0)
        drawn.append((one(**given), torch.rand(3)))
    torch.testing.assert_close(*drawn)
    assert compiled.note.reason is not None


@pytest.mark.parametrize('lazy', [lambda: nn.LazyLinear(3), lambda: pyg.Linear(-1, 3)], ids=['torch', 'PyG'])
@pytest.mark.parametrize('kind', [Mapped, MappedMessage])
def test_maps_that_the_first_call_initialises(kind, lazy):
    compiled, given = pygfuse.compile(kind(lazy())), arguments()
    first = compiled(**given)
    assert 'a hook is registered' in compiled.note.reason
    torch.testing.assert_close(compiled(**given), first)
    assert compiled.note.reason is None


@pytest.mark.parametrize('kind', [Mapped, MappedMessage])
def test_hooks_that_are_removed(kind):
    compiled, given = pygfuse.compile(kind(nn.Linear(WIDTH, 3))), arguments()
    for _ in range(2):
        handle = compiled.lin.register_forward_hook(lambda lin, taken, out: out * 2)
        doubled = compiled(**given)
        assert 'a hook is registered' in compiled.note.reason
        handle.remove()
        torch.testing.assert_close(compiled(**given) * 2, doubled)
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


def test_how_an_argument_lies_in_memory():
    module, given = Asking(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    others = {**given, 'x': given['x'].t().contiguous().t()}
    for one in (given, others, given, others):
        torch.testing.assert_close(compiled(**one), module(**one))
        assert compiled.note.reason is None
    traced = torch.compile(compiled, backend='aot_eager')
    for one in (given, others):
        torch.testing.assert_close(traced(**one), module(**one))


def test_how_an_argument_of_a_message_lies_in_memory():
    module, given = OnEdges(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for edge_attr in (torch.rand(EDGES, WIDTH), torch.rand(WIDTH, EDGES).t()):
        torch.testing.assert_close(compiled(**given, edge_attr=edge_attr), module(**given, edge_attr=edge_attr))
        assert compiled.note.reason == 'it asks how an argument lies in memory'


class Tied(Mapped):
    def __init__(self, lin, other):
        super().__init__(lin)
        self.other = other

    def forward(self, x, edge_index):
        out = super().forward(x, edge_index)
        return out if self.lin is self.other else out * 2


def test_whether_two_modules_are_one():
    torch.manual_seed(0)
    lin, given = nn.Linear(WIDTH, WIDTH), arguments()
    for module in (Tied(lin, lin), Tied(lin, nn.Linear(WIDTH, WIDTH))):
        compiled = pygfuse.compile(copy.deepcopy(module))
        torch.testing.assert_close(compiled(**given), module(**given))
        assert compiled.note.reason is None


def test_whether_two_arguments_are_one():
    module, given = Comparing(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for other in (given['x'].clone(), given['x']):
        torch.testing.assert_close(compiled(**given, y=other), module(**given, y=other))
        assert compiled.note.reason == 'it asks whether two values are the same one (is)'
