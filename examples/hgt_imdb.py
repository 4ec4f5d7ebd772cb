"""Classifies films of IMDB by genre with the Heterogeneous Graph Transformer, with PyG's conv and fused.

A linear map of each type of nodes, `HGTConv` layers, a linear map to the genres. Both models start from the same
parameters and train in turn. The data are those of PyG's ``IMDB``.

    python examples/hgt_imdb.py --layers 2 --channels 64
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.datasets import IMDB
from torch_geometric.nn import HGTConv, Linear
from tqdm import tqdm

import pygfuse
from pygfuse.memory import saved_bytes

FILM = 'movie'


class HGT(torch.nn.Module):
    """Layers of `HGTConv` between linear maps."""

    def __init__(self, data: HeteroData, channels: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.first = torch.nn.ModuleDict({kind: Linear(x.shape[1], channels) for kind, x in data.x_dict.items()})
        self.convs = torch.nn.ModuleList(HGTConv(channels, channels, data.metadata(), heads) for _ in range(layers))
        self.last = Linear(channels, classes)

    def forward(self, data: HeteroData) -> Tensor:
        x = {kind: self.first[kind](rows).relu() for kind, rows in data.x_dict.items()}
        for conv in self.convs:
            x = conv(x, data.edge_index_dict)
        return self.last(x[FILM])


@dataclass
class Run:
    """One of the two trainings."""

    name: str
    model: HGT
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # an epoch each, the first left out

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.seconds)


def loss_of(run: Run, data: HeteroData) -> Tensor:
    mask = data[FILM].train_mask
    return F.cross_entropy(run.model(data)[mask], data[FILM].y[mask])


def train_step(run: Run, data: HeteroData) -> float:
    run.optimizer.zero_grad()
    loss = loss_of(run, data)
    loss.backward()
    run.optimizer.step()
    return loss.item()


def train(runs: list[Run], data: HeteroData, epochs: int) -> None:
    """Trains all models, one epoch of each in turn."""
    for epoch in tqdm(range(epochs), desc='Training', unit=' epochs'):
        for run in runs:
            start = time.perf_counter()
            run.losses.append(train_step(run, data))
            if epoch > 0:
                run.seconds.append(time.perf_counter() - start)


@torch.no_grad()
def accuracy(run: Run, data: HeteroData) -> float:
    """The share of test films that are classified right."""
    right = run.model(data).argmax(dim=-1) == data[FILM].y
    return float(right[data[FILM].test_mask].float().mean())


def table(runs: list[Run], data: HeteroData) -> str:
    """The figures of both runs side by side."""
    given = [*data.x_dict.values(), *data.edge_index_dict.values()]
    saved = [saved_bytes(lambda r=r: loss_of(r, data), exclude=[*given, *r.model.parameters()]) / 1e6 for r in runs]
    rows = [
        ('test accuracy', '{:.1%}', [accuracy(run, data) for run in runs]),
        ('ms per epoch', '{:.1f}', [run.milliseconds for run in runs]),
        ('saved for backward', '{:.1f} MB', saved),
    ]
    lines = [f'{"":<20}{runs[0].name:>14}{runs[1].name:>14}{"ratio":>10}']
    for name, form, (pyg, fused) in rows:
        lines.append(f'{name:<20}{form.format(pyg):>14}{form.format(fused):>14}{pyg / max(fused, 1e-9):>10.2f}')
    return '\n'.join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--root', default='data/IMDB', help='where the data lie or are downloaded to (default: %(default)s)'
    )
    parser.add_argument('--channels', type=int, default=64, help='default: 64')
    parser.add_argument('--heads', type=int, default=8, help='default: 8')
    parser.add_argument('--layers', type=int, default=2, help='default: 2')
    parser.add_argument('--epochs', type=int, default=30, help='default: 30')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error('--epochs must be at least 2: the first is timed apart')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    data = IMDB(arguments.root)[0]
    torch.manual_seed(arguments.seed)
    classes = int(data[FILM].y.max()) + 1
    model = HGT(data, arguments.channels, arguments.heads, arguments.layers, classes)
    runs = [
        Run(name, made, torch.optim.Adam(made.parameters(), lr=0.005, weight_decay=1e-3))
        for name, made in (('PyG', model), ('pygfuse', pygfuse.fuse(copy.deepcopy(model))))
    ]
    train(runs, data, arguments.epochs)
    print(f'IMDB: {data.num_nodes:,} nodes, {data.num_edges:,} edges')
    print(table(runs, data))
    apart = max(abs(a - b) for a, b in zip(runs[0].losses, runs[1].losses, strict=True))
    print(f'The training losses of the two differ by at most {apart:.1e}.')


if __name__ == '__main__':
    main()
