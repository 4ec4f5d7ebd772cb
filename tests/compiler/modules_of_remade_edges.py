"""Modules that make edges anew of those that they are given, before they read them."""

import torch
from torch import nn
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    coalesce,
    degree,
    remove_self_loops,
    scatter,
    softmax,
    to_undirected,
)

from tests.compiler.own_modules import OF_EDGES, WIDTH


class Normalised(nn.Module):
    """A graph convolution by hand, with self-loops."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        scale = degree(col, x.size(0), x.dtype).pow(-0.5)
        x = self.lin(x)
        return torch.zeros_like(x).index_add_(0, col, (scale[row] * scale[col]).unsqueeze(-1) * x[row])


class Attention(nn.Module):
    """Attention to all but itself, and to itself by features of loops that are averages of those of other edges."""

    def __init__(self):
        super().__init__()
        self.lin, self.score, self.of_edges = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        edge_index, edge_attr = remove_self_loops(edge_attr=edge_attr, edge_index=edge_index)
        edge_index, edge_attr = add_self_loops(edge_index, edge_attr, fill_value='mean', num_nodes=x.size(0))
        row, col = edge_index
        x = self.lin(x)
        score = self.score(torch.tanh(x[row] + x[col] + self.of_edges(edge_attr)))
        return scatter(softmax(score, col, num_nodes=x.size(0)) * x[row], col, dim=0, dim_size=x.size(0), reduce='sum')


class Undirected(nn.Module):
    """Differences along edges of both directions, each of which there is once."""

    def forward(self, x, edge_index, edge_weight=None):
        edge_index, edge_weight = to_undirected(edge_index, edge_weight, num_nodes=x.size(0), reduce='mean')
        row, col = edge_index
        weight = 1.0 if edge_weight is None else edge_weight.unsqueeze(-1)
        return x + scatter(weight * torch.relu(x[row] - x[col]), row, dim=0, dim_size=x.size(0), reduce='max')


class Remaining(nn.Module):
    """Loops where there are none, edges that are there twice as one, and of both what a dict holds."""

    def forward(self, data):
        edge_index = coalesce(data['edge_index'], num_nodes=data['x'].size(0))
        edge_index, _ = add_remaining_self_loops(edge_index)
        x, (row, col) = data['x'], edge_index
        for _ in range(2):
            x = torch.zeros_like(x).index_add(0, col, x[row] * 0.1)
        return x
