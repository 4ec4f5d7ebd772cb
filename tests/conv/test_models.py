"""Whole models train as those of PyG do."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg

import pygfuse
from tests.support.parity import random_edges

NODES, FEATURES, HIDDEN, CLASSES, STEPS = 200, 8, 8, 4, 20
MODELS = {
    'GCN': (pyg.GCN, {}),
    'GraphSAGE': (pyg.GraphSAGE, {}),
    'GraphSAGE max': (pyg.GraphSAGE, {'aggr': 'max'}),
    'GIN': (pyg.GIN, {}),
    'GATv2': (pyg.GAT, {'v2': True, 'heads': 2}),
    'GAT': (pyg.GAT, {'v2': False, 'heads': 2}),
    'EdgeCNN': (pyg.EdgeCNN, {}),
}


def losses(model: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor, labels: torch.Tensor) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index), labels)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize('name', MODELS)
def test_losses_of_twenty_steps(name):
    torch.manual_seed(0)
    kind, options = MODELS[name]
    model = kind(FEATURES, HIDDEN, num_layers=2, out_channels=CLASSES, **options)
    twin = pygfuse.fuse(copy.deepcopy(model))
    x, edge_index = torch.randn(NODES, FEATURES), random_edges(NODES, NODES, 1500)
    labels = torch.randint(CLASSES, (NODES,))
    expected = losses(model, x, edge_index, labels)
    got = losses(twin, x, edge_index, labels)
    assert got == pytest.approx(expected, rel=1e-5)
    assert expected[-1] < expected[0]
    fused = [row.why_not is None for row in pygfuse.report(twin)]
    assert fused == [True] * 2
    for after, wanted in zip(twin.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(after, wanted, rtol=1e-3, atol=1e-4)
