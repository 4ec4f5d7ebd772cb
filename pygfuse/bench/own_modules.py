"""Modules that gather and reduce along edges themselves, as code outside of PyG has them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, Parameter, ReLU, Sequential, SiLU


def _sum(x: Tensor, index: Tensor, count: int) -> Tensor:
    return x.new_zeros(count, x.shape[1]).scatter_add_(0, index.unsqueeze(-1).expand(-1, x.shape[1]), x)


class Equivariant(Module):
    """A layer of "E(n) Equivariant Graph Neural Networks" (equations 3 to 6): new features and new positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.of_edges = Sequential(Linear(2 * channels + 1, channels), SiLU(), Linear(channels, channels), SiLU())
        self.of_positions = Sequential(Linear(channels, channels), SiLU(), Linear(channels, 1, bias=False))
        self.of_nodes = Sequential(Linear(2 * channels, channels), SiLU(), Linear(channels, channels))

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        towards = pos[row] - pos[col]
        messages = self.of_edges(torch.cat([x[row], x[col], towards.square().sum(1, keepdim=True)], dim=1))
        count = _sum(torch.ones_like(towards), row, x.shape[0]).clamp(min=1)
        pos = pos + _sum(towards * self.of_positions(messages), row, x.shape[0]) / count
        return x + self.of_nodes(torch.cat([x, _sum(messages, row, x.shape[0])], dim=1)), pos


class Network(Module):
    """A network of both ends, averaged by ``index_add_`` and a count."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.nn = Sequential(Linear(2 * channels, channels), ReLU(), Linear(channels, channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        out = torch.zeros_like(x)
        out.index_add_(0, dst, self.nn(torch.cat([x[src], x[dst]], dim=-1)))
        count = torch.zeros(x.shape[0], device=x.device).index_add_(0, dst, torch.ones(dst.shape[0], device=x.device))
        return x + out / count.clamp(min=1).unsqueeze(1)


class Attention(Module):
    """Dot products of heads, normalised by a softmax that is written out."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (Linear(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = edge_index
        query, key, value = (lin(x).view(x.shape[0], self.heads, -1) for lin in (self.query, self.key, self.value))
        score = (query[dst] * key[src]).sum(-1) / key.shape[-1] ** 0.5
        score = score.clamp(-5, 5).exp()
        total = torch.zeros(x.shape[0], self.heads, device=x.device).index_add_(0, dst, score)
        out = torch.zeros_like(value).index_add_(0, dst, value[src] * score.unsqueeze(-1))
        return (out / (total.unsqueeze(-1) + 1e-6)).flatten(1)


class Hops(Module):
    """Symmetric normalisation by hand, and three hops."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        degree = torch.zeros(x.shape[0], device=x.device).index_add_(0, col, torch.ones(col.shape[0], device=x.device))
        scale = degree.clamp(min=1).rsqrt()
        weight = (scale[row] * scale[col]).unsqueeze(1)
        x = self.lin(x)
        for _ in range(3):
            x = torch.zeros_like(x).index_add(0, col, x[row] * weight)
        return F.relu(x)


class Links(Module):
    """A score of each edge."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.randn(channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return (x[edge_index[0]] * self.weight * x[edge_index[1]]).sum(-1)
