"""Classifies graphs of IMDB-BINARY and COLLAB with a GCN or GIN, with and without HAGs.

A HAG (Jia et al., "Redundancy-Free Computation Graphs for Graph Neural Networks") aggregates once what several nodes
have among their neighbours; the numbers stay the same. `ToHAG` finds one for each batch, and the model does not change.
(As a transform of the dataset it finds one for each graph, and batches take them along.) Node features are degree
profiles, as these datasets have none. Both runs start from the same parameters and see the same batches, epoch by epoch
in turn.

    python examples/hag_tu.py --dataset IMDB-BINARY --model gin --epochs 30
    python examples/hag_tu.py --dataset COLLAB --npz data/COLLAB.npz
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool
from tqdm import tqdm

from pygfuse.conv import GCNConv, GINConv
from pygfuse.transforms import ToHAG

DATASETS = ('IMDB-BINARY', 'COLLAB')


class Classifier(torch.nn.Module):
    """Two convolutions, the mean over each graph's nodes, a linear layer."""

    def __init__(self, kind: str, features: int, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = self._conv(kind, features, channels)
        self.conv2 = self._conv(kind, channels, channels)
        self.head = torch.nn.Linear(channels, classes)

    @staticmethod
    def _conv(kind: str, features: int, channels: int) -> torch.nn.Module:
        if kind == 'gcn':
            return GCNConv(features, channels)
        linear = torch.nn.Linear
        return GINConv(torch.nn.Sequential(linear(features, channels), torch.nn.ReLU(), linear(channels, channels)))

    def forward(self, data: Batch) -> Tensor:
        edge_index = data.edge_index
        x = self.conv1(data.x, edge_index).relu()
        x = self.conv2(x, edge_index).relu()
        return self.head(global_mean_pool(x, data.batch, data.num_graphs))


@dataclass
class Run:
    """One of the two trainings and what is measured of it."""

    name: str
    model: Classifier
    batches: list[Batch]
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)  # an epoch each, the first left out
    losses: list[float] = field(default_factory=list)


def load(name: str, root: str, npz: str | None) -> list[Data]:
    """The graphs of a dataset with degree profiles as features."""
    graphs = list(TUDataset(root, name)) if npz is None else graphs_of_arrays(npz)
    profile = T.LocalDegreeProfile()
    return [profile(data) for data in graphs]


def graphs_of_arrays(path: str) -> list[Data]:
    """Graphs kept as arrays: CSR over all nodes, neighbours numbered within their graph."""
    arrays = np.load(path)
    node_ptr, indptr = arrays['node_ptr'].astype(np.int64), arrays['indptr'].astype(np.int64)
    neighbours, labels = arrays['indices_local'].astype(np.int64), arrays['graph_labels'].astype(np.int64)
    labels = np.unique(labels, return_inverse=True)[1]
    graphs = []
    for first, last, label in zip(node_ptr[:-1], node_ptr[1:], labels, strict=True):
        targets = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        edges = np.stack([neighbours[indptr[first] : indptr[last]], targets])
        graphs.append(Data(edge_index=torch.from_numpy(edges), num_nodes=int(last - first), y=torch.tensor([label])))
    return graphs


def normalised(graphs: list[Data]) -> list[Data]:
    """Features on a logarithmic scale, with mean 0 and deviation 1 over all nodes."""
    features = torch.cat([data.x for data in graphs]).log1p()
    deviation, mean = torch.std_mean(features, dim=0)
    for data in graphs:
        data.x = (data.x.log1p() - mean) / deviation.clamp(min=1e-6)
    return graphs


def train_epoch(run: Run, order: list[int]) -> None:
    run.model.train()
    start, total = time.perf_counter(), 0.0
    for i in order:
        batch = run.batches[i]
        run.optimizer.zero_grad()
        loss = F.cross_entropy(run.model(batch), batch.y)
        loss.backward()
        run.optimizer.step()
        total += loss.item() / len(order)
    run.seconds.append(time.perf_counter() - start)
    run.losses.append(total)


@torch.no_grad()
def accuracy(model: Classifier, batches: list[Batch]) -> float:
    model.eval()
    right = sum(int((model(batch).argmax(dim=-1) == batch.y).sum()) for batch in batches)
    return right / sum(batch.num_graphs for batch in batches)


def compare(name: str, graphs: list[Data], arguments: argparse.Namespace) -> str:
    """Trains with and without HAGs; what to print."""
    graphs = normalised(graphs)
    torch.manual_seed(arguments.seed)
    order = torch.randperm(len(graphs)).tolist()
    tenth = len(graphs) // 10
    # a HAG belongs to the tensor of edges, so the two have batches of their own
    parts, with_hags = (
        [
            list(DataLoader([graphs[i] for i in chosen], batch_size=arguments.batch_size))
            for chosen in (order[tenth:], order[:tenth])
        ]
        for _ in range(2)
    )
    start = time.perf_counter()
    transform = ToHAG(capacity=arguments.capacity, for_batches=True)
    for part in with_hags:
        part[:] = [transform(batch) for batch in tqdm(part, desc='Search of HAGs', unit=' batches')]
    search = time.perf_counter() - start

    classes = max(int(data.y) for data in graphs) + 1
    model = Classifier(arguments.model, graphs[0].num_features, classes, arguments.channels)
    runs, tests = [], []
    for title, (train, test) in (('without', parts), ('with HAGs', with_hags)):
        twin = copy.deepcopy(model)
        runs.append(Run(title, twin, train, torch.optim.Adam(twin.parameters(), lr=0.01)))
        tests.append(test)
    for epoch in tqdm(range(arguments.epochs), desc='Training', unit=' epochs'):
        shuffled = torch.randperm(len(runs[0].batches)).tolist()
        for run in runs if epoch % 2 == 0 else runs[::-1]:
            train_epoch(run, shuffled)
    accuracies = [accuracy(run.model, batches) for run, batches in zip(runs, tests, strict=True)]
    return summary(name, runs, accuracies, search, arguments)


def summary(name: str, runs: list[Run], accuracies: list[float], search: float, arguments: argparse.Namespace) -> str:
    hags = [batch.hag for batch in runs[1].batches]
    figures = [
        [sum(getattr(hag, figure)[i] for hag in hags) for i in range(2)]
        for figure in ('num_aggregations', 'data_transfers')
    ]
    # the first epoch prepares the graphs of the batches
    times = [1e3 * statistics.median(run.seconds[1:] or run.seconds) for run in runs]
    rows = [
        ('', runs[0].name, runs[1].name, 'ratio'),
        ('test accuracy', *(f'{value:.2%}' for value in accuracies), ''),
        ('aggregations a layer', *(f'{value:,}' for value in figures[0]), _ratio(*figures[0])),
        ('data transfers a layer', *(f'{value:,}' for value in figures[1]), _ratio(*figures[1])),
        ('ms per epoch', *(f'{value:.1f}' for value in times), _ratio(*times)),
    ]
    lines = [f'{title:<24}{left:>14}{right:>14}{ratio:>8}' for title, left, right, ratio in rows]
    lines.insert(1, '-' * len(lines[0]))
    apart = max(abs(a - b) for a, b in zip(runs[0].losses, runs[1].losses, strict=True))
    used = runs[1].model.conv2.note.hag
    return '\n'.join(
        [
            *lines,
            '',
            f'{name}, {arguments.model.upper()}, {arguments.channels} channels, batches of {arguments.batch_size}; '
            f'{torch.get_num_threads()} threads; median of {len(runs[0].seconds)} epochs.',
            f'Search of all HAGs: {search:.1f} s. The HAG of the last batch: {used}.',
            f'The training losses of the two differ by at most {apart:.1e}.',
        ]
    )


def _ratio(before: float, after: float) -> str:
    return f'{before / after:.2f}' if after else 'inf'


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', choices=DATASETS, default='IMDB-BINARY', help='default: %(default)s')
    parser.add_argument(
        '--root', default='data/TU', help='where the data lie or are downloaded to (default: %(default)s)'
    )
    parser.add_argument('--npz', help='arrays to read the graphs from instead')
    parser.add_argument('--model', choices=['gcn', 'gin'], default='gcn', help='default: %(default)s')
    parser.add_argument('--channels', type=int, default=64, help='default: 64')
    parser.add_argument('--capacity', type=float, default=0.25, help='aggregation nodes a node (default: 0.25)')
    parser.add_argument('--batch-size', type=int, default=512, help='graphs a batch (default: 512)')
    parser.add_argument('--epochs', type=int, default=20, help='default: 20')
    parser.add_argument('--graphs', type=int, help='take so many graphs only')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    arguments = parser.parse_args()
    if min(arguments.epochs, arguments.batch_size, arguments.channels) < 1:
        parser.error('--epochs, --batch-size and --channels must be at least 1')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    graphs = load(arguments.dataset, arguments.root, arguments.npz)
    if arguments.graphs is not None:
        torch.manual_seed(arguments.seed)
        graphs = [graphs[i] for i in torch.randperm(len(graphs))[: arguments.graphs].tolist()]
    print(compare(arguments.dataset, graphs, arguments))


if __name__ == '__main__':
    main()
