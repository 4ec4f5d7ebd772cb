"""Modules that read several sets of edges."""

import torch
from torch import nn
from torch_geometric.utils import degree, scatter, softmax

from tests.compiler.own_modules import WIDTH

RELATIONS = 4


class Relations(nn.Module):
    """A map for each type of edges, along the edges of this type."""

    def __init__(self):
        super().__init__()
        self.of_types = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(RELATIONS)])
        self.own = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_type):
        out = self.own(x)
        for k, lin in enumerate(self.of_types):
            row, col = edge_index[:, edge_type == k]
            out = out + torch.zeros_like(x).index_add_(0, col, lin(x)[row])
        return out


class Biased(nn.Module):
    """Maps with biases of what is weighed, in sums: a bias comes once for each edge of a set."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_weight):
        out = torch.zeros_like(x)
        for lin, chosen in ((self.first, edge_weight > 0.3), (self.second, edge_weight <= 0.3)):
            row, col = edge_index[:, chosen]
            out = out.index_add(0, col, lin(torch.tanh(x[row] * x[col])))
        return out


class WeighedAlone(nn.Module):
    """Weights alone, of the edges of each set, added up."""

    def forward(self, x, edge_index, edge_attr):
        out = torch.zeros_like(x)
        for k in range(2):
            chosen = edge_attr[:, k] > 0
            out = out.index_add(0, edge_index[1][chosen], edge_attr[chosen].repeat(1, WIDTH)[:, :WIDTH] * (k + 1))
        return out * x


class RelationsBehind(Relations):
    """The same, averaged and mapped once they are, with biases."""

    def forward(self, x, edge_index, edge_type):
        out = self.own(x)
        for k, lin in enumerate(self.of_types):
            edges = edge_index[:, edge_type == k]
            out = out + scatter(lin(x[edges[0]]), edges[1], dim=0, dim_size=x.size(0), reduce='mean')
        return out


class Extremes(nn.Module):
    """The largest of one set, a softmax of another, and the same rows of the same nodes in both."""

    def forward(self, x, edge_index, edge_weight):
        near = edge_weight > 0
        row, col = edge_index[:, near]
        far_row, far_col = edge_index[:, ~near]
        largest = scatter(x[row] * edge_weight[near, None], col, dim=0, dim_size=x.size(0), reduce='max')
        score = softmax((x[far_row] * x[far_col]).sum(-1) * edge_weight[~near], far_col, num_nodes=x.size(0))
        return largest + torch.zeros_like(x).index_add_(0, far_col, score[:, None] * x[far_row])


class OneBehindTheOther(nn.Module):
    """Attention along the edges, then a graph convolution along these and loops behind them."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        score = softmax((x[row] * x[col]).sum(-1) + edge_attr[:, 0], col, num_nodes=x.size(0))
        x = torch.zeros_like(x).index_add_(0, col, score[:, None] * x[row]).tanh()
        loops = torch.arange(x.size(0))
        row, col = torch.cat([row, loops]), torch.cat([col, loops])
        scale = degree(col, x.size(0), x.dtype).rsqrt()
        return torch.zeros_like(x).index_add_(0, col, (scale[row] * scale[col])[:, None] * self.lin(x)[row])


class Networks(nn.Module):
    """A network along each set, of which the second gives states of its edges, too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )

    def forward(self, x, edge_index, edge_weight):
        near = edge_weight > 0
        row, col = edge_index[0][near], edge_index[1][near]
        x = x + torch.zeros_like(x).index_add_(0, col, self.first(torch.cat([x[row], x[col]], dim=1)))
        row, col = edge_index[0][~near], edge_index[1][~near]
        states = self.second(torch.cat([x[row], x[col]], dim=1)) * edge_weight[~near, None]
        return torch.zeros_like(x).index_add_(0, col, states) + x, states


class ThereAndBack(nn.Module):
    """Edges, and those that lead back, which arrive at other nodes; each counts its own."""

    def forward(self, x, edge_index, edge_type):
        edge_index = edge_index[:, edge_type != 0]
        row, col = edge_index
        there = torch.zeros_like(x).index_add_(0, col, x[row].sigmoid()) / degree(col, x.size(0)).clamp(min=1)[:, None]
        row, col = edge_index.flip(0)
        return there - torch.zeros_like(x).index_add_(0, col, x[row]) / degree(col, x.size(0)).add(1).sqrt()[:, None]


class DegreesOfAll(nn.Module):
    """Sums of each set by degrees in all edges, along which nothing else is read."""

    def forward(self, x, edge_index, edge_type):
        scale = degree(edge_index[1], x.size(0), x.dtype).add(1).rsqrt()[:, None]
        out = torch.zeros_like(x)
        for k in range(2):
            row, col = edge_index[:, edge_type == k]
            out = out.index_add(0, col, (scale * x)[row])
        return out * scale


class RootsOfNodes(nn.Module):
    """Roots of what each set gathers: nodes without edges have none of them."""

    def forward(self, x, edge_index, edge_type):
        x, out = x.abs(), torch.zeros_like(x)
        for k in range(2):
            row, col = edge_index[:, edge_type == k]
            out = out.index_add(0, col, x[row].sqrt() * x[col].log1p())
        return out


class ToBothEnds(nn.Module):
    """Each set is added up at both ends."""

    def forward(self, x, edge_index, edge_type):
        out = torch.zeros_like(x)
        for k in range(2):
            row, col = edge_index[:, edge_type == k]
            message = (x[row] - x[col]).tanh()
            out = out.index_add(0, col, message) + torch.zeros_like(x).index_add_(0, row, message * (k + 2))
        return out


KINDS = {
    Relations: 'edge_type', RelationsBehind: 'edge_type', Biased: 'edge_weight', WeighedAlone: 'edge_attr',
    Extremes: 'edge_weight', OneBehindTheOther: 'edge_attr', Networks: 'edge_weight', ThereAndBack: 'edge_type',
    RootsOfNodes: 'edge_type', ToBothEnds: 'edge_type', DegreesOfAll: 'edge_type',
}  # fmt: skip
