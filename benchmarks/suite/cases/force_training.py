"""Training on forces beside PyG: energies of atoms, forces as their gradient, and the gradient of a loss on both.

A step of each model: distances of edges, their Gaussians, layers, the energy, forces by ``create_graph=True``, a loss
on energy and forces, and its gradient for all parameters and positions. ``SchNet`` is PyG's own model, ``CGConv`` a
stack of crystal convolutions. Edges join each atom with its nearest ones. Saved is what autograd keeps for the second
backward pass beside inputs, parameters and edges; the peak is that of a step, above where it started. Both sides in
turn, in one process; medians in ms with the quartiles in brackets.

    python benchmarks/run.py force_training
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric.nn as pyg
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn import Embedding, Linear, Module, ModuleList
from torch_geometric.nn.models.schnet import GaussianSmearing, SchNet

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Step
from pygfuse.memory import peak_bytes, saved_bytes

GAUSSIANS = 50


class Crystal(Module):
    """Crystal convolutions of atoms whose edges have the Gaussians of their lengths."""

    def __init__(self, hidden: int, layers: int, cutoff: float, edges: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.edges, self.embedding, self.smearing = (
            edges,
            Embedding(100, hidden),
            GaussianSmearing(0, cutoff, GAUSSIANS),
        )
        self.convs = ModuleList(pyg.CGConv(hidden, GAUSSIANS) for _ in range(layers))
        self.out = Linear(hidden, 1)

    def forward(self, kinds: Tensor, pos: Tensor) -> Tensor:
        edge_index, lengths = self.edges(pos, None)
        x, edge_attr = self.embedding(kinds), self.smearing(lengths)
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr)
        return self.out(x).sum(dim=0)


def schnet(hidden: int, layers: int, cutoff: float, edges: Callable[..., tuple[Tensor, Tensor]]) -> Module:
    return SchNet(hidden, hidden, layers, GAUSSIANS, cutoff, interaction_graph=edges)


MODELS: dict[str, Callable[..., Module]] = {'SchNet': schnet, 'CGConv': Crystal}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=7)
    parser.add_argument('--models', nargs='*', default=list(MODELS), choices=MODELS, help='which')
    parser.add_argument('--atoms', type=int, default=5_000)
    parser.add_argument('--neighbors', type=int, default=40, help='edges into an atom')
    parser.add_argument('--hidden', type=int, nargs='*', default=[128])
    parser.add_argument('--layers', type=int, default=2)


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for model in options.models:
        for hidden in options.hidden:
            yield {'model': model, 'hidden': hidden}


@benchmark(
    'force_training',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {
        'atoms': options.atoms,
        'edges': options.atoms * options.neighbors,
        'layers': options.layers,
        'Gaussians': GAUSSIANS,
    },
    ratios=(('PyG', 'pygfuse'),),
    quick={'atoms': 40, 'neighbors': 6, 'hidden': [16], 'layers': 2},
    packages=('scipy',),
)
def force_training(options: Options, model: str, hidden: int) -> Measurement:
    """One model."""
    atoms, neighbors = options.atoms, options.neighbors
    pos = (torch.rand(atoms, 3) * (atoms / 0.05) ** (1 / 3)).requires_grad_()
    _, nearest = cKDTree(pos.detach().numpy()).query(pos.detach().numpy(), neighbors + 1)
    edge_index = torch.stack(
        [torch.from_numpy(nearest[:, 1:]).flatten(), torch.arange(atoms).repeat_interleave(neighbors)]
    )
    cutoff = float((pos[edge_index[0]] - pos[edge_index[1]]).detach().norm(dim=1).max())
    kinds, target = torch.randint(1, 10, (atoms,)), torch.randn(atoms, 3)

    def edges(pos: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        return edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)

    plain = MODELS[model](hidden, options.layers, cutoff, edges)
    sides = {'PyG': plain, 'pygfuse': pygfuse.fuse(copy.deepcopy(plain))}

    def loss(side: Module) -> Tensor:
        energy = side(kinds, pos).sum()
        (forces,) = torch.autograd.grad(-energy, pos, create_graph=True)
        return (forces - target).square().mean() + (energy / atoms).square()

    def step(side: Module) -> Callable[[], None]:
        def run() -> None:
            pos.grad = None
            side.zero_grad()
            loss(side).backward()

        return run

    yield [Step(name, step(side), warmup=2) for name, side in sides.items()]
    reasons = {getattr(getattr(layer, 'note', None), 'reason', None) for layer in sides['pygfuse'].modules()} - {None}
    assert not reasons, reasons
    found = {}
    for name, side in sides.items():
        given = [pos, edge_index, kinds, target, *side.parameters(), *side.buffers()]
        found[f'{name} saved MB'] = saved_bytes(lambda side=side: loss(side), exclude=given) / 1e6
        found[f'{name} peak MB'] = peak_bytes(step(side), warmup=1) / 1e6
    for what in ('saved', 'peak'):
        found[f'{what} PyG / pygfuse'] = found[f'PyG {what} MB'] / found[f'pygfuse {what} MB']
    return found
