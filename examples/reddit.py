"""Trains SAGE, GCN and GAT on Reddit, on sampled neighbourhoods and full batch, with PyG's convs or the fused ones.

Reddit has 232,965 posts, 114,615,892 edges, 602 features and 41 communities; PyG downloads it (1.3 GB). With ``--scale
0.01`` a graph of so large a part of its nodes and edges, with as many features, communities and nodes to train on, is
generated instead. Neighbourhoods are sampled by pyg-lib or torch-sparse; without them there is ``--mode full``.

    python examples/reddit.py --backend pygfuse
    python examples/reddit.py --backend pyg --scale 0.01 --model sage --mode sampled
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Reddit
from torch_geometric.loader import NeighborLoader
from tqdm import tqdm

from pygfuse.memory import peak_bytes

NODES, EDGES, FEATURES, CLASSES = 232_965, 114_615_892, 602, 41
TRAIN, VALIDATION = 0.66, 0.10
# how many edges join posts of one community
WITHIN = 0.75
NEIGHBOURS = (25, 10)
SAMPLED, FULL = 'sampled', 'full'
HAS_SAMPLER = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE


class Model(torch.nn.Module):
    """Two layers with a rectifier and dropout between them."""

    def __init__(self, convs: object, kind: str, channels: int, heads: int) -> None:
        super().__init__()
        if kind == 'gat':
            self.first = convs.GATConv(FEATURES, channels // heads, heads=heads)
            self.second = convs.GATConv(channels, CLASSES, heads=1)
        else:
            conv = convs.SAGEConv if kind == 'sage' else convs.GCNConv
            self.first, self.second = conv(FEATURES, channels), conv(channels, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        return self.second(F.dropout(x, p=0.5, training=self.training), edge_index)


def convs_of(backend: str) -> object:
    """The module with the convs of a backend, "pyg" or "pygfuse"."""
    if backend == 'pygfuse':
        import pygfuse.conv as convs
    else:
        import torch_geometric.nn as convs
    return convs


def generated(scale: float) -> Data:
    """A graph with Reddit's statistics: degrees of a power law, most edges within a community."""
    generator = torch.Generator().manual_seed(0)
    nodes, pairs = max(int(scale * NODES), CLASSES), int(scale * EDGES / 2)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    popularity = torch.rand(nodes, generator=generator).pow(-1 / 1.5)
    first = torch.multinomial(popularity, pairs, replacement=True, generator=generator)
    second = torch.randint(nodes, (pairs,), generator=generator)
    # any node of the same community in its place
    order, sizes = y.argsort(), y.bincount(minlength=CLASSES)
    begins = sizes.cumsum(0) - sizes
    drawn = (torch.rand(pairs, generator=generator) * sizes[y[first]]).long()
    is_within = torch.rand(pairs, generator=generator) < WITHIN
    second = torch.where(is_within, order[begins[y[first]] + drawn], second)
    x = torch.randn(nodes, FEATURES, generator=generator)
    x += 0.5 * torch.randn(CLASSES, FEATURES, generator=generator)[y]
    part = torch.rand(nodes, generator=generator)
    masks = {'train_mask': part < TRAIN, 'test_mask': part >= TRAIN + VALIDATION}
    edge_index = torch.stack([torch.cat([first, second]), torch.cat([second, first])])
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def data_of(options: argparse.Namespace) -> Data:
    """Reddit, or what is generated in its place."""
    if options.scale is not None:
        return generated(options.scale)
    try:
        return Reddit(options.root)[0]
    except OSError as error:
        raise SystemExit(
            f'Reddit is not in {options.root!r} and cannot be downloaded ({error}): try --scale 0.01'
        ) from error


def batches(data: Data, mask: Tensor, mode: str, options: argparse.Namespace) -> Iterable[Data]:
    """What an epoch runs on: batches whose first nodes count, or the graph, whose nodes in the mask do."""
    if mode == FULL:
        return [data]
    neighbours = {'num_neighbors': list(NEIGHBOURS), 'batch_size': options.batch_size, 'input_nodes': mask}
    # persistent workers of PyG's loaders are waited for when they end, five seconds each
    return NeighborLoader(data, shuffle=mask is data.train_mask, num_workers=options.workers, **neighbours)


def outputs(model: Model, batch: Data, mask: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Scores and classes of the nodes that count."""
    scores = model(batch.x, batch.edge_index)
    rows = mask if mode == FULL else slice(batch.batch_size)
    return scores[rows], batch.y[rows]


def step_of(model: Model, optimizer: torch.optim.Optimizer, mask: Tensor, mode: str) -> Callable[[Data], None]:
    def step(batch: Data) -> None:
        optimizer.zero_grad()
        F.cross_entropy(*outputs(model, batch, mask, mode)).backward()
        optimizer.step()

    return step


@torch.no_grad()
def accuracy(model: Model, data: Data, mode: str, options: argparse.Namespace) -> float:
    """Of the test nodes."""
    model.eval()
    right = total = 0
    for batch in batches(data, data.test_mask, mode, options):
        scores, y = outputs(model, batch, data.test_mask, mode)
        right, total = right + int((scores.argmax(dim=-1) == y).sum()), total + len(y)
    return right / total


def run(data: Data, kind: str, mode: str, options: argparse.Namespace) -> str:
    """Trains one model, and gives its row of the table."""
    torch.manual_seed(options.seed)
    model = Model(convs_of(options.backend), kind, options.channels, options.heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step, loader = step_of(model, optimizer, data.train_mask, mode), batches(data, data.train_mask, mode, options)
    seconds = []
    for epoch in range(options.epochs):
        model.train()
        start = time.perf_counter()
        for batch in tqdm(loader, desc=f'{kind} {mode} {epoch + 1}/{options.epochs}', leave=False):
            step(batch)
        seconds.append(time.perf_counter() - start)
    # the first epoch compiles, or loads what was compiled
    median = statistics.median(seconds[1:] or seconds)
    tested = accuracy(model, data, mode, options)
    model.train()
    peak = peak_bytes(lambda: step(batch))
    name = {'sage': 'SAGE', 'gcn': 'GCN', 'gat': 'GAT'}[kind]
    return f'{name:<6}{mode:<9}{options.backend:<9}{median:>12.3f}{peak / 1e6:>16,.1f}{100 * tested:>12.2f}%'


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--backend', choices=['pyg', 'pygfuse'], default='pygfuse', help='default: pygfuse')
    parser.add_argument(
        '--root', default='data/Reddit', help='where Reddit lies or is downloaded to (default: %(default)s)'
    )
    parser.add_argument('--scale', type=float, help='generate a graph of so large a part of Reddit instead')
    parser.add_argument('--model', nargs='+', choices=['sage', 'gcn', 'gat'], default=['sage', 'gcn', 'gat'])
    parser.add_argument('--mode', nargs='+', choices=[SAMPLED, FULL], default=[SAMPLED, FULL])
    parser.add_argument('--epochs', type=int, default=5)
    parser.add_argument('--batch-size', type=int, default=1024, help='of sampled neighbourhoods')
    parser.add_argument('--workers', type=int, default=2, help='processes that sample (default: 2)')
    parser.add_argument('--channels', type=int, default=256)
    parser.add_argument('--heads', type=int, default=4, help="of GAT's first layer")
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    if min(options.epochs, options.batch_size, options.heads) < 1 or options.workers < 0:
        parser.error('--epochs, --batch-size and --heads must be at least 1, --workers at least 0')
    if options.channels < 1 or options.channels % options.heads:
        parser.error(f'--channels must be a multiple of --heads (got {options.channels} and {options.heads})')
    if options.scale is not None and not 0 < options.scale <= 1:
        parser.error(f'--scale must be more than 0 and at most 1 (got {options.scale})')
    if SAMPLED in options.mode and not HAS_SAMPLER:
        parser.error('--mode sampled needs pyg-lib or torch-sparse, neither of which is installed: try --mode full')
    return options


def main() -> None:
    options = parse_arguments()
    data = data_of(options)
    print(f'{data.num_nodes:,} nodes, {data.num_edges:,} edges, {int(data.train_mask.sum()):,} to train on')
    rows = [run(data, kind, mode, options) for kind in options.model for mode in options.mode]
    header = f'{"model":<6}{"mode":<9}{"backend":<9}{"s per epoch":>12}{"peak, MB a step":>16}{"accuracy":>13}'
    print('\n'.join([header, '-' * len(header), *rows]))


if __name__ == '__main__':
    main()
