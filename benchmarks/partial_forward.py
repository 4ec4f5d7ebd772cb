"""Forward passes and training steps of which only the training nodes' outputs are wanted, with `pygfuse.active`.

A model of layers of 16 channels, the last one of as many as there are classes, 128 random features, some random nodes
to train on. *whole* computes all outputs and walks whole graphs backward, *active* runs the model within
``pygfuse.active(train_mask)``. "Edges" is the share of all layers' edges that *active* walks: what it promises.
"Layers" times the forward aggregations alone. Figures are medians in ms, with quartiles in brackets.

    python benchmarks/partial_forward.py --data DATA
    python benchmarks/partial_forward.py --data DATA --graphs web-NotreDame --layers 2 3 --ratios 0.01 0.1 --directed

DATA is as for ``execution_paths.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from pathlib import Path

import torch
from convs import Timer, quartiles
from execution_paths import GRAPHS, Model, data_of, machine
from torch import Tensor
from torch_geometric.data import Data

import pygfuse
from pygfuse.conv import GATConv, GCNConv, SAGEConv
from pygfuse.cpu import backend as target
from pygfuse.partial.paths.policy import execution_paths

CONVS = {'GCN': GCNConv, 'GAT': GATConv, 'SAGE': SAGEConv}


class Side:
    """One way to train."""

    def __init__(self, data: Data, model: Model, is_active: bool) -> None:
        self.data, self.model, self.is_active = data, model, is_active
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.forwards, self.steps, self.aggregations = Timer(), Timer(), Timer()

    def output(self) -> Tensor:
        data = self.data
        with pygfuse.active(data.train_mask) if self.is_active else contextlib.nullcontext():
            return self.model(data.x, data.edge_index)[data.train_mask]

    def train(self) -> Tensor:
        data = self.data
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.output(), data.y[data.train_mask])
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self) -> float:
        inner, spent = target.forward, [0.0]

        def timed(*arguments):
            start = time.perf_counter()
            found = inner(*arguments)
            spent[0] += time.perf_counter() - start
            return found

        target.forward = timed
        try:
            with torch.no_grad():
                self.forwards(self.output)
        finally:
            target.forward = inner
        self.aggregations.times.append(spent[0])
        with execution_paths(False):
            return self.steps(self.train).item()


def measure(data: Data, classes: int, conv: str, layers: int, repeats: int) -> list[str]:
    """One row of the table, without the graph's name."""
    sides = []
    for is_active in (False, True):
        torch.manual_seed(0)
        sides.append(Side(data, Model(CONVS[conv], layers, classes), is_active))
    losses, first = [], 0.0
    for i in range(repeats + 3):
        losses.append([side.run() for side in sides])
        if i < 3:
            first = max(first, sides[1].forwards.times[0])
            for side in sides:
                for timer in (side.forwards, side.steps, side.aggregations):
                    timer.times.clear()
    assert all(abs(a - b) < 1e-3 * abs(a) for a, b in losses), losses
    walked = [layer.note.forward for layer in sides[1].model.convs]
    cells = [f'{sum(one.edges for one in walked) / sum(one.all_edges for one in walked):.0%}']
    for name in ('aggregations', 'forwards', 'steps'):
        pair = [getattr(side, name) for side in sides]
        cells += [quartiles(timer.times) for timer in pair] + [f'{pair[1].median / pair[0].median:.0%}']
    return [
        *(conv, str(layers), f'{float(data.train_mask.float().mean()):.0%}'),
        *(' '.join(f'{one.rows / one.all_rows:.0%}' for one in walked), *cells, f'{first * 1e3:.0f}'),
    ]


HEADER = [
    'graph', 'model', 'layers', 'train', 'rows by layer', 'edges', 'layers: whole', 'active', 'ratio',
    'forward: whole', 'active', 'ratio', 'step: whole', 'active', 'ratio', 'first forward',
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=Path, required=True)
    parser.add_argument('--graphs', nargs='*', choices=list(GRAPHS), default=['web-NotreDame'])
    parser.add_argument('--models', nargs='*', choices=list(CONVS), default=['GCN', 'GAT'])
    parser.add_argument('--layers', nargs='*', type=int, default=[2])
    parser.add_argument('--ratios', nargs='*', type=float, default=[0.01])
    parser.add_argument('--directed', action='store_true', help='graphs as they come')
    parser.add_argument('--repeats', type=int, default=20)
    options = parser.parse_args()
    print(machine(), '\n')
    print('| ' + ' | '.join(HEADER) + ' |\n|' + ' --- |' * len(HEADER))
    for name in options.graphs:
        for ratio in options.ratios:
            data, classes = data_of(name, options.data, ratio, options.directed)
            for conv, layers in itertools.product(options.models, options.layers):
                row = measure(data, classes, conv, layers, options.repeats)
                print('| ' + ' | '.join([f'{name}{", directed" if options.directed else ""}', *row]) + ' |', flush=True)


if __name__ == '__main__':
    main()
