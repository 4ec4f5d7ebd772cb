"""Forward passes and training steps of which only the training nodes' outputs are wanted, with `pygfuse.active`.

A model of layers of 16 channels, the last one of as many as there are classes, 128 random features, some random nodes
to train on. *whole* computes all outputs and walks whole graphs backward, *active* runs the model within
``pygfuse.active(train_mask)``. "Edges" is the share of all layers' edges that *active* walks: what it promises.
"Layers" times the forward aggregations alone. Figures are medians in ms, with quartiles in brackets.

    python -m pygfuse.bench partial_forward --data DATA
    python -m pygfuse.bench partial_forward --data DATA --layers 2 3 --ratios 0.01 0.1 --directed

DATA is as for ``execution_paths``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import pygfuse
from pygfuse import execution_paths
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.cases.execution_paths import Model, add_data_options, data_of
from pygfuse.bench.timing import Step
from pygfuse.bench.walks import Walks
from pygfuse.conv import GATConv, GCNConv, SAGEConv

CONVS = {'GCN': GCNConv, 'GAT': GATConv, 'SAGE': SAGEConv}
FIRST_STEPS = 3


class Side:
    """One way to train."""

    def __init__(self, name: str, data: Data, model: Model) -> None:
        self.name, self.data, self.model = name, data, model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.walks = Walks(f'layers {name}', 'forward')
        self.forward = Step(f'forward {name}', self.walks.within(self.infer), warmup=0)
        self.step = Step(f'step {name}', self.train, warmup=0)
        self.losses: list[float] = []

    def output(self) -> Tensor:
        data = self.data
        with pygfuse.active(data.train_mask) if self.name == 'active' else contextlib.nullcontext():
            return self.model(data.x, data.edge_index)[data.train_mask]

    def infer(self) -> None:
        with torch.no_grad():
            self.output()

    def train(self) -> None:
        data = self.data
        with execution_paths(False):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.output(), data.y[data.train_mask])
            loss.backward()
            self.optimizer.step()
        self.losses.append(loss.item())


def arguments(parser: argparse.ArgumentParser) -> None:
    add_data_options(parser, ['web-NotreDame'], 0.01)
    parser.add_argument('--models', nargs='*', choices=list(CONVS), default=['GCN', 'GAT'])


def parameters(options: Options) -> list[dict[str, Any]]:
    chosen = itertools.product(options.graphs, options.ratios, options.models, options.layers)
    directed = ', directed' if options.directed else ''
    return [
        {'graph': f'{name}{directed}', 'model': model, 'layers': layers, 'train': f'{ratio:.0%}'}
        for name, ratio, model, layers in chosen
    ]


@benchmark(
    'partial_forward',
    parameters=parameters,
    arguments=arguments,
    ratios=[(f'{what} active', f'{what} whole') for what in ('layers', 'forward', 'step')],
    quick={'graphs': ['power law'], 'ratios': [0.1]},
)
def partial_forward(options: Options, graph: str, model: str, layers: int, train: str) -> Measurement:
    """One graph, model and share of nodes to train on."""
    name = graph.removesuffix(', directed')
    data, classes = data_of(name, options.data, float(train.rstrip('%')) / 100, options.directed)
    sides = []
    for side in ('whole', 'active'):
        torch.manual_seed(0)
        sides.append(Side(side, data, Model(CONVS[model], layers, classes)))
    first = 0.0
    for i in range(FIRST_STEPS):
        for side in sides:
            seconds = side.forward()
            first = seconds if i == 0 else first  # of the active side, which comes last
            side.step()
    yield [step for side in sides for step in (side.forward, side.step, side.walks)]
    for losses in zip(*(side.losses for side in sides), strict=True):
        assert abs(losses[0] - losses[1]) < 1e-3 * abs(losses[0]), losses
    walked = [layer.note.forward for layer in sides[1].model.convs]
    # few edges of a block that gains nothing are walked as they come
    chosen = [one for one in walked if one is not None]
    return {
        'rows by layer': ' '.join(f'{1.0 if one is None else one.rows / one.all_rows:.0%}' for one in walked),
        'edges': sum(one.edges for one in chosen) / sum(one.all_edges for one in chosen) if chosen else 1.0,
        'first forward': first * 1e3,
    }
