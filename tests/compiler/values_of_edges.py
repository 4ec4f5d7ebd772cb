"""Layers whose messages are computed of values that each edge has of its own, and what they are called with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn import LayerNorm, LeakyReLU, Linear, Mish, ReLU, Sequential, SiLU
from torch_geometric.utils import softmax

from tests.compiler.own_convs import Own


class Distances(Own):
    """A network of both ends and their distance (EGNN)."""

    def __init__(self, aggr='sum', width=8):
        super().__init__(aggr)
        self.nn = Sequential(Linear(2 * width + 1, 16), LayerNorm(16), SiLU(), Linear(16, 5))

    def message(self, x_i, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).norm(dim=-1, keepdim=True)
        return self.nn(torch.cat([x_i, x_j, distance], dim=-1))


class Smeared(Own):
    """A continuous filter of Gaussians of the distance, with a cosine cut-off."""

    def __init__(self):
        super().__init__('mean')
        self.register_buffer('centres', torch.linspace(0, 4, 6))
        self.filter = Sequential(Linear(6, 8), SiLU(), Linear(8, 8))

    def message(self, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).square().sum(dim=-1).add(1e-2).sqrt()
        smeared = torch.exp(-2.0 * (distance.unsqueeze(-1) - self.centres) ** 2)
        cutoff = 0.5 * (torch.cos(distance) + 1.0)
        return x_j * self.filter(smeared) * cutoff.unsqueeze(-1)


class Gated(Distances):
    def __init__(self):
        super().__init__()
        self.gate = Linear(5, 1)

    def message(self, x_i, x_j, pos_i, pos_j):
        out = super().message(x_i, x_j, pos_i, pos_j)
        return torch.sigmoid(self.gate(out)) * out


class Angles(Own):
    def message(self, x_j, pos_i, pos_j):
        cross = torch.cross(pos_i, pos_j, dim=-1).square().sum(dim=-1).add(1e-2).sqrt()
        return x_j * torch.atan2(cross, (pos_i * pos_j).sum(dim=-1)).unsqueeze(-1)


class Weighed(Own):
    """A softmax over edges of a score that no program has."""

    def __init__(self):
        super().__init__('sum')
        self.score = Sequential(Linear(16, 8), Mish(), Linear(8, 1))

    def message(self, x_i, x_j, pos_i, pos_j, index, ptr, size_i):
        return softmax(self.score(torch.cat([x_i, x_j], dim=-1)), index, ptr, size_i) * torch.asinh(x_j)


class Updated(Own):
    """New values of edges."""

    def __init__(self):
        super().__init__()
        self.lin = Linear(8, 4)

    def forward(self, edge_index, **given):
        return self.edge_updater(edge_index, **given)

    def edge_update(self, x_i, x_j, pos_i, pos_j):
        return torch.erf(self.lin(torch.cumsum(x_i * x_j, dim=-1))) * (pos_i - pos_j).norm(dim=-1, keepdim=True)


class Attention(Own):
    """A score of several heads by a network of both ends."""

    def __init__(self, heads=2):
        super().__init__('sum')
        self.heads = heads
        self.score = Sequential(Linear(16, 16), LeakyReLU(), Linear(16, heads))

    def message(self, x_i, x_j, pos_i, pos_j, index, ptr, size_i):
        alpha = softmax(self.score(torch.cat([x_i, x_j], dim=-1)), index, ptr, size_i)
        alpha = F.dropout(alpha, 0.0, self.training)
        return (alpha.unsqueeze(-1) * x_j.view(-1, self.heads, 8 // self.heads)).flatten(1)


class AttentionByDistance(Own):
    """The same of one head, with the distance of both ends."""

    def __init__(self):
        super().__init__('sum')
        self.score = Sequential(Linear(17, 16), SiLU(), Linear(16, 1))

    def message(self, x_i, x_j, pos_i, pos_j, index, ptr, size_i):
        distance = (pos_i - pos_j).norm(dim=-1, keepdim=True)
        return softmax(self.score(torch.cat([x_i, x_j, distance], dim=-1)), index, ptr, size_i) * x_j


class Scaled(Own):
    """A sum of sources, each times a number by a network."""

    def __init__(self, aggr='mean'):
        super().__init__(aggr)
        self.nn = Sequential(Linear(16, 16), ReLU(), Linear(16, 1), SiLU())

    def message(self, x_i, x_j, pos_i, pos_j):
        return x_j * self.nn(torch.cat([x_i, x_j], dim=-1))


class Filtered(Own):
    """Sources times a network of both ends, each number by itself."""

    def __init__(self):
        super().__init__('sum')
        self.nn = Sequential(Linear(16, 16), ReLU(), Linear(16, 8))

    def message(self, x_i, x_j, pos_i, pos_j):
        return x_j * torch.sigmoid(self.nn(torch.cat([x_i, x_j], dim=-1)))


class Moved(Own):
    """Differences of both ends' places, each times a number by a network (EGNN)."""

    def __init__(self):
        super().__init__('mean')
        self.nn = Sequential(Linear(17, 16), SiLU(), Linear(16, 1))

    def message(self, x_i, x_j, pos_i, pos_j):
        between = pos_i - pos_j
        squared = between.square().sum(dim=-1, keepdim=True)
        return between * self.nn(torch.cat([x_i, x_j, squared], dim=-1))


CONVS = {
    'distances': Distances,
    'distances, mean': lambda: Distances('mean'),
    'distances, max': lambda: Distances('max'),
    'distances, min': lambda: Distances('min'),
    'smeared': Smeared,
    'gated': Gated,
    'angles': Angles,
    'softmax': Weighed,
    'attention': Attention,
    'attention by distance': AttentionByDistance,
    'scaled': Scaled,
    'scaled, max': lambda: Scaled('max'),
    'filtered': Filtered,
    'moved': Moved,
    'edge update': Updated,
}
# a network of factors keeps nothing and needs no chunks of operators
CHUNKED = {name: make for name, make in CONVS.items() if name != 'filtered'}
FORMED = {name: make for name, make in CHUNKED.items() if name != 'edge update'}


def arguments(example):
    generator = torch.Generator().manual_seed(5)
    pos = torch.randn(example.num_sources, 3, generator=generator)
    source, target = example.edge_index
    # a distance of 0 has no derivative
    return {'edge_index': example.edge_index[:, source != target], 'x': example.x(8), 'pos': pos}
