"""Layers as users write them: one message each, in forms that papers and tutorials have."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Embedding, LeakyReLU, Linear, Parameter, ReLU, Sequential, SiLU
from torch_geometric.utils import scatter, softmax


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


class GatedEdges(pyg.MessagePassing):
    """Gates of edges, which are stored and returned behind the nodes ("Residual Gated Graph ConvNets")."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr='sum')
        self.lin, self.of_edges = Linear(channels, 3 * channels), Linear(channels, channels)
        self.gates: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        source, target, rows = self.lin(x).chunk(3, dim=-1)
        edges = self.of_edges(edge_attr)
        out = self.propagate(edge_index, source=source, target=target, rows=rows, edges=edges)
        gates, self.gates = self.gates, None
        return torch.cat([x + out.relu(), edge_attr + gates.relu()])

    def message(self, source_j: Tensor, target_i: Tensor, edges: Tensor) -> Tensor:
        self.gates = source_j + target_i + edges
        return torch.sigmoid(self.gates)

    def aggregate(self, inputs: Tensor, index: Tensor, rows_j: Tensor, dim_size: Any) -> Tensor:
        total = scatter(inputs * rows_j, index, 0, dim_size, 'sum')
        return total / (scatter(inputs, index, 0, dim_size, 'sum') + 1e-6)


class GatedEquivariant(Equivariant):
    """The same with a gate, and a message of coordinates that reads it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gate = Linear(channels, 1)
        self.moves = Sequential(Linear(channels, channels), SiLU(), Linear(channels, 1, bias=False))

    def message(self, x_i: Tensor, x_j: Tensor, pos_i: Tensor, pos_j: Tensor) -> tuple[Tensor, Tensor]:
        out = super().message(x_i, x_j, pos_i, pos_j)
        out = out * torch.sigmoid(self.gate(out))
        return out, (pos_i - pos_j) * self.moves(out)

    def aggregate(self, inputs: tuple[Tensor, Tensor], index: Tensor, dim_size: Any) -> Tensor:
        features, moves = (
            scatter(part, index, 0, dim_size, reduce) for part, reduce in zip(inputs, ('sum', 'mean'), strict=True)
        )
        return torch.cat([features, moves], dim=-1)


class EquivariantTransformer(pyg.MessagePassing):
    """Attention with distances in keys and values, of scalars and vectors ("TorchMD-NET")."""

    def __init__(self, channels: int, heads: int, basis: int) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.split = heads, channels // heads
        self.lin, self.filters = Linear(channels, 5 * channels), Linear(basis, 4 * channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, vector: Tensor, direction: Tensor) -> Tensor:
        rows, filters = self.lin(x).unflatten(-1, (5, *self.split)), F.silu(self.filters(edge_attr))
        filters = filters.unflatten(-1, (4, *self.split))
        given = {'q': rows[:, 0], 'k': rows[:, 1], 'v': rows[:, 2:], 'dk': filters[:, 0], 'dv': filters[:, 1:]}
        vector = vector.unflatten(-1, (3, *self.split))
        return self.propagate(edge_index, vector=vector, direction=direction, **given)

    def message(
        self, q_i: Tensor, k_j: Tensor, v_j: Tensor, vector_j: Tensor, dk: Tensor, dv: Tensor, direction: Tensor
    ) -> tuple[Tensor, Tensor]:
        weight = F.silu((q_i * k_j * dk).sum(dim=-1))
        scalar, first, second = (v_j * dv).unbind(dim=1)
        along = second.unsqueeze(1) * direction.view(-1, 3, 1, 1)
        return scalar * weight.unsqueeze(-1), vector_j * first.unsqueeze(1) + along

    def aggregate(self, inputs: tuple[Tensor, Tensor], index: Tensor, dim_size: Any) -> Tensor:
        scalars, vectors = (scatter(part, index, 0, dim_size) for part in inputs)
        return torch.cat([scalars.flatten(1), vectors.flatten(1)], dim=-1)


class Composition(pyg.MessagePassing):
    """Sources without their relation's row, mapped and weighed ("Composition-based Multi-Relational GCN")."""

    def __init__(self, channels: int, relations: int) -> None:
        super().__init__(aggr='sum')
        self.weight = Parameter(torch.randn(channels, channels) / channels**0.5)
        self.relations = Parameter(torch.randn(relations, channels))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_type=edge_type, edge_weight=edge_weight)

    def message(self, x_j: Tensor, edge_type: Tensor, edge_weight: Tensor) -> Tensor:
        row = self.relations.index_select(0, edge_type)
        return torch.mm(x_j - row, self.weight) * edge_weight.unsqueeze(-1)


class AttentionOfTypes(pyg.MessagePassing):
    """Attention in which a relation's embedding has a part ("Are we really making much progress?")."""

    def __init__(self, channels: int, heads: int, relations: int) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.lin, self.types = Linear(channels, channels, bias=False), Embedding(relations, heads * 8)
        self.att, self.of_types = Parameter(torch.randn(2, heads, channels // heads)), Parameter(torch.randn(heads, 8))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        rows = self.lin(x).view(-1, *self.att.shape[1:])
        score = (rows * self.att[0]).sum(dim=-1), (rows * self.att[1]).sum(dim=-1)
        return self.propagate(edge_index, x=rows, score=score, edge_type=edge_type).flatten(1)

    def message(
        self, x_j: Tensor, score_i: Tensor, score_j: Tensor, edge_type: Tensor, index: Tensor, ptr: Any, size_i: Any
    ) -> Tensor:
        of_type = (self.types(edge_type).view(-1, *self.of_types.shape) * self.of_types).sum(dim=-1)
        alpha = softmax(F.leaky_relu(score_i + score_j + of_type, 0.2), index, ptr, size_i)
        return x_j * alpha.unsqueeze(-1)


class MatrixOfEdges(pyg.MessagePassing):
    """A matrix for each edge by a network ("Neural Message Passing for Quantum Chemistry", its edge network)."""

    def __init__(self, channels: int, edge_dim: int, hidden: int) -> None:
        super().__init__(aggr='sum')
        self.channels = channels
        self.nn = Sequential(Linear(edge_dim, hidden), ReLU(), Linear(hidden, channels * channels))
        self.root = Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr) + self.root(x)

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        weight = self.nn(edge_attr).view(-1, self.channels, self.channels)
        return torch.matmul(x_j.unsqueeze(1), weight).squeeze(1)
