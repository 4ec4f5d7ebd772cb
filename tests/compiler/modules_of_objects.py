"""Layers that are given an object with all their tensors, as graph transformers are: what the tests compile whole."""

import numpy as np
import torch
from torch import nn
from torch_geometric.utils import scatter, softmax

from tests.compiler.own_modules import OF_EDGES, WIDTH


class Expander(nn.Module):
    """Attention along one of the edges that an object holds, where it keeps all that it computes."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads, self.channels = heads, WIDTH // heads
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.e = nn.Linear(OF_EDGES, WIDTH, bias=False)

    def attend(self, batch, edge_index):
        src = batch.K_h[edge_index[0].to(torch.long)]
        dest = batch.Q_h[edge_index[1].to(torch.long)]
        score = torch.mul(src, dest) / np.sqrt(self.channels)
        score = torch.exp(torch.mul(score, batch.E).sum(-1, keepdim=True).clamp(-5, 5))
        msg = batch.V_h[edge_index[0].to(torch.long)] * score
        batch.wV = torch.zeros_like(batch.V_h)
        batch.wV.index_add_(0, edge_index[1], msg)
        batch.Z = score.new_zeros(batch.V_h.size(0), self.heads, 1)
        batch.Z.index_add_(0, edge_index[1], score)

    def forward(self, batch):
        shape = -1, self.heads, self.channels
        batch.Q_h, batch.K_h, batch.V_h = (lin(batch.x).view(*shape) for lin in (self.q, self.k, self.v))
        batch.E = self.e(batch.expander_edge_attr).view(*shape)
        self.attend(batch, batch.expander_edge_index)
        return (batch.wV / (batch.Z + 1e-6)).flatten(1)


class Transformed(nn.Module):
    """Attention by scores of edges that are new features of these, which an object is given with other things."""

    def __init__(self, heads=2, enhances=True):
        super().__init__()
        self.heads, self.channels, self.clamp, self.enhances = heads, WIDTH // heads, np.abs(5.0), enhances
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.e = nn.Linear(OF_EDGES, 2 * WIDTH)
        self.score = nn.Parameter(torch.randn(self.channels, heads, 1))
        self.of_edges = nn.Parameter(torch.randn(self.channels, heads, self.channels))

    def forward(self, batch):
        shape = -1, self.heads, self.channels
        batch.E = None if batch.get('edge_attr', None) is None else self.e(batch.edge_attr)
        batch.Q_h, batch.K_h, batch.V_h = (lin(batch.x).view(*shape) for lin in (self.q, self.k, self.v))
        score = batch.K_h[batch.edge_index[0]] + batch.Q_h[batch.edge_index[1]]
        if batch.get('E', None) is not None:
            batch.E = batch.E.view(-1, self.heads, 2 * self.channels)
            factor, shift = batch.E[:, :, : self.channels], batch.E[:, :, self.channels :]
            score = score * factor
            score = torch.sqrt(torch.relu(score)) - torch.sqrt(torch.relu(-score)) + shift
        states = torch.relu(score)
        if batch.get('E', None) is not None:
            batch.wE = states.flatten(1)
        score = torch.einsum('ehd, dhc->ehc', states, self.score)
        score = softmax(torch.clamp(score, min=-self.clamp, max=self.clamp), batch.edge_index[1])
        batch.attn = score
        batch.wV = torch.zeros_like(batch.V_h)
        batch.wV.index_add_(0, batch.edge_index[1], batch.V_h[batch.edge_index[0]] * score)
        if self.enhances and 'E' in batch:
            row = scatter(states * score, batch.edge_index[1], dim=0, dim_size=batch.x.size(0), reduce='add')
            batch.wV = batch.wV + torch.einsum('nhd, dhc -> nhc', row, self.of_edges)
        return batch.wV, batch.get('wE', None)


class Updated(nn.Module):
    """New features of nodes, in the dict or the object that it was given."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, data):
        if 'edge_weight' in data:
            weight = data['edge_weight'].view(-1, 1)
        else:
            weight = 2.0
        out = torch.zeros_like(data['x'])
        out.index_add_(0, data['edge_index'][1], self.lin(data['x'])[data['edge_index'][0]] * weight)
        data['x'] = data['x'] + out.relu()
        data['layers'] = data.get('layers', 0)
        return data
