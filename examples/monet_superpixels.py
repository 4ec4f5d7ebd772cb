"""Tells digits apart by graphs of their superpixels with MoNet, with PyG's GMMConv and with the fused one.

The experiment is that of https://arxiv.org/abs/1611.08402, smaller. The pixels of an image are grouped by place and
brightness; a group is a node with its mean brightness, edges come from the nearest groups, and Gaussians of their
polar coordinates weigh them. The images are scikit-learn's 1,797 digits of 8 x 8 pixels, or MNIST's (28 x 28) in the
files that it is published in. Both models start from the same parameters and train in turn.

    python examples/monet_superpixels.py
    python examples/monet_superpixels.py --images images.gz --labels labels.gz --superpixels 75
"""

from __future__ import annotations

import argparse
import copy
import gzip
import itertools
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from sklearn.datasets import load_digits
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GMMConv, global_max_pool, global_mean_pool
from torch_geometric.utils import scatter
from tqdm import tqdm

import pygfuse
from pygfuse.memory import saved_bytes

matplotlib.use('Agg')
import matplotlib.pyplot as plt


def images_of(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Images ``[count, height, width]`` with values up to 1, and the digits they show."""
    if options.images is None:
        digits = load_digits()
        images, labels = torch.from_numpy(digits.images).float() / 16, torch.from_numpy(digits.target)
    else:
        pixels, labels = (
            np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)
            for path, header in ((options.images, 16), (options.labels, 8))
        )
        images = torch.from_numpy(pixels.copy()).float().view(len(labels), 28, 28) / 255
        labels = torch.from_numpy(labels.copy())
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(options.seed))[: options.count]
    return images[order], labels[order].long()


def superpixels_of(images: Tensor, count: int, steps: int = 10) -> Tensor:
    """The group of each pixel, ``[images, pixels]``: k-means on place and brightness, from a regular grid of places."""
    size, height, width = images.shape
    places = torch.cartesian_prod(torch.arange(height) / height, torch.arange(width) / width)
    pixels = torch.cat([places.expand(size, -1, -1), images.reshape(size, -1, 1)], dim=-1)
    chosen = torch.linspace(0, height * width - 1, count).round().long()
    centres = pixels[:, chosen]
    for _ in range(steps):
        group = torch.cdist(pixels, centres).argmin(dim=-1)
        index = group.unsqueeze(-1).expand_as(pixels)
        counts = torch.zeros(size, count).scatter_add(1, group, torch.ones_like(group, dtype=torch.float))
        sums = torch.zeros_like(centres).scatter_add(1, index, pixels)
        # a group that lost its pixels stays where it was
        centres = torch.where(counts.unsqueeze(-1) > 0, sums / counts.clamp(min=1).unsqueeze(-1), centres)
    return torch.cdist(pixels, centres).argmin(dim=-1)


def graph_of(image: Tensor, group: Tensor, label: Tensor, neighbors: int) -> Data:
    """Groups that have pixels as nodes, at the mean of their places."""
    height, width = image.shape
    group = group.unique(return_inverse=True)[1]
    places = torch.cartesian_prod(torch.arange(height) / height, torch.arange(width) / width)
    # x to the right, y upwards
    places = torch.stack([places[:, 1], 1 - places[:, 0]], dim=-1)
    pos = scatter(places, group, reduce='mean')
    x = scatter(image.reshape(-1, 1), group, reduce='mean')
    return T.Polar()(Data(x=x, pos=pos, edge_index=pygfuse.knn_graph(pos, neighbors), y=label.view(1)))


def graphs_of(options: argparse.Namespace) -> list[Data]:
    images, labels = images_of(options)
    graphs = []
    for some, of_some in tqdm(list(zip(images.split(200), labels.split(200), strict=True)), desc='Superpixels'):
        groups = superpixels_of(some, options.superpixels)
        graphs += [graph_of(*one, options.neighbors) for one in zip(some, groups, of_some, strict=True)]
    return graphs


class MoNet(torch.nn.Module):
    """Three layers of Gaussian mixtures, mean and maximum over the nodes of a graph, and a linear map."""

    def __init__(self, channels: int, kernels: int, classes: int = 10) -> None:
        super().__init__()
        sizes = (1, channels, 2 * channels, 2 * channels)
        self.convs = torch.nn.ModuleList(GMMConv(*pair, 2, kernels) for pair in itertools.pairwise(sizes))
        self.last = torch.nn.Linear(4 * channels, classes)

    def forward(self, data: Data) -> Tensor:
        x = data.x
        for conv in self.convs:
            x = F.elu(conv(x, data.edge_index, data.edge_attr))
        pooled = [pool(x, data.batch, data.num_graphs) for pool in (global_mean_pool, global_max_pool)]
        return self.last(torch.cat(pooled, dim=-1))


@dataclass
class Run:
    """One of the two trainings."""

    name: str
    model: MoNet
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # a step each

    @property
    def milliseconds(self) -> float:
        # the first compiles, or loads what was compiled
        return 1e3 * statistics.median(self.seconds[1:] or self.seconds)


def loss_of(run: Run, batch: Batch) -> Tensor:
    return F.cross_entropy(run.model(batch), batch.y)


def train_step(run: Run, batch: Batch) -> None:
    start = time.perf_counter()
    run.optimizer.zero_grad()
    loss = loss_of(run, batch)
    loss.backward()
    run.optimizer.step()
    run.seconds.append(time.perf_counter() - start)
    run.losses.append(loss.item())


def train(runs: list[Run], graphs: list[Data], options: argparse.Namespace) -> None:
    """Trains all models, one step of each in turn."""
    loader = DataLoader(graphs, options.batch_size, shuffle=True)
    with tqdm(total=options.epochs * len(loader), desc='Training', unit=' steps') as progress:
        for _ in range(options.epochs):
            for batch in loader:
                for run in runs:
                    train_step(run, batch)
                progress.update()


@torch.no_grad()
def accuracy(run: Run, graphs: list[Data]) -> float:
    right = [(run.model(batch).argmax(dim=-1) == batch.y).sum() for batch in DataLoader(graphs, 100)]
    return int(sum(right)) / len(graphs)


def table(runs: list[Run], tested: list[Data], batch: Batch) -> str:
    """The figures of both runs side by side."""
    given = [batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.y]
    saved = [saved_bytes(lambda r=r: loss_of(r, batch), exclude=[*given, *r.model.parameters()]) / 1e6 for r in runs]
    rows = [
        ('test accuracy', '{:.1%}', [accuracy(run, tested) for run in runs]),
        ('ms per step', '{:.1f}', [run.milliseconds for run in runs]),
        ('saved for backward', '{:.1f} MB', saved),
    ]
    lines = [f'{"":<20}{runs[0].name:>14}{runs[1].name:>14}{"ratio":>10}']
    for name, form, (pyg, fused) in rows:
        lines.append(f'{name:<20}{form.format(pyg):>14}{form.format(fused):>14}{pyg / max(fused, 1e-9):>10.2f}')
    return '\n'.join(lines)


@torch.no_grad()
def picture(run: Run, tested: list[Data], path: Path) -> None:
    """Graphs of some images that were tested: nodes by brightness, edges, and what the model says."""
    figure, all_axes = plt.subplots(2, 4, figsize=(9, 5), layout='constrained')
    for axes, data in zip(all_axes.flat, tested, strict=False):
        said = int(run.model(Batch.from_data_list([data])).argmax())
        for source, target in data.edge_index.t().tolist():
            axes.plot(*data.pos[[source, target]].t(), color='#c8ced6', linewidth=0.6, zorder=1)
        axes.scatter(
            *data.pos.t(), c=data.x.flatten(), cmap='gray_r', vmin=0, vmax=1, edgecolors='#333333', s=40, zorder=2
        )
        axes.set_title(f'{int(data.y)}, taken for {said}', color='#333333' if said == int(data.y) else '#d1495b')
        axes.set_aspect('equal')
    for axes in all_axes.flat:
        axes.set_axis_off()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--images', type=Path, help="MNIST's images, gzip (default: scikit-learn's digits)")
    parser.add_argument('--labels', type=Path, help="MNIST's labels, gzip")
    parser.add_argument('--count', type=int, help='how many images (default: all)')
    parser.add_argument('--superpixels', type=int, default=32, help='of an image, at most (default: %(default)s)')
    parser.add_argument('--neighbors', type=int, default=8, help='edges to every node (default: %(default)s)')
    parser.add_argument('--channels', type=int, default=32, help='of the first layer (default: %(default)s)')
    parser.add_argument('--kernels', type=int, default=25, help='Gaussians of a layer (default: %(default)s)')
    parser.add_argument('--batch-size', type=int, default=64, help='default: %(default)s')
    parser.add_argument('--epochs', type=int, default=10, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    parser.add_argument('--output', type=Path, default=Path('monet_superpixels.png'), help='default: %(default)s')
    arguments = parser.parse_args()
    if (arguments.images is None) != (arguments.labels is None):
        parser.error('--images and --labels go together')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    graphs = graphs_of(arguments)
    tested, trained = graphs[: len(graphs) // 5], graphs[len(graphs) // 5 :]
    torch.manual_seed(arguments.seed)
    model = MoNet(arguments.channels, arguments.kernels)
    runs = [
        Run(name, made, torch.optim.Adam(made.parameters(), lr=0.005))
        for name, made in (('PyG', model), ('pygfuse', pygfuse.fuse(copy.deepcopy(model))))
    ]
    train(runs, trained, arguments)
    nodes = statistics.mean(data.num_nodes for data in graphs)
    print(f'\n{len(trained):,} graphs to train on, {len(tested):,} to test; {nodes:.1f} nodes in the mean')
    print(table(runs, tested, Batch.from_data_list(trained[: arguments.batch_size])))
    apart = max(abs(a - b) for a, b in zip(runs[0].losses[:20], runs[1].losses[:20], strict=True))
    print(f'The training losses of the two differ by at most {apart:.1e} in the first 20 steps.')
    picture(runs[1], tested, arguments.output)
    print(f'Picture: {arguments.output}')


if __name__ == '__main__':
    main()
