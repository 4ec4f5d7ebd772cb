"""Models of edges, nodes and graphs, as a `MetaLayer` takes them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential
from torch_geometric.nn import MetaLayer
from torch_geometric.utils import scatter


def graph_network(channels: int, norms: int = 0) -> MetaLayer:
    """A block of a graph network: features of nodes, edges and graphs, all of one width.

    Args:
        channels: The width.
        norms: How many batch normalisations its network of edges has.

    Example:
        >>> block = graph_network(4, norms=2)
        >>> x, edge_index, batch = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 1])
        >>> [found.shape[0] for found in block(x, edge_index, torch.randn(2, 4), torch.randn(2, 4), batch)]
        [3, 2, 2]
    """
    return MetaLayer(_EdgeModel(channels, norms), _NodeModel(channels), _GraphModel(channels))


def _network(inputs: int, channels: int, norms: int = 0) -> Sequential:
    layers: list[Module] = [Linear(inputs, channels)]
    for k in range(max(norms, 1)):
        layers += [*([BatchNorm1d(channels)] if k < norms else []), ReLU(), Linear(channels, channels)]
    return Sequential(*layers)


class _EdgeModel(Module):
    def __init__(self, channels: int, norms: int) -> None:
        super().__init__()
        self.network = _network(4 * channels, channels, norms)

    def forward(self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor) -> Tensor:
        return self.network(torch.cat([src, dst, edge_attr, u[batch]], dim=1))


class _NodeModel(Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.of_edges, self.of_nodes = _network(2 * channels, channels), _network(3 * channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor) -> Tensor:
        row, col = edge_index
        out = scatter(self.of_edges(torch.cat([x[row], edge_attr], dim=1)), col, 0, x.size(0), 'mean')
        return self.of_nodes(torch.cat([x, out, u[batch]], dim=1))


class _GraphModel(Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.network = _network(2 * channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor) -> Tensor:
        return self.network(torch.cat([u, scatter(x, batch, 0, u.size(0), 'mean')], dim=1))
