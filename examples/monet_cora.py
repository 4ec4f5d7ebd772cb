"""Classifies the papers of Cora with MoNet, with PyG's GMMConv and with the fused one.

The model is that of https://arxiv.org/abs/1611.08402. The pseudo-coordinates of an edge are its ends' degrees to the
power of -1/2, through a linear map and tanh, as in the paper; Gaussians of them weigh neighbours. Both models start
from the same parameters, see the same dropout, and train in turn. The data are those of PyG's ``Planetoid``.

    python examples/monet_cora.py --root data/Planetoid
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GMMConv
from torch_geometric.utils import degree
from tqdm import tqdm

import pygfuse
from pygfuse.memory import saved_bytes

matplotlib.use('Agg')
import matplotlib.pyplot as plt

DATASETS = ('Cora', 'CiteSeer', 'PubMed')


class MoNet(torch.nn.Module):
    """Two layers of Gaussian mixtures, each with coordinates of its own."""

    def __init__(self, features: int, channels: int, classes: int, kernels: int) -> None:
        super().__init__()
        self.coordinates = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(2))
        self.convs = torch.nn.ModuleList(
            GMMConv(*sizes, dim=2, kernel_size=kernels, aggr='sum')
            for sizes in ((features, channels), (channels, classes))
        )

    def pseudo(self, layer: int, degrees: Tensor) -> Tensor:
        return self.coordinates[layer](degrees).tanh()

    def forward(self, x: Tensor, edge_index: Tensor, degrees: Tensor) -> Tensor:
        x = F.dropout(x, 0.5, self.training)
        x = F.relu(self.convs[0](x, edge_index, self.pseudo(0, degrees)))
        x = F.dropout(x, 0.5, self.training)
        return self.convs[1](x, edge_index, self.pseudo(1, degrees))


@dataclass
class Run:
    """One of the two trainings."""

    name: str
    model: MoNet
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # an epoch each, the first left out
    best: float = 0.0  # accuracy on validation nodes
    accuracy: float = 0.0  # on test nodes, when the former was best

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.seconds)


def inverse_roots(data: Data) -> Tensor:
    """The degrees of both ends of each edge to the power of -1/2, ``[edges, 2]``."""
    root = degree(data.edge_index[1], data.num_nodes).clamp(min=1).pow(-0.5)
    return root[data.edge_index].t().contiguous()


def loss_of(run: Run, data: Data) -> Tensor:
    out = run.model(data.x, data.edge_index, data.edge_attr)
    return F.cross_entropy(out[data.train_mask], data.y[data.train_mask])


def train_epoch(run: Run, data: Data, epoch: int) -> None:
    run.model.train()
    torch.manual_seed(epoch)  # the same dropout for both
    start = time.perf_counter()
    run.optimizer.zero_grad()
    loss = loss_of(run, data)
    loss.backward()
    run.optimizer.step()
    if epoch > 0:
        run.seconds.append(time.perf_counter() - start)
    run.losses.append(loss.item())


@torch.no_grad()
def evaluate(run: Run, data: Data) -> None:
    right = run.model.eval()(data.x, data.edge_index, data.edge_attr).argmax(dim=-1) == data.y
    validation = float(right[data.val_mask].float().mean())
    if validation > run.best:
        run.best, run.accuracy = validation, float(right[data.test_mask].float().mean())


def train(runs: list[Run], data: Data, epochs: int) -> None:
    """Trains all models, one epoch of each in turn."""
    for epoch in tqdm(range(epochs), desc='Training', unit=' epochs'):
        for run in runs:
            train_epoch(run, data, epoch)
            evaluate(run, data)


def table(runs: list[Run], data: Data) -> str:
    """The figures of both runs side by side."""
    given = [data.x, data.y, data.edge_index, data.edge_attr, data.train_mask]
    saved = [saved_bytes(lambda r=r: loss_of(r, data), exclude=[*given, *r.model.parameters()]) / 1e6 for r in runs]
    rows = [
        ('test accuracy', '{:.1%}', [run.accuracy for run in runs]),
        ('ms per epoch', '{:.1f}', [run.milliseconds for run in runs]),
        ('saved for backward', '{:.1f} MB', saved),
    ]
    lines = [f'{"":<20}{runs[0].name:>14}{runs[1].name:>14}{"ratio":>10}']
    for name, form, (pyg, fused) in rows:
        lines.append(f'{name:<20}{form.format(pyg):>14}{form.format(fused):>14}{pyg / max(fused, 1e-9):>10.2f}')
    return '\n'.join(lines)


@torch.no_grad()
def picture(model: MoNet, data: Data, path: Path) -> None:
    """The weight that each Gaussian of the first layer gives to a neighbour, by the degrees of both ends."""
    most = int(degree(data.edge_index[1]).max())
    degrees = torch.logspace(0, torch.tensor(float(most)).log10().item(), 60)
    ends = torch.cartesian_prod(degrees, degrees).pow(-0.5)
    conv, pseudo = model.convs[0], model.pseudo(0, ends)
    squares = (pseudo[:, None] - conv.mu).square() / conv.sigma.square()
    weights = torch.exp(-0.5 * squares.sum(dim=-1)).view(60, 60, -1)
    kernels = weights.shape[-1]
    figure, all_axes = plt.subplots(1, kernels, figsize=(2.8 * kernels, 3), layout='constrained', squeeze=False)
    for number, axes in enumerate(all_axes[0]):
        drawn = axes.pcolormesh(degrees, degrees, weights[..., number], vmin=0, vmax=1, shading='nearest')
        axes.set(xscale='log', yscale='log', xlabel='degree of the target', title=f'Gaussian {number + 1}')
    all_axes[0][0].set_ylabel('degree of the source')
    figure.colorbar(drawn, ax=all_axes[0], label='weight')
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--dataset', choices=DATASETS, default='Cora', help='default: Cora')
    parser.add_argument(
        '--root', default='data/Planetoid', help='where the data lie or are downloaded to (default: %(default)s)'
    )
    parser.add_argument('--channels', type=int, default=16, help='of the hidden layer (default: %(default)s)')
    parser.add_argument('--kernels', type=int, default=3, help='Gaussians of a layer (default: %(default)s)')
    parser.add_argument('--epochs', type=int, default=200, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    parser.add_argument('--output', type=Path, default=Path('monet_cora.png'), help='default: %(default)s')
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error('--epochs must be at least 2: the first is timed apart')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    dataset = Planetoid(arguments.root, arguments.dataset, transform=T.NormalizeFeatures())
    data = dataset[0]
    data.edge_attr = inverse_roots(data)
    torch.manual_seed(arguments.seed)
    model = MoNet(data.num_features, arguments.channels, dataset.num_classes, arguments.kernels)
    runs = [
        Run(name, made, torch.optim.Adam(made.parameters(), lr=0.01, weight_decay=5e-4))
        for name, made in (('PyG', model), ('pygfuse', pygfuse.fuse(copy.deepcopy(model))))
    ]
    train(runs, data, arguments.epochs)
    print(f'\n{arguments.dataset}: {data.num_nodes:,} nodes, {data.num_edges:,} edges, {arguments.kernels} Gaussians')
    print(table(runs, data))
    apart = max(abs(a - b) for a, b in zip(runs[0].losses, runs[1].losses, strict=True))
    print(f'The training losses of the two differ by at most {apart:.1e}.')
    picture(runs[1].model, data, arguments.output)
    print(f'Picture: {arguments.output}')


if __name__ == '__main__':
    main()
