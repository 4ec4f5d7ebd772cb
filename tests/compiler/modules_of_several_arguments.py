"""Modules that are given edges in several arguments."""

import torch
from torch import nn
from torch_geometric.utils import scatter, softmax

from tests.compiler.own_modules import OF_EDGES, WIDTH


def _sum(x, edge_index, values):
    return torch.zeros_like(x).index_add_(0, edge_index[1], values)


class Signed(nn.Module):
    """Sums along friends and along foes."""

    def __init__(self):
        super().__init__()
        self.friends, self.foes, self.own = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(3 * WIDTH, WIDTH),
        )

    def forward(self, x, pos_edge_index, neg_edge_index):
        near = _sum(x, pos_edge_index, self.friends(x)[pos_edge_index[0]])
        away = _sum(x, neg_edge_index, torch.tanh(self.foes(x)[neg_edge_index[0]] * x[neg_edge_index[1]]))
        return self.own(torch.cat([near, away, x], dim=-1))


class Links(nn.Module):
    """Scores of some pairs, once nodes have gathered along edges."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_label_index):
        h = torch.relu(_sum(x, edge_index, self.lin(x)[edge_index[0]]))
        first, second = edge_label_index
        return self.score(h[first], h[second])

    def score(self, first, second):
        return (first * second).sum(dim=-1)


class LinksByNetwork(Links):
    def __init__(self):
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def score(self, first, second):
        return self.nn(torch.cat([first, second], dim=-1)).squeeze(-1)


class TwoHops(nn.Module):
    """Weighed neighbours, and attention over those that are two edges away, with features of their own."""

    def __init__(self):
        super().__init__()
        self.lin, self.of_edges = nn.Linear(WIDTH, WIDTH), nn.Linear(OF_EDGES, WIDTH)

    def forward(self, x, edge_index, others, edge_weight, of_others):
        near = _sum(x, edge_index, x[edge_index[0]] * edge_weight.unsqueeze(-1))
        row, col = others['edge_index']
        far = x[row] + self.of_edges(of_others)
        share = softmax((far * x[col]).mean(dim=-1, keepdim=True), col, num_nodes=x.shape[0])
        return self.lin(near) + _sum(x, (row, col), far * share)


class Joined(nn.Module):
    """A mean along the edges of both arguments, with ones for features of the latter."""

    def forward(self, x, edge_index, extra_edges, edge_weight):
        joined = torch.cat([edge_index, extra_edges], dim=1)
        weight = torch.cat([edge_weight, edge_weight.new_ones(extra_edges.shape[1])])
        return scatter(x[joined[0]] * weight[:, None], joined[1], 0, x.shape[0], 'mean')


class OfOne(nn.Module):
    """What reads the second argument alone."""

    def forward(self, x, edge_index, far_edge_index, of_others):
        row, col = far_edge_index
        return scatter(x[row] * of_others[:, :1], col, 0, x.shape[0], 'max')


class Chosen(nn.Module):
    """Edges of each argument that are chosen by their weights, and turned around."""

    def forward(self, x, edge_index, far_edge_index, edge_weight, of_others):
        out = x
        for edges, weight in ((edge_index, edge_weight), (far_edge_index, of_others[:, 0])):
            keep = weight > 0
            row, col = edges.flip(0)[:, keep]
            out = out + _sum(x, (row, col), x[row] * weight[keep, None])
        return out


def _further(name):
    return lambda d: {'x': d['x'], 'edge_index': d['edge_index'], name: d['others']}


ARGUMENTS = {
    Signed: lambda d: {'x': d['x'], 'pos_edge_index': d['edge_index'], 'neg_edge_index': d['others']},
    Links: _further('edge_label_index'),
    LinksByNetwork: _further('edge_label_index'),
    TwoHops: lambda d: {
        **{name: d[name] for name in ('x', 'edge_index', 'edge_weight', 'of_others')},
        'others': {'edge_index': d['others']},
    },
    Joined: lambda d: {**_further('extra_edges')(d), 'edge_weight': d['edge_weight']},
    OfOne: lambda d: {**_further('far_edge_index')(d), 'of_others': d['of_others']},
    Chosen: lambda d: {**_further('far_edge_index')(d), **{name: d[name] for name in ('edge_weight', 'of_others')}},
}
