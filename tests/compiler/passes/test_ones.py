"""Dimensions of one number within rows, which layers of a single head have."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.compiler.ir.values import in_order
from tests.compiler.as_pyg import assert_as_pyg
from tests.support.parity import random_edges

NODES, EDGES, OF_EDGES, WIDTH = 20, 90, 12, 16


class OfOneHead(MessagePassing):
    """Rows ``[1, channels]``: networks of both ends and of mapped features of edges, which gate each other."""

    def __init__(self, heads=1, width=WIDTH):
        super().__init__(aggr='add', node_dim=0)
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.of_edges = nn.Linear(OF_EDGES, width)
        wide = 2 * (WIDTH // heads) + width // heads
        self.first, self.second = (
            nn.Sequential(nn.Linear(wide, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH // heads)) for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH // heads)

    def forward(self, x, edge_index, edge_attr):
        rows = {name: lin(x).view(len(x), self.heads, -1) for name, lin in self.maps()}
        return self.propagate(edge_index, edge_attr=edge_attr, **rows).flatten(1)

    def maps(self):
        return (('query', self.query), ('key', self.key), ('value', self.value))

    def message(self, query_i, key_i, key_j, value_i, value_j, edge_attr):
        edge_attr = self.of_edges(edge_attr).view(edge_attr.shape[0], self.heads, -1)
        key = self.first(torch.cat([key_i, key_j, edge_attr], dim=-1))
        gate = torch.sigmoid(query_i * key / 2.0)
        return self.second(torch.cat((value_i, value_j, edge_attr), dim=-1)) * gate


class Attention(OfOneHead):
    def message(self, query_i, key_i, key_j, value_i, value_j, edge_attr, index, size_i):
        message = super().message(query_i, key_i, key_j, value_i, value_j, edge_attr)
        return softmax(message.sum(-1, keepdim=True), index, num_nodes=size_i) * value_j


class Normalised(OfOneHead):
    def message(self, query_i, key_i, key_j, value_i, value_j, edge_attr):
        return self.norm(super().message(query_i, key_i, key_j, value_i, value_j, edge_attr))


def given():
    torch.manual_seed(0)
    return {
        'x': torch.randn(NODES, WIDTH),
        'edge_index': random_edges(NODES, NODES, EDGES),
        'edge_attr': torch.randn(EDGES, OF_EDGES),
    }


@pytest.mark.parametrize('kind', [OfOneHead, Attention, Normalised])
@pytest.mark.parametrize('heads', [1, 2])
def test_numbers(kind, heads):
    assert_as_pyg(kind(heads), given())


@pytest.mark.parametrize('width', [2, WIDTH])
def test_a_map_of_a_map(width):
    """A narrow one between is taken by itself, as one of both would be more products."""
    layer = OfOneHead(width=width)
    assert_as_pyg(copy.deepcopy(layer), given())
    compiled = pygfuse.compile(layer)
    compiled(**given())
    plan = compiled.plans()[0]
    products = [n for n in plan.steps if n.op == 'call' and n.attributes['function'] is torch.matmul]
    assert len(products) == (0 if width == 2 else 2)


def test_networks_have_kernels():
    compiled = pygfuse.compile(OfOneHead())
    compiled(**given())
    plan = compiled.plans()[0]
    assert plan.chunked_reductions == 0
    assert {form.title for form in plan.walks.values()} == {
        'walk: sum, heads=1, channels=16',
        'network on chunks of edges: values of edges',
    }
    assert all(len(node.shape) == 1 for node in in_order(plan.output) if node.op == 'reduce')
