"""A mesh simulator learns to diffuse heat: a MeshGraphNet whose blocks are plain PyG, fused by one line.

    python examples/meshgraphnet.py [--nodes 2000] [--hidden 128] [--blocks 15] [--steps 100] [--backend both]

The mesh is a Delaunay triangulation of random points. On it an explicit scheme spreads heat from random sources; the
network learns the change over an interval of time from the temperatures before it. Blocks have edges with state
(https://arxiv.org/abs/2010.03409). Both backends start from the same parameters, and print the error before and after,
the time of a step, and what a step keeps for backward.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import Delaunay
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter
from tqdm import tqdm

import pygfuse
from pygfuse.memory import peak_bytes, saved_bytes


class Mesh(NamedTuple):
    """Points of a plane, edges in both directions, and the vector and length of each edge."""

    points: Tensor
    edge_index: Tensor
    edge_attr: Tensor


def mesh_of(num_nodes: int, seed: int = 0) -> Mesh:
    """A Delaunay triangulation of random points in a square; lengths are in units of their mean."""
    points = np.random.default_rng(seed).random((num_nodes, 2))
    triangles = Delaunay(points).simplices
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    edge_index = torch.from_numpy(pairs.T.astype(np.int64)).contiguous()
    place = torch.from_numpy(points).float()
    along = place[edge_index[1]] - place[edge_index[0]]
    length = along.norm(dim=1, keepdim=True)
    return Mesh(place, edge_index, torch.cat([along, length], dim=1) / length.mean())


def diffused(mesh: Mesh, heat: Tensor, steps: int = 20, rate: float = 0.05) -> Tensor:
    """Temperatures after an interval: each step moves heat along edges, the more the shorter they are."""
    source, target = mesh.edge_index
    flow = rate / mesh.edge_attr[:, 2:].clamp(min=0.3)
    for _ in range(steps):
        heat = heat + scatter(flow * (heat[source] - heat[target]), target, 0, heat.shape[0], reduce='sum')
    return heat


def sources(mesh: Mesh, count: int = 12) -> Tensor:
    """Temperatures of random warm and cold spots."""
    centres, strength = torch.rand(count, 2), torch.randn(count)
    apart = torch.cdist(mesh.points, centres)
    return (torch.exp(-((apart / 0.1) ** 2)) * strength).sum(dim=1, keepdim=True)


def network(features: int, hidden: int, out: int | None = None) -> Sequential:
    if out is not None:
        return Sequential(Linear(features, hidden), ReLU(), Linear(hidden, out))
    return Sequential(Linear(features, hidden), ReLU(), Linear(hidden, hidden), LayerNorm(hidden))


class Block(MessagePassing):
    """New edges from their ends and themselves; new nodes from the sum of their edges."""

    def __init__(self, hidden: int) -> None:
        super().__init__(aggr='sum')
        self.edge_mlp, self.node_mlp = network(3 * hidden, hidden), network(2 * hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        out, edge_attr = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return x + self.node_mlp(torch.cat([x, out], dim=-1)), edge_attr

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return edge_attr + self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=-1))

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int | None = None) -> tuple[Tensor, Tensor]:
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce='sum'), inputs


class MeshGraphNet(Module):
    def __init__(self, hidden: int, blocks: int) -> None:
        super().__init__()
        self.nodes, self.edges, self.out = network(1, hidden), network(3, hidden), network(hidden, hidden, 1)
        self.blocks = ModuleList(Block(hidden) for _ in range(blocks))

    def forward(self, heat: Tensor, mesh: Mesh) -> Tensor:
        x, edge_attr = self.nodes(heat), self.edges(mesh.edge_attr)
        for block in self.blocks:
            x, edge_attr = block(x, mesh.edge_index, edge_attr)
        return self.out(x)


class Learned(NamedTuple):
    """What a run found: errors relative to predicting no change, milliseconds, megabytes."""

    before: float
    after: float
    step: float
    saved: float
    peak: float


def train(backend: str, mesh: Mesh, options: argparse.Namespace) -> Learned:
    torch.manual_seed(options.seed)
    model = MeshGraphNet(options.hidden, options.blocks)
    if backend == 'pygfuse':
        model = pygfuse.fuse(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    torch.manual_seed(options.seed + 1)
    held = sources(mesh)
    change = diffused(mesh, held) - held
    scale = change.std()

    def error() -> float:
        with torch.no_grad():
            return float((model(held, mesh) - change / scale).square().mean() / (change / scale).square().mean())

    def step() -> None:
        heat = sources(mesh)
        optimizer.zero_grad()
        loss = (model(heat, mesh) - (diffused(mesh, heat) - heat) / scale).square().mean()
        loss.backward()
        optimizer.step()

    before, times = error(), []
    for _ in tqdm(range(options.steps), backend, disable=None):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    if backend == 'pygfuse':
        print(pygfuse.report(model))
    saved = saved_bytes(lambda: model(held, mesh), exclude=[*mesh, held, *model.parameters()])
    optimizer.zero_grad()  # the profiler would not recognise gradients of before
    return Learned(before, error(), statistics.median(times), saved / 1e6, peak_bytes(step, warmup=1) / 1e6)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nodes', type=int, default=2000, help='of the mesh (default: %(default)s)')
    parser.add_argument('--hidden', type=int, default=128, help='width of nodes and edges (default: %(default)s)')
    parser.add_argument('--blocks', type=int, default=15, help='how many (default: %(default)s)')
    parser.add_argument('--steps', type=int, default=100, help='of training (default: %(default)s)')
    parser.add_argument('--lr', type=float, default=1e-3, help='learning rate (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--backend', choices=['pyg', 'pygfuse', 'both'], default='both')
    options = parser.parse_args(arguments)
    mesh = mesh_of(options.nodes, options.seed)
    print(f'{options.nodes:,} nodes, {mesh.edge_index.shape[1]:,} edges, {options.blocks} blocks of {options.hidden}\n')
    backends = ['pyg', 'pygfuse'] if options.backend == 'both' else [options.backend]
    found = {backend: train(backend, mesh, options) for backend in backends}
    rows = {
        'error before': [f'{one.before:.4f}' for one in found.values()],
        'error after': [f'{one.after:.4f}' for one in found.values()],
        'ms a step': [f'{one.step:.1f}' for one in found.values()],
        'MB saved for backward': [f'{one.saved:.1f}' for one in found.values()],
        'MB at the peak of a step': [f'{one.peak:.1f}' for one in found.values()],
    }
    print(f'{"":26}' + ''.join(f'{backend:>12}' for backend in found))
    for name, values in rows.items():
        print(f'{name:26}' + ''.join(f'{value:>12}' for value in values))


if __name__ == '__main__':
    main()
