"""Training with and without execution paths: backward aggregation, whole steps, preparation and memory.

The tables are those of "Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et
al., Tables IV and V, Figures 6 and 11): a GCN of layers of 16 channels, the last one of as many as there are classes,
128 random features, graphs made undirected (unless ``--directed``), a random tenth of the nodes to train on. All sides
run pygfuse, step by step in turn: *off* walks whole graphs, *prepared* has been through `ToExecutionPaths`, *on the
fly* has not. Backward aggregation is the time of the adjoints' walks, the look for zero rows included; a step is
forward, loss, backward and Adam. Figures are medians in ms, with quartiles in brackets.

    python -m pygfuse.bench execution_paths --data DATA
    python -m pygfuse.bench execution_paths --data DATA --graphs web-NotreDame --layers 2 3 4 5 6
    python -m pygfuse.bench execution_paths --data DATA --ratios 0.1 0.2 0.4 0.8

DATA has ``planetoid/PubMed/raw``, ``snap/web-NotreDame/web-NotreDame.txt.gz``,
``snap/ego-twitter-undirected/ego-twitter-undirected.npz`` and ``musae/git_edges.csv.gz``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from pygfuse import execution_paths as switched
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.files import ego_twitter, github, raw_planetoid, web_notredame
from pygfuse.bench.graphs import power_law
from pygfuse.bench.timing import Step
from pygfuse.bench.walks import Walks
from pygfuse.conv import GCNConv
from pygfuse.graph.graph import Graph
from pygfuse.memory import peak_bytes
from pygfuse.partial.paths.path import known_paths
from pygfuse.transforms import ToExecutionPaths

FEATURES, WIDTH = 128, 16
# each side runs so often first, in another order each time, and what these steps take longer is preparation
FIRST_STEPS = 4

# the graphs, and how many classes the last layer has (10 where there are none, as in GNNAdvisor)
GRAPHS: dict[str, tuple[Callable[[Path], Tensor], int]] = {
    'PubMed': (partial(raw_planetoid, name='PubMed'), 3),
    'GitHub': (github, 2),
    'ego-Twitter': (ego_twitter, 10),
    'web-NotreDame': (web_notredame, 10),
    # more edges than are added up as they come
    'power law': (lambda data: power_law(2000, 16_000)[0], 3),
    'large power law': (lambda data: power_law(100_000, 1_000_000)[0], 10),
}
REAL = [name for name in GRAPHS if 'power law' not in name]


class Model(torch.nn.Module):
    """Convolutions one after another, the last one with a channel for each class."""

    def __init__(self, conv: type, layers: int, classes: int) -> None:
        super().__init__()
        widths = [FEATURES, *[WIDTH] * (layers - 1), classes]
        self.convs = torch.nn.ModuleList(conv(*pair) for pair in itertools.pairwise(widths))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class Side:
    """One way to train: data of its own, so that nothing it learns of a graph helps another side."""

    def __init__(self, name: str, data: Data, layers: int, classes: int) -> None:
        torch.manual_seed(0)
        self.name, self.data, self.model = name, data, Model(GCNConv, layers, classes)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.walks = Walks(f'backward aggregation {name}', 'backward')
        self.step = Step(f'step {name}', self.walks.within(self.train), warmup=0)
        self.losses: list[float] = []

    def train(self) -> None:
        data = self.data
        with switched(False) if self.name == 'off' else contextlib.nullcontext():
            self.optimizer.zero_grad()
            out = self.model(data.x, data.edge_index)
            loss = torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
            loss.backward()
            self.optimizer.step()
        self.losses.append(loss.item())


def kept_bytes(data: Data) -> tuple[int, int]:
    """Bytes of the graph's index arrays, and of all execution paths."""
    graph = Graph.of(data.edge_index, num_sources=data.num_nodes, num_targets=data.num_nodes)
    graph = graph.with_self_loops(data.num_nodes)
    arrays = [graph.csr.indptr, graph.csr.index, graph.csr.edge_id, graph.csc.indptr, graph.csc.index]
    arrays += [graph.csc.position, graph.csc.edge_id]
    return sum(a.nbytes for a in arrays if a is not None), sum(path.num_bytes for path in known_paths(graph))


def data_of(name: str, root: Path, ratio: float, directed: bool) -> tuple[Data, int]:
    """A graph with random features and labels, and how many classes there are."""
    load, classes = GRAPHS[name]
    edge_index = load(root)
    num_nodes = int(edge_index.max()) + 1
    edge_index = coalesce(edge_index, num_nodes=num_nodes)
    edge_index = edge_index if directed else to_undirected(edge_index, num_nodes=num_nodes)
    torch.manual_seed(0)
    data = Data(
        x=torch.randn(num_nodes, FEATURES),
        edge_index=edge_index,
        y=torch.randint(classes, (num_nodes,)),
        train_mask=torch.rand(num_nodes) < ratio,
    )
    return data, classes


def add_data_options(parser: argparse.ArgumentParser, graphs: list[str], ratio: float) -> None:
    """Which graphs, and how they are trained on."""
    parser.add_argument('--data', type=Path, default=Path('data'), help='where the graphs lie (default: %(default)s)')
    parser.add_argument('--graphs', nargs='*', choices=list(GRAPHS), default=graphs)
    parser.add_argument('--layers', nargs='*', type=int, default=[2])
    parser.add_argument('--ratios', nargs='*', type=float, default=[ratio])
    parser.add_argument('--directed', action='store_true', help='graphs as they come')


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=30)
    add_data_options(parser, REAL, 0.1)


def parameters(options: Options) -> list[dict[str, Any]]:
    chosen = itertools.product(options.graphs, options.layers, options.ratios)
    directed = ', directed' if options.directed else ''
    return [{'graph': f'{name}{directed}', 'layers': layers, 'train': f'{ratio:.0%}'} for name, layers, ratio in chosen]


@benchmark(
    'execution_paths',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'features': FEATURES, 'width': WIDTH},
    ratios=[
        (f'{what} off', f'{what} {side}')
        for what in ('backward aggregation', 'step')
        for side in ('prepared', 'on the fly')
    ],
    quick={'graphs': ['power law']},
    rotate=True,
)
def execution_paths(options: Options, graph: str, layers: int, train: str) -> Measurement:
    """One graph, depth and share of nodes to train on."""
    name = graph.removesuffix(', directed')
    data, classes = data_of(name, options.data, float(train.rstrip('%')) / 100, options.directed)
    transform = ToExecutionPaths(layers)
    transform(data.clone())  # compiles
    clone = data.clone()
    start = time.perf_counter()
    prepared = transform(clone)
    preparation = time.perf_counter() - start
    sides = [Side('off', data.clone(), layers, classes), Side('prepared', prepared, layers, classes)]
    sides.append(Side('on the fly', data.clone(), layers, classes))
    for i in range(FIRST_STEPS):
        for side in sides[i % 3 :] + sides[: i % 3]:
            side.step()
    off, first, _ = sides
    early = list(first.walks.times[1:])  # kernels are compiled or loaded in the first step
    samples = yield [step for side in sides for step in (side.step, side.walks)]
    for losses in zip(*(side.losses for side in sides), strict=True):
        assert max(losses) - min(losses) < 1e-4 * abs(losses[0]), losses
    usual = statistics.median(samples[first.walks.side])
    preparation += sum(max(seconds - usual, 0) for seconds in early)  # paths are made in them
    active = [conv.note.backward for conv in first.model.convs]
    paths, resident = kept_bytes(first.data)[1], data.x.nbytes + data.edge_index.nbytes + kept_bytes(off.data)[0]
    resident += max(peak_bytes(off.train, warmup=1), 1)
    return {
        'nodes': data.num_nodes,
        'edges': data.num_edges,
        'edges walked': ' '.join(f'{a.walked_edges / a.all_edges:.0%}' for a in active),
        'preparation ms': preparation * 1e3,
        'preparation steps': preparation / statistics.median(samples[off.step.side]),
        'paths MB': paths / 1e6,
        'paths share': paths / resident,
    }
