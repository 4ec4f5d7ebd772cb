"""A force field learns energies and forces of Lennard-Jones clusters: PyG's SchNet, fused by one line.

    python examples/force_field.py [--clusters 16] [--hidden 128] [--interactions 3] [--steps 100] [--backend both]

Clusters are pieces of a close-packed lattice whose atoms were moved at random; their energies and forces are those of
the Lennard-Jones potential. SchNet (https://arxiv.org/abs/1706.08566) predicts energies, and forces as minus their
gradient by positions, so that a training step needs the gradient of a gradient. Both backends start from the same
parameters. Printed are the errors before and after on clusters held out, the time of a step, and what it keeps and
takes; the picture shows the losses of both and the forces that were learned.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
from torch import Tensor
from torch_geometric.nn.models import SchNet
from tqdm import tqdm

import pygfuse
from pygfuse.memory import peak_bytes, saved_bytes

matplotlib.use('Agg')
import matplotlib.pyplot as plt

# in units of the distance at which the potential is 0
NEAREST, CUTOFF = 2 ** (1 / 6), 3.0
ARGON = 18


class Clusters(NamedTuple):
    """Clusters of atoms: positions, each atom's cluster, the pairs within the cut-off, energies and forces."""

    pos: Tensor
    batch: Tensor
    edge_index: Tensor
    energy: Tensor
    forces: Tensor


def clusters_of(count: int, cells: int, noise: float, generator: torch.Generator) -> Clusters:
    """Cubes of so many cells of a face-centred lattice, each atom moved."""
    corners = torch.cartesian_prod(*[torch.arange(cells, dtype=torch.float64)] * 3)
    basis = torch.tensor([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], dtype=torch.float64)
    lattice = (corners.unsqueeze(1) + basis).flatten(0, 1) * (NEAREST * 2**0.5)
    moved = lattice + noise * torch.randn(count, *lattice.shape, generator=generator, dtype=torch.float64)
    apart = torch.cdist(moved, moved, compute_mode='donot_use_mm_for_euclid_dist')
    within = ((apart < CUTOFF) & (apart > 0)).nonzero()
    edge_index = within[:, :1].t() * len(lattice) + within[:, 1:].t()
    pos, batch = moved.flatten(0, 1), torch.arange(count).repeat_interleave(len(lattice))
    energy, forces = lennard_jones(pos, batch, edge_index, count)
    return Clusters(pos.float(), batch, edge_index.contiguous(), energy.float(), forces.float())


def lennard_jones(pos: Tensor, batch: Tensor, edge_index: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Energies of clusters and forces on atoms; pairs come in both directions."""
    pos = pos.detach().requires_grad_()
    inverse = lengths(pos, edge_index).pow(-6)
    of_pairs = 2.0 * (inverse.square() - inverse)
    energy = of_pairs.new_zeros(count).index_add(0, batch[edge_index[0]], of_pairs)
    (gradient,) = torch.autograd.grad(energy.sum(), pos)
    return energy.detach(), -gradient


def lengths(pos: Tensor, edge_index: Tensor) -> Tensor:
    return (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)


class Pairs:
    """The edges of the clusters that a model is called with, as its interaction graph."""

    edge_index: Tensor

    def __call__(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        return self.edge_index, lengths(pos, self.edge_index)


class Scale(NamedTuple):
    """What energies an atom and forces are measured in."""

    shift: float
    unit: float


def predicted(model: SchNet, clusters: Clusters, train: bool) -> tuple[Tensor, Tensor]:
    """Energies an atom and forces in units; with `train`, both can be differentiated."""
    model.interaction_graph.edge_index = clusters.edge_index
    pos = clusters.pos.clone().requires_grad_()
    energy = model(torch.full_like(clusters.batch, ARGON), pos, clusters.batch).squeeze(1)
    (gradient,) = torch.autograd.grad(energy.sum(), pos, create_graph=train)
    return energy * len(energy) / len(pos), -gradient


def wanted(clusters: Clusters, scale: Scale) -> tuple[Tensor, Tensor]:
    atoms = len(clusters.pos) / len(clusters.energy)
    return (clusters.energy / atoms - scale.shift) / scale.unit, clusters.forces / scale.unit


class Learned(NamedTuple):
    """What a run found: losses, errors of energies and forces before and after, milliseconds, megabytes, forces."""

    losses: list[float]
    before: tuple[float, float]
    after: tuple[float, float]
    step: float
    saved: float
    peak: float
    forces: Tensor


def errors(model: SchNet, held: Clusters, scale: Scale) -> tuple[float, float]:
    """Mean errors of energies an atom and of forces, relative to predicting their means."""
    pairs = zip(predicted(model, held, train=False), wanted(held, scale), strict=True)
    first, second = (
        float((found.detach() - right).abs().mean() / (right - right.mean()).abs().mean()) for found, right in pairs
    )
    return first, second


def train(model: SchNet, backend: str, held: Clusters, scale: Scale, options: argparse.Namespace) -> Learned:
    model = pygfuse.fuse(copy.deepcopy(model)) if backend == 'pygfuse' else copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    generator = torch.Generator().manual_seed(options.seed + 1)

    def loss(clusters: Clusters) -> Tensor:
        pairs = zip(predicted(model, clusters, train=True), wanted(clusters, scale), strict=True)
        of_energy, of_forces = ((found - right).square().mean() for found, right in pairs)
        return of_energy + of_forces

    def step(clusters: Clusters) -> float:
        optimizer.zero_grad()
        total = loss(clusters)
        total.backward()
        optimizer.step()
        return float(total.detach())

    def drawn() -> Clusters:
        return clusters_of(options.clusters, options.cells, options.noise, generator)

    before, losses, times = errors(model, held, scale), [], []
    for _ in tqdm(range(options.steps), backend, disable=None):
        clusters = drawn()
        start = time.perf_counter()
        losses.append(step(clusters))
        times.append(1e3 * (time.perf_counter() - start))
    if backend == 'pygfuse':
        print(pygfuse.report(model))
    clusters, after = drawn(), errors(model, held, scale)
    given = [*clusters, *model.parameters(), *model.buffers()]
    saved = saved_bytes(lambda: loss(clusters), exclude=given) / 1e6
    optimizer.zero_grad()  # the profiler would not recognise gradients of before
    peak = peak_bytes(lambda: step(clusters), warmup=1) / 1e6
    forces = predicted(model, held, train=False)[1].detach()
    return Learned(losses, before, after, statistics.median(times), saved, peak, forces)


ROWS: dict[str, Callable[[Learned], str]] = {
    'error of energies before': lambda one: f'{one.before[0]:.4f}',
    'error of energies after': lambda one: f'{one.after[0]:.4f}',
    'error of forces before': lambda one: f'{one.before[1]:.4f}',
    'error of forces after': lambda one: f'{one.after[1]:.4f}',
    'ms a step': lambda one: f'{one.step:.1f}',
    'MB saved for backward': lambda one: f'{one.saved:.1f}',
    'MB at the peak of a step': lambda one: f'{one.peak:.1f}',
}


def draw(found: dict[str, Learned], forces: Tensor, path: Path) -> None:
    """Losses of each backend, and forces as predicted against those of the potential."""
    figure, (curves, points) = plt.subplots(1, 2, figsize=(9, 3.6), layout='constrained')
    for (backend, one), style in zip(found.items(), ('-', '--'), strict=False):
        curves.semilogy(one.losses, style, label=backend)
        points.plot(forces.flatten(), one.forces.flatten(), '.' if style == '-' else '+', ms=3, label=backend)
    curves.set(xlabel='step', ylabel='loss')
    points.set(xlabel='force', ylabel='predicted force')
    curves.legend()
    points.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--clusters', type=int, default=16, help='in a step (default: %(default)s)')
    parser.add_argument('--cells', type=int, default=3, help='of the lattice, along each side (default: %(default)s)')
    parser.add_argument('--noise', type=float, default=0.05, help='how far atoms are moved (default: %(default)s)')
    parser.add_argument('--hidden', type=int, default=128, help='width of atoms and filters (default: %(default)s)')
    parser.add_argument('--interactions', type=int, default=3, help='how many (default: %(default)s)')
    parser.add_argument('--gaussians', type=int, default=50, help='of a distance (default: %(default)s)')
    parser.add_argument('--steps', type=int, default=100, help='of training (default: %(default)s)')
    parser.add_argument('--lr', type=float, default=1e-3, help='learning rate (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--backend', choices=['pyg', 'pygfuse', 'both'], default='both')
    parser.add_argument('--output', type=Path, default=Path('force_field.png'), help='the picture')
    options = parser.parse_args(arguments)
    held = clusters_of(8, options.cells, options.noise, torch.Generator().manual_seed(options.seed))
    atoms = len(held.pos) // len(held.energy)
    scale = Scale(float(held.energy.mean()) / atoms, float(held.forces.std()))
    pairs = held.edge_index.shape[1] // len(held.energy)
    print(f'{options.clusters} clusters a step, each {atoms:,} atoms and about {pairs:,} edges; ', end='')
    print(f'{options.interactions} interactions of {options.hidden}\n')
    torch.manual_seed(options.seed)
    sizes = options.hidden, options.hidden, options.interactions, options.gaussians
    model = SchNet(*sizes, CUTOFF, interaction_graph=Pairs())
    backends = ['pyg', 'pygfuse'] if options.backend == 'both' else [options.backend]
    found = {backend: train(model, backend, held, scale, options) for backend in backends}
    print(f'{"":26}' + ''.join(f'{backend:>12}' for backend in found))
    for name, cell in ROWS.items():
        print(f'{name:26}' + ''.join(f'{cell(one):>12}' for one in found.values()))
    draw(found, wanted(held, scale)[1], options.output)
    print(f'\nPicture: {options.output}')


if __name__ == '__main__':
    main()
