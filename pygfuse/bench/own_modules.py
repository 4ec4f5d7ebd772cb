"""Modules that gather and reduce along edges themselves, as code outside of PyG has them."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, Parameter, ReLU, Sequential, SiLU
from torch_geometric.data import Data
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops, scatter, softmax

# only one module needs it
with contextlib.suppress(ImportError, OSError):
    import torch_scatter


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


class SparseAttention(Module):
    """Attention of a sparse graph transformer, which takes a batch and keeps in it what it computes."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.of_edges = (Linear(channels, channels, bias=False) for _ in range(4))

    def forward(self, batch: Data) -> Tensor:
        shape = -1, self.heads, self.query.out_features // self.heads
        src, dst = batch.edge_index
        batch.Q, batch.K, batch.V = (lin(batch.x).view(shape) for lin in (self.query, self.key, self.value))
        batch.E = self.of_edges(batch.edge_attr).view(shape)
        score = batch.K[src] * batch.Q[dst] / shape[-1] ** 0.5 * batch.E
        score = score.sum(-1, keepdim=True).clamp(-5, 5).exp()
        batch.wV = torch.zeros_like(batch.V).index_add_(0, dst, batch.V[src] * score)
        batch.Z = score.new_zeros(batch.V.shape[0], self.heads, 1).index_add_(0, dst, score)
        return (batch.wV / (batch.Z + 1e-6)).flatten(1)


class EdgeStates(Module):
    """Attention of a graph transformer whose scores are made of new states of edges ("Graph Inductive Biases")."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, size = heads, channels // heads
        self.query, self.key, self.value = (Linear(channels, channels) for _ in range(3))
        self.of_edges = Linear(channels, 2 * channels)
        self.score = Parameter(torch.randn(size, heads, 1))
        self.of_states = Parameter(torch.randn(size, heads, size) / size)

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        shape = -1, self.heads, self.query.out_features // self.heads
        src, dst = batch.edge_index
        query, key, value = (lin(batch.x).view(shape) for lin in (self.query, self.key, self.value))
        factor, shift = self.of_edges(batch.edge_attr).view(-1, self.heads, 2 * shape[-1]).chunk(2, dim=-1)
        score = (key[src] + query[dst]) * factor
        states = F.relu(torch.sqrt(F.relu(score)) - torch.sqrt(F.relu(-score)) + shift)
        batch.wE = states.flatten(1)
        score = torch.einsum('ehd,dhc->ehc', states, self.score).clamp(-5, 5)
        batch.attn = softmax(score, dst, num_nodes=batch.x.shape[0])
        out = torch.zeros_like(value).index_add_(0, dst, value[src] * batch.attn)
        summed = torch.zeros_like(value).index_add_(0, dst, states * batch.attn)
        return (out + torch.einsum('nhd,dhc->nhc', summed, self.of_states)).flatten(1), batch.wE


class Tracks(Module):
    """A step of an interaction network: nodes add up the states of edges that arrive and of those that leave."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.of_nodes = Sequential(Linear(3 * channels, channels), SiLU(), Linear(channels, channels))
        self.of_edges = Sequential(Linear(3 * channels, channels), SiLU(), Linear(channels, channels))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        start, end = edge_index
        arriving, leaving = (torch.zeros_like(x).index_add_(0, place, edge_attr) for place in (end, start))
        x = x + self.of_nodes(torch.cat([x, arriving, leaving], dim=-1))
        return x, edge_attr + self.of_edges(torch.cat([x[start], x[end], edge_attr], dim=-1))


class WeighedBothWays(Module):
    """What neighbours hold, weighed by a number of each edge, added up at both ends."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = Linear(3 * channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        start, end = edge_index
        weight = edge_weight.unsqueeze(1)
        arriving = torch.zeros_like(x).index_add_(0, end, weight * x[start])
        leaving = torch.zeros_like(x).index_add_(0, start, weight * x[end])
        return self.lin(torch.cat([arriving, leaving, x], dim=1)).tanh()


class CrossAttention(Module):
    """Attention of nodes of one set to those of another, by dot products of heads."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (Linear(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor, others: Tensor) -> Tensor:
        src, dst = edge_index
        query = self.query(others).unflatten(-1, (self.heads, -1))
        key, value = (lin(x).unflatten(-1, (self.heads, -1)) for lin in (self.key, self.value))
        score = (query[dst] * key[src]).sum(-1) / key.shape[-1] ** 0.5
        weighed = softmax(score, dst, num_nodes=others.shape[0]).unsqueeze(-1) * value[src]
        return torch.zeros_like(query).index_add_(0, dst, weighed).flatten(1)


class LinksBetween(Module):
    """A score of each edge between users and films."""

    def forward(self, x: Tensor, edge_index: Tensor, others: Tensor) -> Tensor:
        return (x[edge_index[0]] * others[edge_index[1]]).sum(dim=-1)


class Hyperedges(Module):
    """From nodes to the hyperedges that hold them, and back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin, self.back = Linear(channels, channels), Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        node, hyperedge = edge_index
        held = torch.zeros_like(others).index_add_(0, hyperedge, self.lin(x)[node])
        others = others + F.relu(self.back(held))
        return torch.zeros_like(x).index_add_(0, node, others[hyperedge]), others


class FriendsAndFoes(Module):
    """Means along the edges of two arguments, each by a map of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.friends, self.foes, self.lin = (Linear(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, pos_edge_index: Tensor, neg_edge_index: Tensor) -> Tensor:
        out = self.lin(x)
        for lin, (src, dst) in ((self.friends, pos_edge_index), (self.foes, neg_edge_index)):
            count = torch.zeros(x.shape[0], device=x.device).index_add_(
                0, dst, torch.ones(dst.shape[0], device=x.device)
            )
            out = out + torch.zeros_like(x).index_add_(0, dst, lin(x)[src]) / count.clamp(min=1).unsqueeze(1)
        return out.relu()


class ScoredPairs(Module):
    """A sum along edges, and a score by a network of each pair of another argument."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = Linear(channels, channels)
        self.nn = Sequential(Linear(2 * channels, channels), ReLU(), Linear(channels, 1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        x = torch.zeros_like(x).index_add_(0, edge_index[1], self.lin(x)[edge_index[0]]).relu()
        first, second = edge_label_index
        return self.nn(torch.cat([x[first], x[second]], dim=-1)).squeeze(-1)


class SensorSignals(Module):
    """Gated sums of a batch of signals over one graph, ``[samples, nodes, channels]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin, self.target, self.source = (Linear(channels, channels) for _ in range(3))

    def forward(self, signals: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        gate = torch.sigmoid(self.target(signals)[:, col] + self.source(signals)[:, row])
        return torch.zeros_like(signals).index_add(1, col, gate * self.lin(signals)[:, row])


class SparseAdjacency(Module):
    """Two graph convolutions along a sparse matrix that is an argument, as their first code has them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = Linear(channels, channels), Linear(channels, channels)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return torch.spmm(adj, self.second(torch.spmm(adj, self.first(x)).relu()))


class MaxRelative(Module):
    """The greatest differences to neighbours, by `torch_scatter` ("DeepGCNs", its max-relative convolution)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.nn = Sequential(Linear(2 * channels, channels), ReLU())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        highest, _ = torch_scatter.scatter_max(x[row] - x[col], col, dim=0, dim_size=x.shape[0])
        return self.nn(torch.cat([x, highest], dim=-1))


class NormalisedStates(Module):
    """States of edges that are gates of what they send, normalised over all edges ("DeepACO")."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.begin, self.lin, self.source, self.target, self.of_states = (Linear(channels, channels) for _ in range(5))
        self.norm = BatchNorm1d(channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        row, col = edge_index
        state = F.silu(self.begin(edge_attr))
        state = state + F.silu(self.norm(self.of_states(state) + self.source(x)[row] + self.target(x)[col]))
        return torch.zeros_like(x).index_add_(0, col, torch.sigmoid(state) * self.lin(x)[row])


class GatedGradients(Module):
    """A layer of PyG's, and how much of it each node takes, by how it differs along its edges ("Gradient Gating")."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.layer, self.gate = (GATConv(channels, channels // heads, heads=heads) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        h, gate = self.layer(x, edge_index).relu(), self.gate(x, edge_index)
        change = torch.zeros_like(gate).index_add_(0, row, (gate[row] - gate[col]).square()).tanh()
        return (1 - change) * x + change * h


class RelationalAttention(Module):
    """Attention of keys and queries by a matrix of each edge's type, whose weights are returned ("RGAT")."""

    def __init__(self, channels: int, types: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.randn(types, channels, channels) / channels**0.5)
        self.score = Linear(2 * channels, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        weight = self.weight[edge_type]
        key, query = (torch.bmm(x[end].unsqueeze(1), weight).squeeze(1) for end in (row, col))
        score = F.leaky_relu(self.score(torch.cat([key, query], dim=-1)), 0.2)
        share = softmax(score, col, num_nodes=x.shape[0])
        return torch.zeros_like(x).index_add_(0, col, share * key), share


class DirectedStates(Module):
    """States of edges that read those which come into their source, but for that of the edge back ("D-MPNN")."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.begin, self.step, self.end = (Linear(channels, channels) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, back: Tensor) -> Tensor:
        row, col = edge_index
        first = self.begin(x)[row] + edge_attr
        states = first.relu()
        for _ in range(2):
            states = (first + self.step(_sum(states, col, x.shape[0])[row] - states[back])).relu()
        return self.end(_sum(states, col, x.shape[0]))


class GraphStates(Module):
    """Edges, nodes and graphs, each updated by the means of those before ("MEGNet")."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.of_edges = Sequential(Linear(3 * channels, channels), SiLU(), Linear(channels, channels))
        self.of_nodes, self.of_graphs = Linear(2 * channels, channels), Linear(3 * channels, channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, state: Tensor, batch: Tensor
    ) -> tuple[Tensor, ...]:
        row, col = edge_index
        edges = self.of_edges(torch.cat([x[row], x[col], edge_attr], dim=-1))
        x = F.silu(self.of_nodes(torch.cat([x, scatter(edges, col, 0, x.shape[0], 'mean')], dim=-1)))
        of_edges = scatter(edges, batch[row], 0, state.shape[0], 'mean')
        of_nodes = scatter(x, batch, 0, state.shape[0], 'mean')
        return x, self.of_graphs(torch.cat([of_edges, of_nodes, state], dim=-1))


class LoopedGates(Module):
    """A layer of PyG's along edges with self-loops behind them, and gates along the same edges."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.layer = GATConv(channels, channels // heads, heads=heads, add_self_loops=False)
        self.source, self.target = Linear(channels, channels), Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.shape[0])
        row, col = edge_index
        h = self.layer(x, edge_index).relu()
        gate = torch.sigmoid(self.source(h)[row] + self.target(h)[col])
        return torch.zeros_like(h).index_add_(0, col, gate * h[row])
