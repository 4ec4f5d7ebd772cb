"""A linear map before a sum over edges or after it: both orders forced, and the one that layers choose.

Computers, Cora and PubMed with their own features, mapped to 64 channels: a training step of one layer, of features
without a gradient (a first layer) and with one (a later layer). All sides in turn, in one process; medians in ms with
the quartiles in brackets. `chosen / better` compares the least times of the layer's own choice and of the better order.

    python benchmarks/run.py map_order --amazon data/Amazon --planetoid data/Planetoid
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, FakeDataset, Planetoid

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.layers import Layer, check_fused
from pygfuse.bench.timing import Step
from pygfuse.mapping.map_order import AGGREGATE_FIRST, MAP_FIRST, force_order

GRAPHS = ('Computers', 'Cora', 'PubMed')
KINDS = ('SAGEConv', 'GraphConv', 'GINConv', 'GCNConv')
CHANNELS = 64
FIRST, LATER = 'no gradient', 'gradient'


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--amazon', default='data/Amazon', help='where Computers lies or is downloaded to')
    parser.add_argument('--planetoid', default='data/Planetoid', help='where Cora and PubMed lie or are downloaded to')
    parser.add_argument('--graphs', nargs='*', default=GRAPHS, choices=GRAPHS, help='which graphs')
    parser.add_argument('--convs', nargs='*', default=KINDS, choices=KINDS, help='which layers')
    parser.add_argument('--pyg-repeats', type=int, default=3, help="how often PyG's layer runs (default: 3)")
    parser.add_argument('--fake', action='store_true', help='a small graph of random features in their place')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for name in options.graphs:
        for kind in options.convs:
            for of_x in (FIRST, LATER):
                yield {'graph': name, 'layer': kind, 'x': of_x}


def data_of(options: Options, name: str) -> Data:
    """A graph with its features."""
    if options.fake:
        return FakeDataset(1, avg_num_nodes=200, num_channels=100, task='node')[0]
    return Amazon(options.amazon, name)[0] if name == 'Computers' else Planetoid(options.planetoid, name)[0]


def layer_of(kind: str, features: int) -> Layer:
    """A layer that maps features to `CHANNELS`."""
    if kind != 'GINConv':
        return Layer(kind, (features, CHANNELS))
    linear = torch.nn.Linear
    return Layer(kind, (torch.nn.Sequential(linear(features, CHANNELS), torch.nn.ReLU(), linear(CHANNELS, CHANNELS)),))


def step(module: torch.nn.Module, x: Tensor, edge_index: Tensor, order: str | None = None) -> Callable[[], None]:
    """What is timed: a training step, the order forced if there is one."""
    grad = torch.randn(len(x), CHANNELS)

    def run() -> None:
        x.grad = None
        module.zero_grad()
        with contextlib.nullcontext() if order is None else force_order(order):
            module(x, edge_index).backward(grad)

    return run


@benchmark(
    'map_order',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'channels': CHANNELS},
    ratios=[('PyG', 'chosen'), (AGGREGATE_FIRST, 'chosen'), (MAP_FIRST, 'chosen')],
    quick={'fake': True, 'graphs': ['Cora'], 'pyg_repeats': 2},
    rotate=True,
)
def map_order(options: Options, graph: str, layer: str, x: str) -> Measurement:
    """One layer on one graph."""
    data = data_of(options, graph)
    plain, fused = layer_of(layer, data.num_features).pair()
    features = data.x.clone().requires_grad_(x == LATER)
    steps = [Step('PyG', step(plain, features, data.edge_index), repeats=options.pyg_repeats)]
    for order in (AGGREGATE_FIRST, MAP_FIRST):
        steps.append(Step(order, step(fused, features, data.edge_index, order), warmup=2))
    steps.append(Step('chosen', step(fused, features, data.edge_index), warmup=2))
    samples = yield steps
    check_fused(fused)
    better = min(min(samples[order]) for order in (AGGREGATE_FIRST, MAP_FIRST))
    return {'features': data.num_features, 'chosen / better': round(min(samples['chosen']) / better, 3)}
