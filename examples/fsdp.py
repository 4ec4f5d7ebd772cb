"""Trains a GAT whose parameters are sharded among processes (FSDP, ``fully_shard``), on CPUs with gloo.

Each process keeps a share of every layer's parameters, gradients and optimizer state; a layer is gathered when it
runs. Every process has the graph, and the loss of its share of the nodes. Before training, the gradients are compared
with those of one process. Nothing is downloaded: scikit-learn's digits as a graph of nearest neighbours.

    torchrun --standalone --nproc-per-node 2 examples/fsdp.py
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch_geometric.data import Data
from torch_geometric.nn import GATConv
from tqdm import tqdm

import pygfuse


class GAT(torch.nn.Module):
    """Two layers of attention."""

    def __init__(self, features: int, channels: int, heads: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GATConv(features, channels, heads=heads)
        self.conv2 = GATConv(heads * channels, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.elu(self.conv1(x, edge_index)), edge_index)


def digits_graph(neighbors: int) -> Data:
    """An edge to every image from each of its nearest neighbours; a fifth of the images is tested."""
    images, digits = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[len(x) // 5 :], order[: len(x) // 5]
    return Data(x=x, edge_index=pygfuse.knn_graph(x, neighbors), y=torch.from_numpy(digits), train=train, test=test)


def sharded(model: GAT) -> GAT:
    """The model with each layer's parameters divided among the processes."""
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    for layer in (model.conv1, model.conv2, model):
        fully_shard(layer, mesh=mesh)
    return model


def loss_of(model: GAT, data: Data, nodes: Tensor) -> Tensor:
    return F.cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes])


def apart_from_one_process(model: GAT, alone: GAT, data: Data, nodes: Tensor) -> float:
    """How far the gradients are from those of one process with the nodes of all."""
    loss_of(model, data, nodes).backward()
    size = dist.get_world_size()
    loss_of(alone, data, data.train[: len(data.train) // size * size]).backward()
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return max(float((one.grad.full_tensor() - other.grad).abs().max()) for one, other in pairs)


def train_step(model: GAT, optimizer: torch.optim.Optimizer, data: Data, nodes: Tensor) -> float:
    """Milliseconds that a step takes."""
    start = time.perf_counter()
    optimizer.zero_grad()
    loss_of(model, data, nodes).backward()
    optimizer.step()
    return 1e3 * (time.perf_counter() - start)


@torch.no_grad()
def accuracy(model: GAT, data: Data) -> float:
    """Of the test nodes."""
    right = model(data.x, data.edge_index).argmax(dim=-1) == data.y
    return float(right[data.test].float().mean())


def train(backend: str, data: Data, options: argparse.Namespace) -> dict[str, str]:
    """Trains one model; all processes do."""
    torch.manual_seed(options.seed)
    model = GAT(data.num_features, options.channels, options.heads, int(data.y.max()) + 1)
    if backend == 'pygfuse':
        model = pygfuse.fuse(model)
    alone = copy.deepcopy(model)
    model = sharded(model)
    rank, size = dist.get_rank(), dist.get_world_size()
    nodes = data.train[rank : len(data.train) // size * size : size]
    apart = apart_from_one_process(model, alone, data, nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    epochs = tqdm(range(options.epochs), backend, unit=' epochs', disable=True if rank else None)
    times = [train_step(model, optimizer, data, nodes) for _ in epochs]
    kept = sum(parameter.to_local().numel() for parameter in model.parameters())
    return {
        'test accuracy': f'{accuracy(model, data):.1%}',
        'ms per epoch': f'{statistics.median(times):.1f}',
        'parameters here': f'{kept:,}',
        'of': f'{sum(parameter.numel() for parameter in alone.parameters()):,}',
        'gradients apart': f'{apart:.1e}',
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--neighbors', type=int, default=16, help='edges to every node (default: %(default)s)')
    parser.add_argument('--channels', type=int, default=32, help='of a head of the hidden layer (default: %(default)s)')
    parser.add_argument('--heads', type=int, default=8, help='default: %(default)s')
    parser.add_argument('--epochs', type=int, default=50, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    parser.add_argument('--backend', choices=['pyg', 'pygfuse', 'both'], default='both')
    arguments = parser.parse_args()
    if not dist.is_torchelastic_launched():
        parser.error('start it with torchrun: torchrun --standalone --nproc-per-node 2 examples/fsdp.py')
    return arguments


def main() -> None:
    options = parse_arguments()
    dist.init_process_group('gloo')
    data = digits_graph(options.neighbors)
    backends = ['pyg', 'pygfuse'] if options.backend == 'both' else [options.backend]
    found = {backend: train(backend, data, options) for backend in backends}
    if dist.get_rank() == 0:
        print(f'{dist.get_world_size()} processes, {data.num_nodes:,} nodes, {data.num_edges:,} edges')
        print(f'{"":<20}' + ''.join(f'{backend:>14}' for backend in found))
        for name in next(iter(found.values())):
            print(f'{name:<20}' + ''.join(f'{figures[name]:>14}' for figures in found.values()))
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
