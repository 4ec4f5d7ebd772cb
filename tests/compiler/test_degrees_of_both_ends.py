"""Messages that normalise by degrees themselves, as the first tutorials did: of sources, of targets, at either end."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.utils import add_self_loops, degree

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 6, 11, 50


class Tutorial(Own):
    def forward(self, edge_index, x):
        return self.propagate(add_self_loops(edge_index, num_nodes=x.shape[0])[0], size=(x.shape[0],) * 2, x=x)

    def message(self, x_j, edge_index, size):
        row, col = edge_index
        deg = degree(row, size[0], dtype=x_j.dtype)
        root = deg.pow(-0.5)
        norm = root[row] * root[col]
        return norm.view(-1, 1) * x_j


class WithoutSize(Own):
    """The number of targets is not given, and None."""

    def message(self, x_j, edge_index, size):
        row, _ = edge_index
        root = degree(row, size[0], dtype=x_j.dtype).clamp(min=1).sqrt()
        return x_j.tanh() / root[row].unsqueeze(-1) * (1.0 if size[1] is None else 2.0)


class Masked(Own):
    def message(self, x_i, x_j, edge_index, size):
        row, col = edge_index
        found = []
        for end in (row, col):
            root = degree(end, size[1], dtype=x_j.dtype).pow(-0.5)
            root[root == float('inf')] = 0
            found += [root[row], root[col]]
        return sum(x * weight.unsqueeze(-1) for x, weight in zip((x_i, x_j, x_j.sin(), x_i * x_j), found, strict=True))


class AtSources(Own):
    """Degrees of targets that sources read."""

    def message(self, x_j, edge_index, dim_size):
        return x_j * (degree(edge_index[1], dim_size, dtype=x_j.dtype)[edge_index[0]] + 1).log().view(-1, 1)


def given():
    torch.manual_seed(0)
    return {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH)}


@pytest.mark.parametrize('kind', [Tutorial, WithoutSize, Masked, AtSources])
def test_outputs_and_gradients_are_those_of_pyg(kind):
    assert_as_pyg(kind(), given())


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('kind', [Tutorial, WithoutSize, Masked, AtSources])
def test_few_edges(kind):
    assert_as_pyg(kind(), given())


def test_the_flow_is_reversed():
    conv = WithoutSize(flow='target_to_source')
    reference = pygfuse.compile(copy.deepcopy(conv))
    arguments = given()
    torch.testing.assert_close(reference(**arguments), conv(**arguments))


@pytest.mark.parametrize('kind', [AtSources, WithoutSize])
def test_two_sets_of_nodes(kind):
    x = torch.randn(NODES + 4, WIDTH), torch.randn(NODES, WIDTH)
    conv, edge_index = kind(), random_edges(NODES, NODES, EDGES)
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(4):
        torch.testing.assert_close(fused(edge_index, x=x), conv(edge_index, x=x))
    assert fused.note.reason == 'degrees that are read at the other ends, which are other nodes'


def test_calls_like_the_one_before():
    conv = Tutorial()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for seed in range(5):
        edge_index = random_edges(NODES, NODES, EDGES, seed=seed)
        x = torch.randn(NODES, WIDTH)
        torch.testing.assert_close(fused(edge_index, x), conv(edge_index, x))
    assert fused.note.reason is None
