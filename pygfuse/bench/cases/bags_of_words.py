"""An epoch on Cora, CiteSeer and PubMed with their own features, mostly zero: dense and sparse, on both sides.

The published two-layer models: GCN (16 channels, dropout 0.5), GAT (8 heads of 8 channels, dropout 0.6) and SAGE (16
channels, dropout 0.5), trained full batch with Adam; an epoch is one training step with all of it. Features are
normalised by row. PyG's sparse side takes a ``torch.sparse`` CSR matrix whose values are dropped out, where PyG's layer
takes one; pygfuse's `pygfuse.transforms.ToSparseFeatures`. All sides in turn, in one process; medians in ms with the
quartiles in brackets. The ratio of a table is that of dense features; `best` is that of each side's faster layout.

    python -m pygfuse.bench bags_of_words --root data/Planetoid
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import FakeDataset, Planetoid

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Samples, Step

NAMES = ('Cora', 'CiteSeer', 'PubMed')
SIDES = {'PyG': 'dense', 'PyG, sparse': 'csr', 'pygfuse': 'dense', 'pygfuse, sparse': 'sparse'}
# PyG's gathers rows, which torch's CSR matrices do not have
NO_CSR = ('SAGE',)


class Model(torch.nn.Module):
    """Two layers with dropout before each."""

    def __init__(self, kind: str, features: int, classes: int, output_heads: int) -> None:
        super().__init__()
        self.dropout, self.activation = 0.5, F.relu
        if kind == 'GAT':
            self.dropout, self.activation = 0.6, F.elu
            self.first = pyg.GATConv(features, 8, heads=8, dropout=0.6)
            self.second = pyg.GATConv(64, classes, heads=output_heads, concat=False, dropout=0.6)
        else:
            layer = pyg.GCNConv if kind == 'GCN' else pyg.SAGEConv
            self.first, self.second = layer(features, 16), layer(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.activation(self.first(dropped(x, self.dropout, self.training), edge_index))
        return self.second(F.dropout(x, self.dropout, self.training), edge_index)


def dropped(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout, also of a CSR matrix, for which torch has none."""
    if x.layout is not torch.sparse_csr:
        return F.dropout(x, p, training)
    indices = x.crow_indices(), x.col_indices()
    return torch.sparse_csr_tensor(*indices, F.dropout(x.values(), p, training), x.shape, check_invariants=False)


def epoch(model: Model, x: Tensor, data: Data) -> Callable[[], None]:
    """What is timed: a training step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

    def run() -> None:
        optimizer.zero_grad()
        scores = model(x, data.edge_index)
        F.cross_entropy(scores[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()

    return run


def data_of(options: Options, name: str) -> tuple[Data, int]:
    """A graph with normalised features, and its number of classes."""
    if options.fake:
        data = FakeDataset(1, avg_num_nodes=options.fake, num_channels=200, num_classes=7, task='node')[0]
        data.x, data.train_mask = F.one_hot(data.y, 200).float(), torch.arange(data.num_nodes) < 30
        return data, 7
    dataset = Planetoid(options.root, name, transform=T.NormalizeFeatures())
    return dataset[0], dataset.num_classes


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=50)
    parser.add_argument('--root', default='data/Planetoid', help='where the data lie or are downloaded to')
    parser.add_argument('--names', nargs='*', default=NAMES, choices=NAMES, help='which graphs')
    parser.add_argument(
        '--fake',
        type=int,
        nargs='?',
        const=100,
        metavar='NODES',
        help='a random graph in their place (default: 100 nodes)',
    )


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for name in ['random'] if options.fake else options.names:
        for model in ('GCN', 'GAT', 'SAGE'):
            yield {'data': name, 'model': model}


@benchmark(
    'bags_of_words', parameters=parameters, arguments=arguments, quick={'names': ['Cora'], 'fake': 100}, rotate=True
)
def bags_of_words(options: Options, data: str, model: str) -> Measurement:
    """One model on one graph."""
    graph, classes = data_of(options, data)
    layouts = {
        'dense': graph.x,
        'csr': graph.x.to_sparse_csr(),
        'sparse': pygfuse.transforms.SparseFeatures.of(graph.x),
    }
    steps = []
    for side, layout in SIDES.items():
        if layout != 'csr' or model not in NO_CSR:
            torch.manual_seed(0)
            made = Model(model, graph.num_features, classes, 8 if data == 'PubMed' else 1)
            made = pygfuse.fuse(made) if side.startswith('pygfuse') else made
            steps.append(Step(side, epoch(made, layouts[layout], graph), warmup=3))
    samples: Samples = yield steps
    fastest = {
        ours: min(statistics.median(times) for side, times in samples.items() if side.startswith('pygfuse') is ours)
        for ours in (True, False)
    }
    share = float(graph.x.count_nonzero() / graph.x.numel())
    return {
        'features': graph.num_features,
        'not_zero': round(share, 4),
        'best': round(fastest[False] / fastest[True], 2),
    }
