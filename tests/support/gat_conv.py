"""GATConv beside that of PyG, for its tests."""

from __future__ import annotations

import torch
from torch_geometric.nn import GATConv as PyGATConv

from pygfuse.conv import GATConv
from tests.support.parity import GRAPHS, Parity, random_edges

GAT = Parity(PyGATConv, GATConv)
FEATURES, HEADS, CHANNELS, EDGE_DIM = 6, 4, 8, 3
BASE = {'in_channels': FEATURES, 'out_channels': CHANNELS, 'heads': HEADS}
RANDOM = GRAPHS['random']()


def layers(dtype=torch.float32, **options):
    pyg, fused = GAT.make({**BASE, **options})
    return pyg.to(dtype), fused.to(dtype)


MANY_EDGES = random_edges(500, 500, 20_000, seed=3)
MANY_X = torch.randn(500, FEATURES, generator=torch.Generator().manual_seed(4))
