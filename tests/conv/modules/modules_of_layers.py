"""Modules around layers of PyG's, and the arguments of their calls."""

from __future__ import annotations

import copy

import torch
import torch_geometric.nn as pyg
from torch import nn

from tests.compiler.own_modules import WIDTH


def network(width):
    return nn.Sequential(nn.Linear(width, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())


LAYERS = {
    'GCNConv': lambda: pyg.GCNConv(WIDTH, WIDTH),
    'GATConv': lambda: pyg.GATConv(WIDTH, WIDTH // 2, heads=2),
    'GINConv': lambda: pyg.GINConv(network(WIDTH)),
    'EdgeConv': lambda: pyg.EdgeConv(network(2 * WIDTH)),
    'ChebConv': lambda: pyg.ChebConv(WIDTH, WIDTH, K=2),
    'SAGEConv': lambda: pyg.SAGEConv((WIDTH, WIDTH), WIDTH, aggr='max'),
}


class Gated(nn.Module):
    """G2: how fast a node's features change follows from how they differ along its edges."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.gate = layer, copy.deepcopy(layer)

    def forward(self, x, edge_index):
        h = self.layer(x, edge_index).relu()
        gate = self.gate(h, edge_index)
        change = torch.zeros_like(gate).index_add_(0, edge_index[0], (gate[edge_index[0]] - gate[edge_index[1]]).abs())
        return (1 - change.tanh()) * x + change.tanh() * h


class Wrapped(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index).relu()


def of_module(data, *names):
    torch.manual_seed(0)
    return {name: data[name] for name in ('x', 'edge_index', *names)}
