"""Layers over typed edges beside PyG's: RGCN and RGAT on a knowledge graph, HGT on heterogeneous graphs.

A training step of two layers, 64 to 64 channels (HGT: 8 heads), with gradients of inputs and parameters; RGCN also
with embeddings in place of features and 30 bases. One side more is HGT's dense maps alone: those of nodes to keys,
queries and values, of these by types of edges, and of outputs. All sides in turn, in one process; medians in ms with
the quartiles in brackets, and what is saved for backward. MUTAG is PyG's ``Entities``, IMDB its ``IMDB``; ACM is
HeCo's, a folder with ``pa.txt`` and ``ps.txt``. Without any of them a small random graph stands for each.

    python benchmarks/run.py typed --mutag data/Entities --imdb data/IMDB --acm data/ACM
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.memory import saved_bytes
from suite.case import Measurement, Options, benchmark
from suite.timing import Step

CHANNELS, HEADS, BASES = 64, 8, 30
MUTAG, IMDB, ACM, RANDOM = 'MUTAG', 'IMDB', 'ACM', 'random'
RELATIONAL = ('RGCNConv', 'RGCNConv, embeddings', 'FastRGCNConv', 'RGATConv')


class Relational(NamedTuple):
    """A graph whose edges have types."""

    num_nodes: int
    num_relations: int
    edge_index: Tensor
    edge_type: Tensor


class Heterogeneous(NamedTuple):
    """The numbers of nodes by type, and edges by type."""

    sizes: Mapping[str, int]
    edges: Mapping[tuple[str, str, str], Tensor]


def relational(options: Options) -> Relational:
    if options.mutag is None:
        return Relational(100, 5, torch.randint(100, (2, 500)), torch.randint(5, (500,)))
    from torch_geometric.datasets import Entities

    data = Entities(options.mutag, MUTAG)[0]
    return Relational(data.num_nodes, int(data.edge_type.max()) + 1, data.edge_index, data.edge_type)


def heterogeneous(options: Options, graph: str) -> Heterogeneous:
    if graph == IMDB:
        from torch_geometric.datasets import IMDB as Dataset

        data = Dataset(options.imdb)[0]
        return Heterogeneous({kind: len(x) for kind, x in data.x_dict.items()}, data.edge_index_dict)
    if graph == ACM:
        files = {'author': 'pa.txt', 'subject': 'ps.txt'}
        pairs = {
            kind: torch.from_numpy(np.loadtxt(Path(options.acm) / name, dtype=np.int64)).t().contiguous()
            for kind, name in files.items()
        }
    else:
        pairs = {
            kind: torch.stack([torch.randint(50, (90,)), torch.randint(9, (90,))]) for kind in ('author', 'subject')
        }
    sizes = {'paper': max(int(pair[0].max()) for pair in pairs.values()) + 1}
    sizes |= {kind: int(pair[1].max()) + 1 for kind, pair in pairs.items()}
    edges = {('paper', 'to', kind): pair for kind, pair in pairs.items()}
    edges |= {(kind, 'to', 'paper'): pair.flip(0).contiguous() for kind, pair in pairs.items()}
    return Heterogeneous(sizes, edges)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--mutag', help="the root of PyG's Entities")
    parser.add_argument('--imdb', help="the root of PyG's IMDB")
    parser.add_argument('--acm', help='a folder with pa.txt and ps.txt')
    parser.add_argument('--models', nargs='*', default=[*RELATIONAL, 'HGTConv'], help='which')
    parser.add_argument('--pyg-repeats', type=int, default=3, help="how often PyG's relational layers run (default: 3)")


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    named = {MUTAG: options.mutag, IMDB: options.imdb, ACM: options.acm}
    given = [name for name, root in named.items() if root is not None]
    for model in options.models:
        fitting = [MUTAG] if model in RELATIONAL else [IMDB, ACM]
        for graph in [name for name in fitting if name in given] or ([] if given else [RANDOM]):
            yield {'model': model, 'graph': graph}


def layers_of(model: str, graph: Relational) -> torch.nn.ModuleList:
    """Two layers of PyG's."""
    kind, _, embeddings = model.partition(', ')
    given: dict[str, Any] = {'num_bases': BASES} if embeddings else {}
    widths = (graph.num_nodes if embeddings else CHANNELS, CHANNELS)
    made = (getattr(pyg, kind)(width, CHANNELS, graph.num_relations, **given) for width in widths)
    return torch.nn.ModuleList(made)


class HGT(torch.nn.Module):
    """Two layers."""

    def __init__(self, graph: Heterogeneous) -> None:
        super().__init__()
        metadata = [*graph.sizes], [*graph.edges]
        self.layers = torch.nn.ModuleList(pyg.HGTConv(CHANNELS, CHANNELS, metadata, HEADS) for _ in range(2))

    def forward(self, x: dict[str, Tensor], edges: Mapping[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        for layer in self.layers:
            x = layer(x, edges)
        return x


class DenseMaps(HGT):
    """The same without edges: each type of edges maps its sources, whose sum stands for what targets receive."""

    def forward(self, x: dict[str, Tensor], edges: Mapping[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        for layer in self.layers:
            mapped = {kind: rows.split(CHANNELS, dim=1) for kind, rows in layer.kqv_lin(x).items()}
            received = {kind: query for kind, (_, query, _) in mapped.items()}
            maps = torch.stack([layer.k_rel.weight, layer.v_rel.weight]).unflatten(1, (HEADS, len(edges)))
            for number, (source, _, target) in enumerate(edges):
                for values, of_heads in zip(mapped[source][::2], maps[:, :, number], strict=True):
                    by_head = values.unflatten(1, (HEADS, CHANNELS // HEADS)).transpose(0, 1)
                    received[target] = received[target] + torch.bmm(by_head, of_heads).sum()
            x = layer.out_lin({kind: torch.nn.functional.gelu(rows) for kind, rows in received.items()})
        return x


def step_of(model: torch.nn.Module, loss: Callable[[torch.nn.Module], Tensor]) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad()
        loss(model).backward()

    return run


@benchmark(
    'typed',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'channels': CHANNELS, 'HGT heads': HEADS, 'bases of embeddings': BASES},
    ratios=(('PyG', 'pygfuse'), ('pygfuse', 'dense maps')),
    quick={'pyg_repeats': 2},
)
def typed(options: Options, model: str, graph: str) -> Measurement:
    """Two layers on one graph."""
    is_relational = model in RELATIONAL
    if is_relational:
        found = relational(options)
        plain: torch.nn.Module = layers_of(model, found)
        x = None if 'embeddings' in model else torch.randn(found.num_nodes, CHANNELS, requires_grad=True)

        def loss(made: torch.nn.Module) -> Tensor:
            out = made[0](x, found.edge_index, found.edge_type).relu()
            return made[1](out, found.edge_index, found.edge_type).sum()

        edges, given = found.edge_index.shape[1], [found.edge_index, found.edge_type]
    else:
        typed_edges = heterogeneous(options, graph)
        plain = HGT(typed_edges)
        features = {kind: torch.randn(count, CHANNELS, requires_grad=True) for kind, count in typed_edges.sizes.items()}

        def loss(made: torch.nn.Module) -> Tensor:
            return sum(rows.sum() for rows in made(features, typed_edges.edges).values())

        edges, given = sum(pair.shape[1] for pair in typed_edges.edges.values()), [*typed_edges.edges.values()]
    fused = pygfuse.fuse(copy.deepcopy(plain))
    steps = [
        Step('PyG', step_of(plain, loss), repeats=options.pyg_repeats if is_relational else None),
        Step('pygfuse', step_of(fused, loss)),
    ]
    if not is_relational:
        steps.append(Step('dense maps', step_of(DenseMaps(typed_edges), loss)))
    yield steps
    assert all(layer.note.reason is None for layer in (fused if is_relational else fused.layers))
    saved = {
        f'{side} saved MB': saved_bytes(lambda made=made: loss(made), exclude=[*given, *made.parameters()]) / 1e6
        for side, made in (('PyG', plain), ('pygfuse', fused))
    }
    return {'edges': edges, **saved}
