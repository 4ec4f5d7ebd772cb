"""Trains full batch on a graph that is divided among processes: exact, by exchanging what edges between parts read.

Each process keeps the features of its own nodes and the edges into them; before a convolution,
``pygfuse.distributed`` fetches the rows of other processes' nodes that these edges read (the halo), and sends
gradients back the same way. METIS finds parts with few edges between them, where PyG has it (pyg-lib, or torch_sparse
built with it). The loss and gradients of the first step are compared with those of one process that has the whole
graph (``--no-check`` leaves this out).

    torchrun --standalone --nproc-per-node 4 examples/full_batch_distributed.py
    torchrun --standalone --nproc-per-node 4 examples/full_batch_distributed.py --edges graph.npz --conv GAT

The graph is generated, or read: from text with an edge a line, as SNAP has them, or from arrays ``indptr`` and
``indices``; features are random, and a node's class depends on its neighbours' features.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData
from torch_geometric.utils import scatter, to_undirected
from tqdm import tqdm

from pygfuse.conv import GATConv, GCNConv
from pygfuse.distributed import Partition
from pygfuse.memory import saved_bytes

CLASSES = 8


def edges_of(path: str) -> Tensor:
    """The edges of a file, in both directions."""
    if path.endswith('.npz'):
        arrays = np.load(path)
        rows = np.repeat(np.arange(len(arrays['indptr']) - 1), np.diff(arrays['indptr'].astype(np.int64)))
        pairs = np.stack([rows, arrays['indices']])
    else:
        pairs = np.loadtxt(path, dtype=np.int64).T
    return to_undirected(torch.from_numpy(pairs.astype(np.int64)))


def neighbouring(nodes: int, degree: int) -> Tensor:
    """A ring whose nodes have edges from others nearby, and a few from anywhere."""
    target = torch.arange(nodes).repeat_interleave(degree)
    source = target + (torch.randn(len(target)) * 2 * degree).round().long()
    anywhere = torch.rand(len(target)) < 0.02
    source[anywhere] = torch.randint(nodes, (int(anywhere.sum()),))
    return to_undirected(torch.stack([source % nodes, target]))


def graph_of(options: argparse.Namespace) -> Data:
    edge_index = edges_of(options.edges) if options.edges else neighbouring(options.nodes, options.degree)
    nodes = int(edge_index.max()) + 1
    x = torch.randn(nodes, options.features)
    around = scatter(x[:, :CLASSES][edge_index[0]], edge_index[1], dim_size=nodes, reduce='mean')
    return Data(x=x, edge_index=edge_index, y=around.argmax(dim=-1), train_mask=torch.rand(nodes) < 0.5)


def parts_of(data: Data, kind: str, size: int) -> Tensor:
    """The process of each node."""
    if kind == 'random':
        return torch.randint(size, (data.num_nodes,))
    if kind == 'contiguous':
        return torch.arange(data.num_nodes) * size // data.num_nodes
    try:
        found = ClusterData(Data(edge_index=data.edge_index, num_nodes=data.num_nodes), size, log=False).partition
    except ImportError:
        print('PyG finds no METIS (pyg-lib, or torch_sparse built with it): parts are contiguous.')
        return parts_of(data, 'contiguous', size)
    part = torch.empty(data.num_nodes, dtype=torch.int64)
    part[found.node_perm] = torch.arange(size).repeat_interleave(found.partptr.diff())
    return part


class Model(torch.nn.Module):
    """Two layers; on a part of a graph, each is preceded by an exchange and gives the rows of own nodes."""

    def __init__(self, kind: str, features: int, channels: int, is_divided: bool) -> None:
        super().__init__()
        if kind == 'GCN':
            # the normalisation of a part is made of degrees in the whole graph, beforehand
            first, second = (features, channels), (channels, CLASSES)
            self.convs = torch.nn.ModuleList(GCNConv(*sizes, normalize=not is_divided) for sizes in (first, second))
        else:
            self.convs = torch.nn.ModuleList([GATConv(features, channels // 4, heads=4), GATConv(channels, CLASSES)])

    def forward(self, x: Tensor, edges: tuple[Tensor, ...], partition: Partition | None = None) -> Tensor:
        for number, conv in enumerate(self.convs):
            x = F.elu(x) if number else x
            x = conv(x, *edges) if partition is None else conv(partition.exchange(x), *edges)[: partition.num_own]
        return x


class Share:
    """What one process has of the data, and the loss of it."""

    def __init__(self, data: Data, part: Tensor, kind: str) -> None:
        # a graph that no machine holds is read here: the edges into own nodes, and own nodes' features
        self.partition = Partition(data.edge_index, part)
        own = self.partition.own
        self.x, self.y, self.train_mask = data.x[own], data.y[own], data.train_mask[own]
        self.edges = self.partition.gcn_norm(dtype=data.x.dtype) if kind == 'GCN' else (self.partition.edge_index,)
        # each process' mean would count nodes of small parts more; DistributedDataParallel takes a mean over processes
        self.scale = dist.get_world_size() / int(data.train_mask.sum())

    def loss(self, model: torch.nn.Module) -> Tensor:
        out = model(self.x, self.edges, self.partition)
        return F.cross_entropy(out[self.train_mask], self.y[self.train_mask], reduction='sum') * self.scale


def summed(value: float) -> float:
    """Over all processes."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return float(total)


def check(model: torch.nn.Module, share: Share, data: Data, options: argparse.Namespace) -> None:
    """Prints how far loss and gradients of one step are from those of one process with the whole graph."""
    loss_here = share.loss(model)
    loss_here.backward()
    loss = summed(float(loss_here.detach())) / dist.get_world_size()
    if dist.get_rank() == 0:
        alone = Model(options.conv, data.num_features, options.channels, is_divided=False).to(data.x.dtype)
        alone.load_state_dict(model.module.state_dict())
        out = alone(data.x, (data.edge_index,))
        expected = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        expected.backward()
        alone_loss = expected.item()
        pairs = zip(model.module.parameters(), alone.parameters(), strict=True)
        apart = max(float((one.grad - other.grad).abs().max()) for one, other in pairs)
        largest = max(float(parameter.grad.abs().max()) for parameter in alone.parameters())
        print(f'Loss {loss:.9f}, of one process {alone_loss:.9f}: {abs(loss - alone_loss):.1e} apart.')
        print(f'Gradients are at most {apart:.1e} apart (the largest is {largest:.1e}).')
    dist.barrier()


def train(model: torch.nn.Module, share: Share, epochs: int) -> tuple[float, list[float], float]:
    """The last loss, milliseconds of each epoch, and bytes that this process sent in one."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    times, before = [], share.partition.bytes_sent
    for _ in tqdm(range(epochs), 'Training', unit=' epochs', disable=True if dist.get_rank() else None):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = share.loss(model)
        loss.backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    last = summed(float(loss.detach())) / dist.get_world_size()
    return last, times, (share.partition.bytes_sent - before) / epochs


def shares_table(share: Share, sent: float, saved: int) -> str:
    """A line for each process."""
    partition, size = share.partition, dist.get_world_size()
    mine = [partition.num_own, len(partition.halo), partition.edge_index.shape[1], sent / 1e6, saved / 1e6]
    rows: list[list] = [mine] * size
    dist.all_gather_object(rows, mine)
    lines = [f'{"process":<8}{"nodes":>12}{"halo":>12}{"edges":>14}{"MB sent":>12}{"MB saved":>12}']
    for rank, (own, halo, edges, sent_of, saved_of) in enumerate(rows):
        lines.append(f'{rank:<8}{own:>12,}{halo:>12,}{edges:>14,}{sent_of:>12.3f}{saved_of:>12.3f}')
    return '\n'.join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edges', metavar='FILE', help='a graph instead of a generated one')
    parser.add_argument('--nodes', type=int, default=20_000, help='of a generated graph (default: %(default)s)')
    parser.add_argument('--degree', type=int, default=8, help='of a generated graph (default: %(default)s)')
    parser.add_argument('--features', type=int, default=32, help='at least 8 (default: %(default)s)')
    parser.add_argument('--channels', type=int, default=64, help='of the hidden layer (default: %(default)s)')
    parser.add_argument('--conv', choices=['GCN', 'GAT'], default='GCN', help='default: GCN')
    parser.add_argument('--parts', choices=['metis', 'contiguous', 'random'], default='metis', help='default: metis')
    parser.add_argument('--double', action='store_true', help='compute in float64')
    parser.add_argument('--no-check', dest='check', action='store_false', help='without the step of one process')
    parser.add_argument('--epochs', type=int, default=20, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    arguments = parser.parse_args()
    if arguments.features < CLASSES or arguments.epochs < 1:
        parser.error(f'--features must be at least {CLASSES} and --epochs at least 1')
    if not dist.is_torchelastic_launched():
        parser.error(
            'start it with torchrun: torchrun --standalone --nproc-per-node 4 examples/full_batch_distributed.py'
        )
    return arguments


def run(options: argparse.Namespace) -> None:
    """Checks and trains; what is wrapped is gone when it returns, before the group of processes is."""
    torch.manual_seed(options.seed)
    data = graph_of(options)
    if options.double:
        data.x = data.x.double()
    part = torch.empty(data.num_nodes, dtype=torch.int64)
    if dist.get_rank() == 0:
        part = parts_of(data, options.parts, dist.get_world_size())
    dist.broadcast(part, 0)
    share = Share(data, part, options.conv)
    model = Model(options.conv, data.num_features, options.channels, is_divided=True).to(data.x.dtype)
    parallel = DistributedDataParallel(model)
    if dist.get_rank() == 0:
        print(f'{data.num_nodes:,} nodes, {data.num_edges:,} edges, {dist.get_world_size()} processes, {options.conv}')
    if options.check:
        check(parallel, share, data, options)
    loss, times, sent = train(parallel, share, options.epochs)
    given = [share.x, share.y, share.train_mask, *share.edges, *model.parameters()]
    found = shares_table(share, sent, saved_bytes(lambda: share.loss(parallel), exclude=given))
    total = summed(sent)
    if dist.get_rank() == 0:
        print(f'{found}\n(sent in an epoch; saved for backward)')
        print(
            f'{total:,.0f} bytes sent an epoch by all; {statistics.median(times):.1f} ms an epoch; last loss {loss:.4f}'
        )


def main() -> None:
    options = parse_arguments()
    dist.init_process_group('gloo')
    run(options)
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
