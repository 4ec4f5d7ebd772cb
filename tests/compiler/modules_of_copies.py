"""Modules whose features have dimensions before that of nodes: batches over edges that stay."""

import torch
from torch import nn
from torch_geometric.utils import add_self_loops, scatter, softmax

from tests.compiler.own_modules import OF_EDGES, WIDTH


class Diffusion(nn.Module):
    """What traffic forecasts do with each sample of a batch: sums along edges with weights that all samples share."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_weight):
        num_nodes = x.size(1)
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, 0.5, num_nodes)
        row, col = edge_index
        degree = edge_weight.new_zeros(num_nodes).scatter_add_(0, col, edge_weight.abs())
        share = edge_weight / (degree[col] + 1)
        h = self.lin(x)
        return torch.zeros_like(h).index_add_(1, col, h[:, row] * share[None, :, None])


class Heads(nn.Module):
    """Attention of several heads, the nodes the last dimension but two."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads, self.lin = heads, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, edge_index):
        *before, num_nodes, channels = x.shape
        row, col = edge_index
        query, key, value = self.lin(x).view(*before, num_nodes, 3, self.heads, -1).unbind(-3)
        score = (query[..., col, :, :] * key[..., row, :, :]).sum(-1) / channels**0.5
        share = softmax(score, col, num_nodes=num_nodes, dim=score.dim() - 2)
        out = scatter(share.unsqueeze(-1) * value[..., row, :, :], col, -3, num_nodes, 'sum')
        return out.flatten(-2)


class EdgeStates(nn.Module):
    """States of edges by a network, which are returned, and a mean of them."""

    def __init__(self):
        super().__init__()
        width = 2 * WIDTH + OF_EDGES
        self.nn = nn.Sequential(nn.Linear(width, WIDTH), nn.SiLU(), nn.Linear(WIDTH, OF_EDGES))
        self.own = nn.Linear(WIDTH + OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        states = edge_attr + self.nn(torch.cat([x[:, row], x[:, col], edge_attr], dim=2))
        mean = scatter(states, col, dim=1, dim_size=x.shape[1], reduce='mean')
        return x + self.own(torch.cat([x, mean], dim=-1)), states


class Embedded(nn.Module):
    """Embeddings that all samples share, gathered beside the features of each; their scores are returned, too."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, WIDTH)

    def forward(self, x, edge_index, z):
        row, col = edge_index
        embedded = self.table(z)
        score = torch.sigmoid((embedded[row] * embedded[col]).sum(-1, keepdim=True))
        message = score * (x.index_select(1, row) - x.index_select(1, col))
        index = col.view(1, -1, 1).expand(x.size(0), -1, x.size(2))
        return torch.zeros_like(x).scatter_add(1, index, message.relu()), score, embedded.unsqueeze(0) * 2


class Numbers(nn.Module):
    """A number for each node: two dimensions, of which the first counts samples."""

    def forward(self, x, edge_index, edge_attr, level):
        row, col = edge_index
        flow = torch.tanh(level[:, row] - level[:, col]) * edge_attr[..., 0]
        level = level + torch.zeros_like(level).index_add(1, col, flow)
        return x * level.unsqueeze(-1), level


class Encoder(nn.Module):
    """From the nodes of one set to those of another."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Linear(WIDTH, WIDTH), nn.Linear(3, WIDTH)

    def forward(self, x, other, edge_index):
        row, col = edge_index
        message = torch.relu(self.source(x)[:, row] + self.target(other)[:, col])
        return scatter(message, col, 1, other.size(1), 'max')


class Steps(nn.Module):
    """Two dimensions before that of nodes, one of them of times, in an object that holds all."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, data):
        x, (row, col) = data['x'], data['edge_index']
        message = self.lin(torch.cat([x[:, :, row], x[:, :, col]], dim=-1)).tanh()
        out = x.new_zeros(x.shape)
        out.index_add_(2, col, message)
        out *= 0.5
        return {'x': x + out, 'scores': message.square().mean(-1)}


COPIES = 3
ARGUMENTS = {
    Diffusion: lambda d: {'x': d['x'], 'edge_index': d['edge_index'], 'edge_weight': d['edge_weight']},
    Heads: lambda d: {'x': d['x'], 'edge_index': d['edge_index']},
    EdgeStates: lambda d: {'x': d['x'], 'edge_index': d['edge_index'], 'edge_attr': d['edge_attr']},
    Embedded: lambda d: {'x': d['x'], 'edge_index': d['edge_index'], 'z': d['z']},
    Numbers: lambda d: {**{name: d[name] for name in ('x', 'edge_index', 'edge_attr')}, 'level': d['x'][..., 0]},
    Steps: lambda d: {'data': {'x': d['x'].unsqueeze(1).repeat(1, 2, 1, 1), 'edge_index': d['edge_index']}},
}
