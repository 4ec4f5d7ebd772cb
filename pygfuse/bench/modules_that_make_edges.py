"""Modules that gather along edges which they make of those that they are given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList
from torch_geometric.utils import softmax


class ChosenEdges(Module):
    """Attention by dot products along edges of one type that are no self-loops."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (Linear(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        edge_index = edge_index[:, (edge_type == 0) & (edge_index[0] != edge_index[1])]
        src, dst = edge_index
        query, key, value = self.query(x), self.key(x), self.value(x)
        score = (query[dst] * key[src]).sum(-1) / key.shape[-1] ** 0.5
        weighed = softmax(score, dst, num_nodes=x.shape[0]).unsqueeze(-1) * value[src]
        return torch.zeros_like(value).index_add_(0, dst, weighed)


class Relations(Module):
    """A linear map for each type of edges, along the edges of this type."""

    def __init__(self, channels: int, relations: int) -> None:
        super().__init__()
        self.lins = ModuleList([Linear(channels, channels, bias=False) for _ in range(relations)])
        self.own = Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out = self.own(x)
        for k, lin in enumerate(self.lins):
            src, dst = edge_index[:, edge_type == k]
            out = out + torch.zeros_like(x).index_add_(0, dst, lin(x)[src])
        return out


class BothDirections(Module):
    """Each edge there and back, with a gate of its weight and of its sign."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin, self.gate = Linear(channels, channels), Linear(2, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        row, col = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = torch.cat([edge_weight, edge_weight])
        sign = torch.cat([torch.ones_like(edge_weight), -torch.ones_like(edge_weight)])
        gate = self.gate(torch.stack([weight, sign], dim=1)).sigmoid()
        return torch.zeros_like(x).index_add_(0, col, gate * self.lin(x)[row])


class LoopsBehind(Module):
    """A graph convolution: self-loops behind the edges, degrees and normalisation by hand."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        loops = torch.arange(x.shape[0], device=x.device)
        row, col = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
        weight = torch.cat([edge_weight, edge_weight.new_ones(x.shape[0])])
        scale = weight.new_zeros(x.shape[0]).index_add_(0, col, weight).rsqrt()
        weight = scale[row] * weight * scale[col]
        return torch.zeros_like(x).index_add_(0, col, weight.unsqueeze(-1) * self.lin(x)[row])


class SparseMatrix(Module):
    """Features averaged over three products with the normalised adjacency, a sparse matrix ("LightGCN")."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        scale = torch.bincount(row, minlength=x.shape[0]).clamp(min=1).to(x.dtype).rsqrt()
        adjacency = torch.sparse_coo_tensor(edge_index, scale[row] * scale[col], (x.shape[0], x.shape[0]))
        out = x
        for _ in range(3):
            x = torch.sparse.mm(adjacency, x)
            out = out + x
        return out / 4
