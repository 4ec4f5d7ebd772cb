"""Trains the same two-layer GAT with PyG's conv and with the fused one, and compares time and memory.

The data are scikit-learn's handwritten digits, 1,797 images of 8 x 8 pixels, as a graph: every image has
edges from its ``--neighbors`` nearest neighbours. Nothing is downloaded. Both models start from the same
parameters, train on the same fifth of the images and use no dropout, so that they compute the same numbers;
their epochs take turns, so that both meet the same machine.

    python examples/quickstart.py --neighbors 48 --epochs 200 --output quickstart.png
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GATConv
from tqdm import tqdm

import pygfuse
from pygfuse.memory import peak_bytes, saved_bytes

matplotlib.use('Agg')
import matplotlib.pyplot as plt

COLORS = {'PyG': '#9aa3ad', 'pygfuse': '#0b7a75'}


class GAT(torch.nn.Module):
    """Two layers of graph attention: ``heads`` heads of ``channels`` channels, then one head a class."""

    def __init__(self, features: int, classes: int, channels: int = 8, heads: int = 8) -> None:
        super().__init__()
        self.conv1 = GATConv(features, channels, heads=heads)
        self.conv2 = GATConv(heads * channels, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.elu(self.conv1(x, edge_index)), edge_index)


@dataclass
class Run:
    """One of the two models and what is measured of it."""

    name: str
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # the first step apart
    first_step: float = 0.0
    accuracy: float = 0.0
    saved: int = 0
    peak: int = 0

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.seconds)


def digits_graph(neighbors: int, seed: int) -> Data:
    """The digits as a graph with an edge to every image from each of its nearest neighbours."""
    images, digits = load_digits(return_X_y=True)
    images = images / 16  # pixels are 0 to 16
    nearest = kneighbors_graph(images, neighbors).tocoo()
    train_mask = torch.zeros(len(digits), dtype=torch.bool)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
    train_mask[order[: len(digits) // 5]] = True
    return Data(
        x=torch.from_numpy(images).float(),
        edge_index=torch.from_numpy(np.stack([nearest.col, nearest.row])).long(),
        y=torch.from_numpy(digits).long(),
        train_mask=train_mask,
    )


def forward_loss(run: Run, data: Data) -> Tensor:
    scores = run.model(data.x, data.edge_index)
    return F.cross_entropy(scores[data.train_mask], data.y[data.train_mask])


def train_step(run: Run, data: Data) -> float:
    run.optimizer.zero_grad()
    loss = forward_loss(run, data)
    loss.backward()
    run.optimizer.step()
    return loss.item()


def train(runs: list[Run], data: Data, epochs: int) -> None:
    """Trains all models, one epoch of each in turn."""
    for epoch in tqdm(range(epochs), desc='Training', unit=' epochs'):
        for run in runs if epoch % 2 == 0 else runs[::-1]:
            start = time.perf_counter()
            run.losses.append(train_step(run, data))
            seconds = time.perf_counter() - start
            if epoch == 0:
                run.first_step = seconds
            else:
                run.seconds.append(seconds)


def measure(run: Run, data: Data) -> None:
    """Test accuracy, bytes saved for backward, and the peak of one more step."""
    with torch.no_grad():
        predicted = run.model(data.x, data.edge_index).argmax(dim=-1)
    run.accuracy = float((predicted == data.y)[~data.train_mask].float().mean())
    given = [data.x, data.y, data.edge_index, data.train_mask, *run.model.parameters()]
    run.saved = saved_bytes(lambda: forward_loss(run, data), exclude=given)
    run.optimizer.zero_grad()  # or the profiler would not see the old gradients being freed
    run.peak = peak_bytes(lambda: train_step(run, data))


def megabytes(nbytes: int) -> str:
    return f'{nbytes / 1e6:.2f} MB'


def ratio(pyg: float, fused: float) -> float:
    return pyg / fused if fused else float('inf')


def table(pyg: Run, fused: Run) -> str:
    """The figures of both runs side by side."""
    rows = [
        ('', pyg.name, fused.name, 'ratio'),
        (
            'test accuracy',
            f'{pyg.accuracy:.2%}',
            f'{fused.accuracy:.2%}',
            f'{ratio(pyg.accuracy, fused.accuracy):.3f}',
        ),
        (
            'ms per epoch',
            f'{pyg.milliseconds:.2f}',
            f'{fused.milliseconds:.2f}',
            f'{ratio(pyg.milliseconds, fused.milliseconds):.1f}',
        ),
        (
            'saved for backward',
            megabytes(pyg.saved),
            megabytes(fused.saved),
            f'{ratio(pyg.saved, fused.saved):.1f}',
        ),
        (
            'peak of a step',
            megabytes(pyg.peak),
            megabytes(fused.peak),
            f'{ratio(pyg.peak, fused.peak):.1f}',
        ),
    ]
    lines = [f'{name:<20}{left:>14}{right:>14}{times:>10}' for name, left, right, times in rows]
    lines.insert(1, '-' * len(lines[0]))
    return '\n'.join(lines)


def caption(pyg: Run, fused: Run, data: Data) -> str:
    apart = max(abs(a - b) for a, b in zip(pyg.losses, fused.losses, strict=True))
    return (
        f'Digits, {data.num_nodes:,} nodes, {data.num_edges:,} edges; {torch.get_num_threads()} threads; '
        f'median of {len(pyg.seconds)} epochs; ratio: PyG / pygfuse.\n'
        f'First step, not among these: PyG {pyg.first_step:.2f} s, pygfuse {fused.first_step:.2f} s '
        '(compiles or loads its kernels).\n'
        'Bytes are above the start of a step: parameters, data and what earlier steps built are aside.\n'
        f'The training losses of the two differ by at most {apart:.1e}.'
    )


def picture(pyg: Run, fused: Run, data: Data, path: Path) -> None:
    """Bars for time and memory, and the two learning curves."""
    figure, (curves, *bars) = plt.subplots(1, 4, figsize=(12, 3.6), width_ratios=[1.7, 1, 1, 1], layout='constrained')
    figure.get_layout_engine().set(wspace=0.06)
    figure.suptitle(f'A two-layer GAT on the digits ({data.num_nodes:,} nodes, {data.num_edges:,} edges)', fontsize=13)
    curves.plot(pyg.losses, color=COLORS['PyG'], linewidth=5, label=f'PyG, {pyg.accuracy:.1%} test accuracy')
    curves.plot(
        fused.losses,
        color=COLORS['pygfuse'],
        linewidth=1.6,
        label=f'pygfuse, {fused.accuracy:.1%} test accuracy',
    )
    curves.set(title='training loss', xlabel='epoch', yscale='log')
    curves.legend(frameon=False, fontsize=9)
    figures = [
        ('ms per epoch', pyg.milliseconds, fused.milliseconds),
        ('MB saved for backward', pyg.saved / 1e6, fused.saved / 1e6),
        ('MB at the peak of a step', pyg.peak / 1e6, fused.peak / 1e6),
    ]
    for axes, (title, left, right) in zip(bars, figures, strict=True):
        drawn = axes.bar(['PyG', 'pygfuse'], [left, right], color=list(COLORS.values()), width=0.6)
        axes.bar_label(drawn, fmt='%.3g', padding=2)
        axes.set(title=title, yticks=[], ylim=(0, 1.15 * max(left, right)))
        axes.set_xlabel(f'ratio {ratio(left, right):.1f}', fontweight='bold')
        axes.tick_params(bottom=False)
        axes.spines['left'].set_visible(False)
    for axes in (curves, *bars):
        axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--neighbors', type=int, default=48, help='edges to every node (default: 48)')
    parser.add_argument('--epochs', type=int, default=200, help='default: 200')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    parser.add_argument('--output', type=Path, default=Path('quickstart.png'), help='default: quickstart.png')
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error('--epochs must be at least 2: the first is timed apart')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    data = digits_graph(arguments.neighbors, arguments.seed)

    torch.manual_seed(arguments.seed)
    model = GAT(data.num_features, int(data.y.max()) + 1)
    models = {'PyG': model, 'pygfuse': pygfuse.fuse(copy.deepcopy(model))}
    runs = [
        Run(name, model, torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4))
        for name, model in models.items()
    ]
    train(runs, data, arguments.epochs)
    for run in runs:
        measure(run, data)

    print(f'\n{table(*runs)}\n\n{caption(*runs, data)}')
    picture(*runs, data, arguments.output)
    print(f'Picture: {arguments.output}')


if __name__ == '__main__':
    main()
