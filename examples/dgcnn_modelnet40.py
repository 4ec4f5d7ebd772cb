"""Trains DGCNN (Wang et al., 2019) to classify the shapes of ModelNet, with PyG's EdgeConv or the fused one.

The defaults are the paper's: four layers of 64, 64, 128 and 256 channels on the 20 nearest neighbours in the space of
the layer's features, 1,024 points a shape, SGD with a cosine schedule. The shapes are PyG's ``ModelNet``, which
downloads them, or a file of voxels (``--voxels``, from which points are drawn on the surface). PyG's own
``DynamicEdgeConv`` needs pyg-lib; here both backends get the same neighbours from ``pygfuse.knn_graph``. With
``--backend both`` the two start from the same parameters and see the same points.

    python examples/dgcnn_modelnet40.py --name 40
    python examples/dgcnn_modelnet40.py --voxels modelnet10_voxel30.npz --points 256 --epochs 10 --backend both
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, LeakyReLU, Linear, Module, ModuleList, Sequential
from tqdm import tqdm

from pygfuse import knn_graph
from pygfuse.conv import DynamicEdgeConv
from pygfuse.memory import peak_bytes

matplotlib.use('Agg')
import matplotlib.pyplot as plt

NAMES = {'pyg': 'PyG', 'pygfuse': 'pygfuse'}
COLORS = {'PyG': '#9aa3ad', 'pygfuse': '#0b7a75'}
SIDE = 30  # of a grid of voxels
# points kept of each mesh, of which those of a step are drawn
POOL = 4096


@dataclass(frozen=True)
class Shapes:
    """Points on the surface of each shape, and its class; `cell` is the edge of the cube that a point stands for."""

    points: list[Tensor]
    labels: Tensor
    cell: float = 0.0

    def __len__(self) -> int:
        return len(self.points)

    def draw(self, shapes: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """`count` points of each of some shapes, ``[shapes, count, 3]``, in a ball of radius 1."""
        drawn = []
        for shape in shapes.tolist():
            points = self.points[shape]
            order = torch.randperm(len(points), generator=generator)
            drawn.append(points[order.repeat(-(-count // len(points)))[:count]])
        points = torch.stack(drawn)
        points = points + self.cell * (torch.rand(points.shape, generator=generator) - 0.5)
        points = points - points.mean(dim=1, keepdim=True)
        return points / points.norm(dim=2).amax(dim=1).view(-1, 1, 1)


def surface(occupied: np.ndarray) -> np.ndarray:
    """The occupied cells of grids ``[shapes, n, n, n]`` that have an empty neighbour."""
    padded = np.pad(occupied, ((0, 0), (1, 1), (1, 1), (1, 1)))
    inside = occupied.copy()
    for axis in (1, 2, 3):
        for shift in (-1, 1):
            inside &= np.roll(padded, shift, axis)[:, 1:-1, 1:-1, 1:-1]
    return occupied & ~inside


def voxel_shapes(path: Path) -> tuple[Shapes, Shapes, int]:
    """Shapes to train and to test on, from bits of occupied cells, and the number of classes; no empty grids."""
    file = np.load(path)
    found = []
    for part in ('train', 'test'):
        bits = np.unpackbits(file[f'{part}_bits'], axis=1)[:, : SIDE**3].astype(bool)
        cells = surface(bits.reshape(-1, SIDE, SIDE, SIDE))
        some = cells.any(axis=(1, 2, 3))
        points = [torch.from_numpy(np.argwhere(shape)).float() for shape in cells[some]]
        found.append(Shapes(points, torch.from_numpy(file[f'{part}_label'][some]).long(), cell=1.0))
    return found[0], found[1], len(file['class_names'])


def mesh_shapes(root: str, name: str, seed: int) -> tuple[Shapes, Shapes, int]:
    """Shapes to train and to test on, from PyG's ModelNet, and the number of classes."""
    from torch_geometric.datasets import ModelNet
    from torch_geometric.transforms import SamplePoints

    torch.manual_seed(seed)
    found = []
    for train in (True, False):
        dataset = ModelNet(root, name, train)
        sample = SamplePoints(POOL)
        points = [sample(data).pos for data in tqdm(dataset, desc='Points', unit=' shapes', leave=False)]
        found.append(Shapes(points, dataset.y))
    return found[0], found[1], dataset.num_classes


class NearestEdgeConv(pyg.EdgeConv):
    """PyG's EdgeConv on the nearest neighbours that the fused layer would find."""

    def __init__(self, nn: Module, k: int) -> None:
        super().__init__(nn)
        self.k = k

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        return super().forward(x, knn_graph(x, self.k, batch, loop=True))


class DGCNN(Module):
    """The network for classification.

    Args:
        conv: ``NearestEdgeConv`` or ``DynamicEdgeConv``.
        classes: Number of classes.
        channels: Of each dynamic layer.
        k: Number of neighbours.
        embedding: Channels of the features that are pooled over a shape.
        norm: ``'edges'``: batch normalisation and activation of every edge before the maximum, as in the paper;
            ``'nodes'``: of every node after it.
    """

    def __init__(
        self, conv: type[Module], classes: int, channels: list[int], k: int, embedding: int, norm: str = 'edges'
    ) -> None:
        super().__init__()
        self.convs, self.norms = ModuleList(), ModuleList()
        for before, after in zip([3, *channels], channels, strict=False):
            linear, rest = Linear(2 * before, after, bias=False), (BatchNorm1d(after), LeakyReLU(0.2))
            self.convs.append(conv(Sequential(linear, *rest) if norm == 'edges' else linear, k))
            self.norms.append(Sequential(*(() if norm == 'edges' else rest)))
        self.embed = Sequential(Linear(sum(channels), embedding, bias=False), BatchNorm1d(embedding), LeakyReLU(0.2))
        self.classify = Sequential(
            *(Linear(2 * embedding, 512, bias=False), BatchNorm1d(512), LeakyReLU(0.2), Dropout(0.5)),
            *(Linear(512, 256), BatchNorm1d(256), LeakyReLU(0.2), Dropout(0.5)),
            Linear(256, classes),
        )

    def forward(self, points: Tensor) -> Tensor:
        """Scores ``[shapes, classes]`` of points ``[shapes, count, 3]``."""
        shapes, count, _ = points.shape
        batch = torch.arange(shapes).repeat_interleave(count)
        x, found = points.flatten(0, 1), []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, batch))
            found.append(x)
        x = self.embed(torch.cat(found, dim=1)).view(shapes, count, -1)
        return self.classify(torch.cat([x.amax(dim=1), x.mean(dim=1)], dim=1))


@dataclass
class Run:
    """One of the models and what is measured of it."""

    name: str
    model: Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    losses: list[float] = field(default_factory=list)  # means over epochs
    accuracies: list[float] = field(default_factory=list)  # on the test shapes, after each epoch
    seconds: list[float] = field(default_factory=list)  # of an epoch's training steps together
    steps: list[float] = field(default_factory=list)  # of each of them
    first_loss: float = 0.0
    peak: int = 0


def new_run(backend: str, classes: int, arguments: argparse.Namespace) -> Run:
    torch.manual_seed(arguments.seed)
    conv = DynamicEdgeConv if backend == 'pygfuse' else NearestEdgeConv
    model = DGCNN(conv, classes, arguments.channels, arguments.k, arguments.embedding, arguments.norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs, arguments.learning_rate / 100)
    return Run(NAMES[backend], model, optimizer, schedule)


def moved(points: Tensor, generator: torch.Generator) -> Tensor:
    """Points stretched along each axis by 2/3 to 3/2 and shifted by up to 0.2, shape by shape."""
    shape = (len(points), 1, 3)
    stretch = 2 / 3 + (3 / 2 - 2 / 3) * torch.rand(shape, generator=generator)
    return points * stretch + 0.4 * (torch.rand(shape, generator=generator) - 0.5)


def train_step(run: Run, points: Tensor, labels: Tensor) -> float:
    run.model.train()
    run.optimizer.zero_grad()
    loss = F.cross_entropy(run.model(points), labels, label_smoothing=0.2)
    loss.backward()
    run.optimizer.step()
    return loss.item()


@torch.no_grad()
def accuracy(run: Run, shapes: Shapes, arguments: argparse.Namespace) -> float:
    """The share of shapes that the model tells, from the same points every time."""
    run.model.eval()
    generator = torch.Generator().manual_seed(arguments.seed)
    right = 0
    for some in torch.arange(len(shapes)).split(arguments.batch_size):
        scores = run.model(shapes.draw(some, arguments.points, generator))
        right += int((scores.argmax(dim=1) == shapes.labels[some]).sum())
    return right / len(shapes)


def train(runs: list[Run], shapes: Shapes, test: Shapes, arguments: argparse.Namespace) -> None:
    """Trains all models on the same points, one step of each in turn."""
    generator = torch.Generator().manual_seed(arguments.seed)
    steps = min(len(shapes) // arguments.batch_size, arguments.steps)
    with tqdm(total=arguments.epochs * steps, desc='Training', unit=' steps') as progress:
        for epoch in range(arguments.epochs):
            losses, first = {run.name: [] for run in runs}, [len(run.steps) for run in runs]
            order = torch.randperm(len(shapes), generator=generator)[: steps * arguments.batch_size]
            for some in order.split(arguments.batch_size):
                points = moved(shapes.draw(some, arguments.points, generator), generator)
                for run in runs:
                    torch.manual_seed(epoch)  # the same dropout for both
                    start = time.perf_counter()
                    losses[run.name].append(train_step(run, points, shapes.labels[some]))
                    run.steps.append(time.perf_counter() - start)
                progress.update()
            for run, begin in zip(runs, first, strict=True):
                run.schedule.step()
                run.losses.append(statistics.mean(losses[run.name]))
                run.seconds.append(sum(run.steps[begin:]))
                run.first_loss = run.first_loss or losses[run.name][0]
                run.accuracies.append(accuracy(run, test, arguments))
            progress.set_postfix_str(', '.join(f'{run.name} {run.accuracies[-1]:.1%}' for run in runs))


def measure(run: Run, shapes: Shapes, arguments: argparse.Namespace) -> None:
    """The peak of one more step."""
    some = torch.arange(arguments.batch_size)
    points = shapes.draw(some, arguments.points, torch.Generator().manual_seed(arguments.seed))
    run.optimizer.zero_grad()  # or the profiler would not see the old gradients being freed
    run.peak = peak_bytes(lambda: train_step(run, points, shapes.labels[some]))


def table(runs: list[Run]) -> str:
    """The figures of the runs side by side."""
    rows = [
        ('', *(run.name for run in runs)),
        ('test accuracy', *(f'{run.accuracies[-1]:.2%}' for run in runs)),
        ('s per epoch', *(f'{statistics.median(run.seconds):.2f}' for run in runs)),
        ('ms per step', *(f'{1e3 * statistics.median(run.steps):.1f}' for run in runs)),
        ('peak of a step', *(f'{run.peak / 1e6:.1f} MB' for run in runs)),
    ]
    if len(runs) == 2:
        pairs = [
            [run.accuracies[-1], statistics.median(run.seconds), statistics.median(run.steps), run.peak] for run in runs
        ]
        ratios = ['ratio', *(f'{left / right:.2f}' if right else 'inf' for left, right in zip(*pairs, strict=True))]
        rows = [(*row, ratio) for row, ratio in zip(rows, ratios, strict=True)]
    lines = [f'{row[0]:<16}' + ''.join(f'{cell:>14}' for cell in row[1:]) for row in rows]
    lines.insert(1, '-' * len(lines[0]))
    return '\n'.join(lines)


def caption(runs: list[Run], shapes: Shapes, test: Shapes, arguments: argparse.Namespace) -> str:
    channels = ', '.join(map(str, arguments.channels))
    text = (
        f'{len(shapes):,} shapes to train on, {len(test):,} to test; {arguments.points} points, k = {arguments.k}, '
        f'layers {channels}, embedding {arguments.embedding}, norm of {arguments.norm}, batches of '
        f'{arguments.batch_size}.\n'
        f'{arguments.epochs} epochs of {len(runs[0].steps) // arguments.epochs} steps; {torch.get_num_threads()} '
        'threads; times are medians, of training with its search for neighbours. Accuracy is that after the last epoch.'
    )
    if len(runs) == 2:
        apart = abs(runs[0].first_loss - runs[1].first_loss)
        text += f'\nThe losses of the first step differ by {apart:.1e}; later ones part as rounding errors grow.'
    return text


def picture(runs: list[Run], path: Path) -> None:
    """Curves of loss and accuracy, and bars for time and memory."""
    figure, (losses, accuracies, *bars) = plt.subplots(
        1, 4, figsize=(12, 3.6), width_ratios=[1.4, 1.4, 1, 1], layout='constrained'
    )
    figure.get_layout_engine().set(wspace=0.06)
    figure.suptitle('DGCNN on ModelNet', fontsize=13)
    for run, width in zip(runs, (5, 1.6) if len(runs) == 2 else (1.6,), strict=True):
        epochs = range(1, len(run.losses) + 1)
        style = {'color': COLORS[run.name], 'linewidth': width, 'marker': '.', 'label': run.name}
        losses.plot(epochs, run.losses, **style)
        accuracies.plot(epochs, [100 * value for value in run.accuracies], **style)
    losses.set(title='training loss', xlabel='epoch')
    accuracies.set(title='test accuracy, %', xlabel='epoch')
    accuracies.legend(frameon=False, fontsize=9, loc='lower right')
    for axes, title, values in zip(
        bars,
        ('s per epoch', 'MB at the peak of a step'),
        ([statistics.median(run.seconds) for run in runs], [run.peak / 1e6 for run in runs]),
        strict=True,
    ):
        drawn = axes.bar([run.name for run in runs], values, color=[COLORS[run.name] for run in runs], width=0.6)
        axes.bar_label(drawn, [f'{value:,.0f}' if value >= 100 else f'{value:.3g}' for value in values], padding=2)
        axes.set(title=title, yticks=[], ylim=(0, 1.15 * max(values)), xlim=(-0.7, len(runs) - 0.3))
        axes.tick_params(bottom=False)
        axes.spines['left'].set_visible(False)
    for axes in (losses, accuracies, *bars):
        axes.spines[['top', 'right']].set_visible(False)
    for axes in (losses, accuracies):
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--backend', choices=[*NAMES, 'both'], default='pygfuse', help='default: pygfuse')
    parser.add_argument('--name', choices=['10', '40'], default='40', help='which ModelNet to download (default: 40)')
    parser.add_argument(
        '--root', default='data/ModelNet', help='where it lies or is downloaded to (default: %(default)s)'
    )
    parser.add_argument('--voxels', type=Path, help='a file of voxels instead')
    parser.add_argument('--points', type=int, default=1024, help='of a shape (default: 1024)')
    parser.add_argument('--k', type=int, default=20, help='number of neighbours (default: 20)')
    parser.add_argument('--channels', type=int, nargs='+', default=[64, 64, 128, 256], help='default: 64 64 128 256')
    parser.add_argument('--embedding', type=int, default=1024, help='channels that are pooled (default: 1024)')
    parser.add_argument('--norm', choices=['edges', 'nodes'], default='edges', help='of the layers (default: edges)')
    parser.add_argument('--batch-size', type=int, default=32, help='shapes of a step (default: 32)')
    parser.add_argument('--epochs', type=int, default=250, help='default: 250')
    parser.add_argument('--steps', type=int, default=sys.maxsize, help='of an epoch at most, for a first look')
    parser.add_argument('--learning-rate', type=float, default=0.1, help='the first (default: 0.1)')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    parser.add_argument('--output', type=Path, default=Path('dgcnn.png'), help='default: dgcnn.png')
    arguments = parser.parse_args()
    counts = (arguments.points, arguments.k, arguments.epochs, arguments.steps, arguments.batch_size)
    if min(counts) < 1:
        parser.error('--points, --k, --epochs, --steps and --batch-size must be at least 1')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.voxels is None:
        shapes, test, classes = mesh_shapes(arguments.root, arguments.name, arguments.seed)
    else:
        shapes, test, classes = voxel_shapes(arguments.voxels)
    if arguments.batch_size > len(shapes):
        sys.exit(
            f'error: --batch-size must be at most {len(shapes)}, the shapes to train on (got {arguments.batch_size})'
        )
    backends = NAMES if arguments.backend == 'both' else [arguments.backend]
    runs = [new_run(backend, classes, arguments) for backend in backends]
    train(runs, shapes, test, arguments)
    for run in runs:
        measure(run, shapes, arguments)
    print(f'\n{table(runs)}\n\n{caption(runs, shapes, test, arguments)}')
    picture(runs, arguments.output)
    print(f'Picture: {arguments.output}')


if __name__ == '__main__':
    main()
