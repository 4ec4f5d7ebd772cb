"""Training on forces, whose gradient is one of a gradient: the same losses as PyG, with less memory."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.models.schnet import GaussianSmearing, SchNet

import pygfuse
from pygfuse.memory import peak_bytes, saved_bytes

CUTOFF, GAUSSIANS = 4.0, 10


class Crystal(torch.nn.Module):
    def __init__(self, hidden: int, layers: int, edges: Callable, gaussians: int = GAUSSIANS) -> None:
        super().__init__()
        self.edges, self.embedding = edges, torch.nn.Embedding(10, hidden)
        self.smearing, self.out = GaussianSmearing(0, CUTOFF, gaussians), torch.nn.Linear(hidden, 1)
        self.convs = torch.nn.ModuleList(pyg.CGConv(hidden, gaussians) for _ in range(layers))

    def forward(self, kinds: Tensor, pos: Tensor) -> Tensor:
        edge_index, lengths = self.edges(pos, None)
        x, edge_attr = self.embedding(kinds), self.smearing(lengths)
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr)
        return self.out(x).sum(dim=0)


MODELS = {
    'SchNet': lambda hidden, layers, edges: SchNet(hidden, hidden, layers, GAUSSIANS, CUTOFF, interaction_graph=edges),
    'CGConv': Crystal,
}
# forty kernels
EACH = [pytest.param(name, marks=pytest.mark.slow if name == 'CGConv' else ()) for name in MODELS]


class Atoms:
    """Atoms in a box, with edges between some of them and forces that a model is to learn."""

    def __init__(self, count: int, num_edges: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pos = 2 * torch.rand(count, 3, generator=generator, dtype=torch.float64)
        self.kinds = torch.randint(1, 10, (count,), generator=generator)
        first = torch.randint(count, (num_edges,), generator=generator)
        second = (first + torch.randint(1, count, (num_edges,), generator=generator)) % count
        self.edge_index = torch.stack([first, second])
        self.forces = torch.randn(count, 3, generator=generator, dtype=torch.float64)

    def edges(self, pos: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.edge_index, (pos[self.edge_index[0]] - pos[self.edge_index[1]]).norm(dim=1)

    def loss(self, model: torch.nn.Module) -> Tensor:
        dtype = next(model.parameters()).dtype
        pos = self.pos.to(dtype).requires_grad_()
        energy = model(self.kinds, pos).sum()
        (forces,) = torch.autograd.grad(-energy, pos, create_graph=True)
        return (forces - self.forces.to(dtype)).square().mean() + (energy / len(pos)).square()


def layers_of(model: torch.nn.Module) -> list:
    return [layer for layer in model.modules() if hasattr(layer, 'note')]


def losses(model: torch.nn.Module, atoms: Atoms, steps: int = 20) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = atoms.loss(model)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize('name', EACH)
def test_losses_are_those_of_pyg(name, monkeypatch):
    torch.manual_seed(0)
    atoms = Atoms(40, 300)
    plain = MODELS[name](16, 2, atoms.edges)
    right = losses(copy.deepcopy(plain).double(), atoms)
    assert right[-1] < 0.95 * right[0]
    float32 = losses(copy.deepcopy(plain), atoms)
    for path in ('pygfuse.ops.edge_mlp.autograd', 'pygfuse.ops.autograd'):
        monkeypatch.setattr(f'{path}.by_reference', None)
    fused = pygfuse.fuse(copy.deepcopy(plain))
    assert losses(copy.deepcopy(fused).double(), atoms) == pytest.approx(right, rel=1e-9)
    found = losses(fused, atoms)
    assert len(layers_of(fused)) == 2
    assert all(layer.note.reason is None for layer in layers_of(fused))
    for got, other, exact in zip(found, float32, right, strict=True):
        assert abs(got - exact) <= max(2 * abs(other - exact), 1e-5 * abs(exact))


@pytest.mark.parametrize('name', EACH)
def test_a_step_takes_a_fifth_of_the_memory(name):
    torch.manual_seed(0)
    atoms = Atoms(150, 6000)
    plain = MODELS[name](128, 2, atoms.edges)
    fused = pygfuse.fuse(copy.deepcopy(plain))
    saved, peak = [], []
    for model in (plain, fused):
        given = [atoms.pos, atoms.edge_index, atoms.kinds, atoms.forces, *model.parameters(), *model.buffers()]
        saved.append(saved_bytes(lambda model=model: atoms.loss(model), exclude=given))
        peak.append(peak_bytes(lambda model=model: atoms.loss(model).backward(), warmup=1))
    assert saved[1] <= saved[0] / 5
    assert peak[1] <= peak[0] / 5
