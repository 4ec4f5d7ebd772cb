"""Trains a GraphSAGE on sampled neighbourhoods in several processes, under PyTorch's DistributedDataParallel.

Each process draws batches from its own share of the nodes to train on; gradients are averaged. Before training, the
gradients of one step are compared with those of one process that has the batches of all. PyG samples with pyg-lib or
torch_sparse (``pip install --no-build-isolation '.[sparse]'``); where neither is there, batches have whole
neighbourhoods, which needs nothing, and more memory where nodes have many neighbours. Nothing is downloaded:
scikit-learn's digits as a graph of nearest neighbours.

    torchrun --standalone --nproc-per-node 2 examples/ddp_neighbor_sampling.py
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Iterable

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_geometric.typing
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import k_hop_subgraph
from tqdm import tqdm

import pygfuse

HAS_SAMPLER = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
SAMPLED = (10, 5)


class SAGE(torch.nn.Module):
    """Two layers with a rectifier between them."""

    def __init__(self, features: int, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(features, channels), SAGEConv(channels, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def digits_graph(neighbors: int) -> Data:
    """An edge to every image from each of its nearest neighbours; a fifth of the images is tested."""
    images, digits = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[len(x) // 5 :], order[: len(x) // 5]
    return Data(x=x, edge_index=pygfuse.knn_graph(x, neighbors), y=torch.from_numpy(digits), train=train, test=test)


def share_of(nodes: Tensor) -> Tensor:
    """This process' nodes: as many as each other process has, so that all take the same number of steps."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return nodes[rank : len(nodes) // size * size : size]


def batches(data: Data, nodes: Tensor, batch_size: int) -> Iterable[Data]:
    """Batches with the nodes that count in front (sampled), or where ``rows`` says (whole neighbourhoods)."""
    if HAS_SAMPLER:
        graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
        for batch in NeighborLoader(graph, list(SAMPLED), nodes, batch_size=batch_size, shuffle=True):
            yield Data(
                x=batch.x,
                edge_index=batch.edge_index,
                rows=torch.arange(batch.batch_size),
                classes=batch.y[: batch.batch_size],
            )
        return
    for chosen in nodes[torch.randperm(len(nodes))].split(batch_size):
        reached, edge_index, rows, _ = k_hop_subgraph(chosen, len(SAMPLED), data.edge_index, relabel_nodes=True)
        yield Data(x=data.x[reached], edge_index=edge_index, rows=rows, classes=data.y[chosen])


def loss_of(model: torch.nn.Module, batch: Data) -> Tensor:
    return F.cross_entropy(model(batch.x, batch.edge_index)[batch.rows], batch.classes)


def apart_from_one_process(parallel: DistributedDataParallel, batch: Data) -> float:
    """How far the gradients of one step are from those of one process that has the batches of all."""
    alone = copy.deepcopy(parallel.module)
    parallel.zero_grad()
    loss_of(parallel, batch).backward()
    gathered: list[Data] = [batch] * dist.get_world_size()
    dist.all_gather_object(gathered, batch)
    torch.stack([loss_of(alone, one) for one in gathered]).mean().backward()
    pairs = zip(parallel.module.parameters(), alone.parameters(), strict=True)
    return max(float((one.grad - other.grad).abs().max()) for one, other in pairs)


def train_epoch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Data]) -> float:
    """Milliseconds that an epoch takes, sampling included."""
    start = time.perf_counter()
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return 1e3 * (time.perf_counter() - start)


@torch.no_grad()
def accuracy(model: torch.nn.Module, data: Data) -> float:
    """Of the test nodes, full batch."""
    right = model(data.x, data.edge_index).argmax(dim=-1) == data.y
    return float(right[data.test].float().mean())


def train(backend: str, data: Data, options: argparse.Namespace) -> dict[str, float]:
    """Trains one model; all processes do."""
    torch.manual_seed(options.seed)
    model = SAGE(data.num_features, options.channels, int(data.y.max()) + 1)
    parallel = DistributedDataParallel(pygfuse.fuse(model) if backend == 'pygfuse' else model)
    torch.manual_seed(options.seed + dist.get_rank())
    nodes = share_of(data.train)
    apart = apart_from_one_process(parallel, next(iter(batches(data, nodes, options.batch_size))))
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01)
    epochs = tqdm(range(options.epochs), backend, unit=' epochs', disable=True if dist.get_rank() else None)
    times = [train_epoch(parallel, optimizer, batches(data, nodes, options.batch_size)) for _ in epochs]
    return {
        'test accuracy %': 100 * accuracy(model, data),
        'ms per epoch': statistics.median(times),
        'gradients apart': apart,
    }


def table(found: dict[str, dict[str, float]]) -> str:
    """The figures of all backends side by side."""
    lines = [f'{"":<20}' + ''.join(f'{backend:>14}' for backend in found)]
    for name in next(iter(found.values())):
        form = '{:.1e}' if name == 'gradients apart' else '{:.1f}'
        lines.append(f'{name:<20}' + ''.join(f'{form.format(figures[name]):>14}' for figures in found.values()))
    return '\n'.join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--neighbors', type=int, default=16, help='edges to every node (default: %(default)s)')
    parser.add_argument('--channels', type=int, default=64, help='of the hidden layer (default: %(default)s)')
    parser.add_argument('--batch-size', type=int, default=64, help='of each process (default: %(default)s)')
    parser.add_argument('--epochs', type=int, default=10, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    parser.add_argument('--backend', choices=['pyg', 'pygfuse', 'both'], default='both')
    arguments = parser.parse_args()
    if not dist.is_torchelastic_launched():
        parser.error(
            'start it with torchrun: torchrun --standalone --nproc-per-node 2 examples/ddp_neighbor_sampling.py'
        )
    return arguments


def main() -> None:
    options = parse_arguments()
    dist.init_process_group('gloo')
    data = digits_graph(options.neighbors)
    if dist.get_rank() == 0:
        print(f'{dist.get_world_size()} processes, {data.num_nodes:,} nodes, {data.num_edges:,} edges')
        print(
            'Neighbours are sampled.'
            if HAS_SAMPLER
            else 'No pyg-lib, no torch_sparse: batches are whole neighbourhoods.'
        )
    backends = ['pyg', 'pygfuse'] if options.backend == 'both' else [options.backend]
    found = {backend: train(backend, data, options) for backend in backends}
    if dist.get_rank() == 0:
        print(table(found))
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
