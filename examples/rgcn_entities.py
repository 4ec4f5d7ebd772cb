"""Classifies the entities of a knowledge graph with the RGCN of Schlichtkrull et al. (2018), with PyG's conv and fused.

Two layers with basis decomposition, an embedding of each entity in place of features. Both models start from the same
parameters and train in turn. The data are those of PyG's ``Entities``, which reads them with pandas and rdflib.

    python examples/rgcn_entities.py --dataset MUTAG
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
from torch_geometric.data import Data
from torch_geometric.datasets import Entities
from torch_geometric.nn import RGCNConv
from tqdm import tqdm

import pygfuse
from pygfuse.memory import saved_bytes

DATASETS = ('AIFB', 'MUTAG', 'BGS', 'AM')


class RGCN(torch.nn.Module):
    """Two layers, each relation a combination of a few bases."""

    def __init__(self, num_nodes: int, channels: int, classes: int, relations: int, bases: int) -> None:
        super().__init__()
        self.conv1 = RGCNConv(num_nodes, channels, relations, num_bases=bases)
        self.conv2 = RGCNConv(channels, classes, relations, num_bases=bases)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.conv2(self.conv1(None, edge_index, edge_type).relu(), edge_index, edge_type)


@dataclass
class Run:
    """One of the two trainings."""

    name: str
    model: RGCN
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # an epoch each, the first left out

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.seconds)


def loss_of(run: Run, data: Data) -> Tensor:
    scores = run.model(data.edge_index, data.edge_type)
    return F.cross_entropy(scores[data.train_idx], data.train_y)


def train_step(run: Run, data: Data) -> float:
    run.optimizer.zero_grad()
    loss = loss_of(run, data)
    loss.backward()
    run.optimizer.step()
    return loss.item()


def train(runs: list[Run], data: Data, epochs: int) -> None:
    """Trains all models, one epoch of each in turn."""
    for epoch in tqdm(range(epochs), desc='Training', unit=' epochs'):
        for run in runs:
            start = time.perf_counter()
            run.losses.append(train_step(run, data))
            if epoch > 0:
                run.seconds.append(time.perf_counter() - start)


@torch.no_grad()
def accuracy(run: Run, data: Data) -> float:
    """The share of test entities that are classified right."""
    predicted = run.model(data.edge_index, data.edge_type).argmax(dim=-1)
    return float((predicted[data.test_idx] == data.test_y).float().mean())


def table(runs: list[Run], data: Data) -> str:
    """The figures of both runs side by side."""
    given = [data.edge_index, data.edge_type, data.train_idx, data.train_y]
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
    parser.add_argument('--dataset', choices=DATASETS, default='MUTAG', help='default: MUTAG')
    parser.add_argument(
        '--root', default='data/Entities', help='where the data lie or are downloaded to (default: %(default)s)'
    )
    parser.add_argument('--channels', type=int, default=16, help='of the hidden layer (default: 16)')
    parser.add_argument('--bases', type=int, default=30, help='default: 30')
    parser.add_argument('--epochs', type=int, default=50, help='default: 50')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error('--epochs must be at least 2: the first is timed apart')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    dataset = Entities(arguments.root, arguments.dataset)
    data = dataset[0]
    torch.manual_seed(arguments.seed)
    model = RGCN(data.num_nodes, arguments.channels, dataset.num_classes, dataset.num_relations, arguments.bases)
    runs = [
        Run(name, made, torch.optim.Adam(made.parameters(), lr=0.01, weight_decay=5e-4))
        for name, made in (('PyG', model), ('pygfuse', pygfuse.fuse(copy.deepcopy(model))))
    ]
    train(runs, data, arguments.epochs)
    size = f'{data.num_nodes:,} entities, {data.num_edges:,} edges, {dataset.num_relations} relations'
    print(f'{arguments.dataset}: {size}')
    print(table(runs, data))
    apart = max(abs(a - b) for a, b in zip(runs[0].losses, runs[1].losses, strict=True))
    print(f'The training losses of the two differ by at most {apart:.1e}.')


if __name__ == '__main__':
    main()
