"""Results lie in memory as PyG's do, so that callers may take views of them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from tests.support.parity import random_edges

NODES, CHANNELS = 30, 8
EDGE_INDEX = random_edges(NODES, NODES, 200)


class Viewed(pyg.MessagePassing):
    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out.view(len(out), -1)

    def message(self, x_j):
        return x_j


LAYERS = {
    'GCNConv': lambda: pyg.GCNConv(CHANNELS, CHANNELS),
    'LGConv': pyg.LGConv,
    'APPNP': lambda: pyg.APPNP(2, 0.1),
    'LEConv': lambda: pyg.LEConv(CHANNELS, CHANNELS),
    'GINConv': lambda: pyg.GINConv(torch.nn.Identity()),
    'GraphConv': lambda: pyg.GraphConv(CHANNELS, CHANNELS),
    'views of sums': Viewed,
}


@pytest.mark.parametrize('shape', [(1, NODES), (2, NODES), (9, NODES), (2, 3, NODES)])
@pytest.mark.parametrize('name', LAYERS)
def test_of_several_copies_of_a_graph(name, shape):
    torch.manual_seed(0)
    plain = LAYERS[name]()
    fused, x = pygfuse.fuse(copy.deepcopy(plain)), torch.randn(*shape, CHANNELS)
    for _ in range(2):
        out, expected = fused(x, EDGE_INDEX), plain(x, EDGE_INDEX)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        assert out.is_contiguous() == expected.is_contiguous()
    assert fused.note.reason is None
