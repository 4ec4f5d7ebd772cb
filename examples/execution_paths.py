"""Training on few nodes of a large graph: backward walks only the edges from which the loss can be reached.

A two-layer GCN or GAT on a generated graph (or a list of edges in text, as SNAP has them) with random features and
labels, first with backward over whole graphs, then with execution paths: the losses are the same.

    python examples/execution_paths.py
    python examples/execution_paths.py --edges web-NotreDame.txt --ratio 0.01
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch_geometric.data import Data

import pygfuse
from pygfuse.conv import GATConv, GCNConv
from pygfuse.transforms import ToExecutionPaths


def graph_of(options: argparse.Namespace) -> Data:
    """Nodes with random features and labels, some of them to train on."""
    if options.edges:
        edge_index = torch.from_numpy(np.loadtxt(options.edges, dtype=np.int64)).t().contiguous()
    else:
        edge_index = torch.randint(options.nodes, (2, options.nodes * options.degree))
    nodes = int(edge_index.max()) + 1
    mask = torch.rand(nodes) < options.ratio
    return Data(x=torch.randn(nodes, 32), edge_index=edge_index, y=torch.randint(8, (nodes,)), train_mask=mask)


class Model(torch.nn.Module):
    def __init__(self, conv: type) -> None:
        super().__init__()
        self.first, self.second = conv(32, 16), conv(16, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def train(data: Data, conv: type, epochs: int) -> tuple[torch.nn.Module, float, float]:
    """A model, its last loss, and the median time of a backward pass in ms."""
    torch.manual_seed(0)
    model, times = Model(conv), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        start = time.perf_counter()
        loss.backward()
        times.append(time.perf_counter() - start)
        optimizer.step()
    return model, loss.item(), statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edges', metavar='FILE', help='a list of edges in text instead of a generated graph')
    parser.add_argument('--nodes', type=int, default=200_000)
    parser.add_argument('--degree', type=int, default=6)
    parser.add_argument('--ratio', type=float, default=0.01, help='share of nodes to train on')
    parser.add_argument('--conv', choices=['GCN', 'GAT'], default='GCN')
    parser.add_argument('--epochs', type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    data, conv = graph_of(options), {'GCN': GCNConv, 'GAT': GATConv}[options.conv]
    print(f'{data.num_nodes:,} nodes, {data.num_edges:,} edges, {int(data.train_mask.sum()):,} to train on')
    with pygfuse.execution_paths(False):
        _, loss, spent = train(data, conv, options.epochs)
    print(f'whole graph      loss {loss:.6f}  backward {spent:.1f} ms')
    model, loss, spent = train(ToExecutionPaths(num_layers=2)(data), conv, options.epochs)
    print(f'execution paths  loss {loss:.6f}  backward {spent:.1f} ms')
    print(pygfuse.report(model))


if __name__ == '__main__':
    main()
