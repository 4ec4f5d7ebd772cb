"""Layers as users write them: one message each, in forms that papers and tutorials have."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import LeakyReLU, Linear, Parameter, ReLU, Sequential, SiLU
from torch_geometric.utils import softmax


class OwnGAT(pyg.MessagePassing):
    """GAT without self-loops, so many channels to as many."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.lin = Linear(channels, channels, bias=False)
        self.att = Parameter(torch.randn(2, heads, channels // heads))
        self.bias = Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = self.lin(x).view(-1, *self.att.shape[1:])
        return self.propagate(edge_index, x=rows).flatten(1) + self.bias

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        alpha = (x_j * self.att[0] + x_i * self.att[1]).sum(dim=-1)
        return softmax(F.leaky_relu(alpha, 0.2), index, ptr, size_i).unsqueeze(-1) * x_j


class NetworkAttention(pyg.MessagePassing):
    """Attention whose scores are a network of both ends."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr='sum')
        self.score = Sequential(Linear(2 * channels, channels), LeakyReLU(), Linear(channels, 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        return softmax(self.score(torch.cat([x_i, x_j], dim=-1)), index, ptr, size_i) * x_j


class Equivariant(pyg.MessagePassing):
    """A network of both ends and their squared distance ("E(n) Equivariant Graph Neural Networks", equation 3)."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr='sum')
        self.nn = Sequential(Linear(2 * channels + 1, channels), SiLU(), Linear(channels, channels), SiLU())

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, pos=pos)

    def message(self, x_i: Tensor, x_j: Tensor, pos_i: Tensor, pos_j: Tensor) -> Tensor:
        squared = (pos_i - pos_j).square().sum(dim=-1, keepdim=True)
        return self.nn(torch.cat([x_i, x_j, squared], dim=-1))


class ContinuousFilter(pyg.MessagePassing):
    """Sources times a network of so many Gaussians of the distance ("SchNet", section 4.1)."""

    def __init__(self, channels: int, gaussians: int = 20) -> None:
        super().__init__(aggr='sum')
        self.register_buffer('centres', torch.linspace(0.0, 5.0, gaussians))
        self.filter = Sequential(Linear(gaussians, channels), SiLU(), Linear(channels, channels))

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, pos=pos)

    def message(self, x_j: Tensor, pos_i: Tensor, pos_j: Tensor) -> Tensor:
        distance = (pos_i - pos_j).norm(dim=-1, keepdim=True)
        return x_j * self.filter(torch.exp(-((distance - self.centres) ** 2)))


class Residual(pyg.MessagePassing):
    """Sources, and a network of both ends that is added to them."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr='mean')
        self.nn = Sequential(Linear(2 * channels, channels), ReLU(), Linear(channels, channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_j + self.nn(torch.cat([x_i, x_j], dim=-1))
