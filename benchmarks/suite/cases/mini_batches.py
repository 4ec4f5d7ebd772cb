"""Training steps on mini-batches, whose edges are new in each step: sampled neighbourhoods, and batches of molecules.

The neighbourhoods are those that PyG's ``NeighborLoader`` samples from a random graph of Tolokers' size (11,758 nodes,
1,038,000 edges, degrees of a power law) for two layers of 64 channels; the molecules are random trees of 18 to 28 atoms
with two more bonds each, 128 a batch, for four layers of 64. Batches are sampled before and handed over as new tensors
in each step, so that what a loader costs is not in it. The loss is that of all nodes or, where it says so, of the
seeds, as such batches are trained on. One side more is the model's linear maps alone. All sides in turn, in one
process; medians in ms with the quartiles in brackets.

    python benchmarks/run.py mini_batches
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.utils import to_undirected

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import power_law
from pygfuse.bench.timing import Step

CHANNELS = 64
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    'SAGEConv': lambda: pyg.SAGEConv(CHANNELS, CHANNELS),
    'GCNConv': lambda: pyg.GCNConv(CHANNELS, CHANNELS),
    'GATConv': lambda: pyg.GATConv(CHANNELS, CHANNELS),
    'GINConv': lambda: pyg.GINConv(torch.nn.Linear(CHANNELS, CHANNELS)),
}
_NEIGHBOURHOODS = {'64 seeds, 10 and 5 neighbours': (64, [10, 5]), '512 seeds, 15 and 10 neighbours': (512, [15, 10])}
# seeds, neighbours, and how many of the first nodes the loss reads, None for all
SAMPLED = {name: (*sizes, None) for name, sizes in _NEIGHBOURHOODS.items()}
SAMPLED |= {f'{name}; loss of the seeds': (*sizes, sizes[0]) for name, sizes in _NEIGHBOURHOODS.items()}
MOLECULES = '128 molecules'


class Stack(torch.nn.Module):
    """Layers of one kind with rectifiers between them; without edges, their linear maps alone."""

    def __init__(self, kind: str, depth: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(LAYERS[kind]() for _ in range(depth))

    def forward(self, x: Tensor, edge_index: Tensor | None) -> Tensor:
        for layer in self.layers:
            if edge_index is not None:
                x = layer(x, edge_index)
            else:
                maps = [part for part in layer.modules() if isinstance(part, (torch.nn.Linear, pyg.Linear))]
                x = sum(part(x) for part in maps)
            x = x.relu()
        return x


def sampled(seeds: int, neighbours: list[int], count: int, size: tuple[int, int]) -> list[tuple[int, Tensor]]:
    """Numbers of nodes and edges of batches that a loader samples."""
    edge_index, num_nodes = power_law(*size)
    data = Data(edge_index=edge_index, num_nodes=num_nodes)
    loader = NeighborLoader(data, num_neighbors=neighbours, batch_size=seeds, shuffle=True)
    return [(batch.num_nodes, batch.edge_index) for batch, _ in zip(loader, range(count), strict=False)]


def molecules(count: int) -> list[tuple[int, Tensor]]:
    """The same of batches of random molecules."""
    generator = torch.Generator().manual_seed(0)

    def number(most: int) -> int:
        return int(torch.randint(most, (), generator=generator))

    def molecule() -> Data:
        atoms = 18 + number(11)
        bonds = [(number(atom), atom) for atom in range(1, atoms)] + [(number(atoms), number(atoms)) for _ in range(2)]
        return Data(edge_index=to_undirected(torch.tensor(bonds).t().contiguous()), num_nodes=atoms)

    batches = [Batch.from_data_list([molecule() for _ in range(128)]) for _ in range(count)]
    return [(batch.num_nodes, batch.edge_index) for batch in batches]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=100)
    parser.add_argument('--convs', nargs='*', default=[*LAYERS], choices=LAYERS, help='which layers')
    parser.add_argument('--batches', type=int, default=10, help='how many are sampled')
    parser.add_argument('--nodes', type=int, default=11_758, help='of the graph that is sampled from')
    parser.add_argument('--edges', type=int, default=1_038_000, help='the same')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for batches in (*SAMPLED, MOLECULES):
        for layer in options.convs:
            yield {'batches': batches, 'layer': layer}


@benchmark(
    'mini_batches',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'channels': CHANNELS},
    quick={'batches': 2, 'nodes': 1_000, 'edges': 10_000},
)
def mini_batches(options: Options, batches: str, layer: str) -> Measurement:
    """One model on batches of one kind."""
    torch.manual_seed(0)
    size = options.nodes, options.edges
    seeds, neighbours, read = SAMPLED.get(batches, (0, [], None))
    made = sampled(seeds, neighbours, options.batches, size) if neighbours else molecules(options.batches)
    plain = Stack(layer, 4 if batches == MOLECULES else 2)
    fused = pygfuse.fuse(copy.deepcopy(plain))
    given: dict[str, Any] = {'step': 0}

    def next_batch() -> None:
        num_nodes, edge_index = made[given['step'] % len(made)]
        given['step'] += 1
        given['x'], given['edge_index'] = torch.randn(num_nodes, CHANNELS), edge_index.clone()

    def step(model: torch.nn.Module, with_edges: bool = True) -> Callable[[], None]:
        def run() -> None:
            model(given['x'], given['edge_index'] if with_edges else None)[:read].sum().backward()

        return run

    yield [
        Step('PyG', step(plain), next_batch, warmup=3),
        Step('pygfuse', step(fused), next_batch, warmup=3),
        Step('linear maps', step(copy.deepcopy(plain), False), next_batch, warmup=3),
    ]
    assert all(conv.note.reason is None for conv in fused.layers)
    edges = sum(edge_index.shape[1] for _, edge_index in made) // len(made)
    return {'mean_edges': edges}
