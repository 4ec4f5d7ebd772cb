"""Edges that a layer makes anew in each call are sorted once, and never taken for others."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.graph import orders, remade_edges
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

NODES, EDGES = 50, 400


class Turned(Own):
    """A layer that turns its edges around."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index.flip(0), x=x)

    def message(self, x_j):
        return 2 * x_j


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(remade_edges, 'FEWEST', 100)


@pytest.fixture
def sorts(monkeypatch):
    """The graphs that are sorted, since the last time it was cleared."""
    found, build = [], orders.build
    monkeypatch.setattr(orders, 'build', lambda *arguments: found.append(arguments) or build(*arguments))
    return found


def check(conv, *arguments):
    torch.testing.assert_close(conv(*arguments), pygfuse.unfuse(copy.deepcopy(conv))(*arguments))
    assert conv.note.reason is None


@pytest.mark.parametrize('make', [Turned, lambda: pyg.HypergraphConv(8, 4)], ids=['own', 'HypergraphConv'])
def test_they_are_sorted_once(make, sorts):
    conv, x, edge_index = pygfuse.compile(make()), torch.randn(NODES, 8), random_edges(NODES, NODES, EDGES)
    for _ in range(2):
        check(conv, x, edge_index)
    sorts.clear()
    check(conv, x, edge_index)
    assert not sorts


def test_others_that_look_alike_are_not_taken_for_them():
    conv, x, edge_index = pygfuse.compile(Turned()), torch.randn(NODES, 8), random_edges(NODES, NODES, EDGES)
    for place in (1, 1, 1, 2, 3):
        check(conv, x, edge_index)
        other = edge_index.clone()
        # between those that are looked at
        other[0, place] = (other[0, place] + 1) % NODES
        check(conv, x, other)


def test_edges_of_a_loader_are_not_held():
    conv, x = pygfuse.compile(Turned()), torch.randn(NODES, 8)
    for seed in range(80):
        conv(x, random_edges(NODES, NODES, EDGES, seed=seed))
    held = conv.note.remade._met
    assert len(held) == remade_edges._MOST
    assert set(held.values()) == {None}


def test_another_number_of_nodes_is_another_graph():
    conv, edge_index = pygfuse.compile(Turned()), random_edges(NODES, NODES, EDGES)
    for nodes in (NODES, NODES, NODES, NODES + 3, NODES):
        check(conv, torch.randn(nodes, 8), edge_index)
