"""Layers over typed edges beside PyG's: of relations on a knowledge graph, of types of nodes on heterogeneous graphs.

A training step of two layers, 64 to 64 channels (HGT and HAN: 8 heads; HEAT: the mean of 4, with random features of
edges and types of nodes), with gradients of inputs and parameters; RGCN also with embeddings in place of features and
30 bases. One side more is HGT's dense maps alone: those of nodes to keys, queries and values, of these by types of
edges, and of outputs. PyG runs under torch.compile, too, where that gives a step within the limit of time. All sides
in turn, in one process; medians in ms with the quartiles in brackets, and what is saved for backward. MUTAG is PyG's
``Entities``, IMDB its ``IMDB``; ACM is HeCo's, a folder with ``pa.txt`` and ``ps.txt``. Without any of them a random
graph stands for each. All run on 140 relations of four random edges, too.

    python -m pygfuse.bench typed --mutag data/Entities --imdb data/IMDB --acm data/ACM
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
from pygfuse.bench.by_torch import compiled_step
from pygfuse.bench.case import RATIOS, Measurement, Options, benchmark
from pygfuse.bench.layers import check_fused
from pygfuse.bench.timing import Step
from pygfuse.memory import saved_bytes

CHANNELS, HEADS, BASES = 64, 8, 30
NODE_TYPES, EDGE_DIM, EMBEDDING, HEAT_HEADS = 4, 8, 16, 4
MUTAG, IMDB, ACM, RANDOM, MANY = 'MUTAG', 'IMDB', 'ACM', 'random', '140 relations'
RELATIONAL = ('RGCNConv', 'RGCNConv, embeddings', 'FastRGCNConv', 'RGATConv', 'FiLMConv', 'HEATConv')
BY_TYPE = ('HGTConv', 'HANConv')
RELATIONS, EDGES_OF_ONE, NODES = 140, 4, 300


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


def relational(options: Options, graph: str) -> Relational:
    if graph == MANY:
        count = RELATIONS * EDGES_OF_ONE
        types = torch.arange(RELATIONS).repeat_interleave(EDGES_OF_ONE)[torch.randperm(count)]
        return Relational(NODES, RELATIONS, torch.randint(NODES, (2, count)), types)
    if graph == RANDOM:
        edges, nodes = options.edges, options.edges // 5
        return Relational(nodes, 5, torch.randint(nodes, (2, edges)), torch.randint(5, (edges,)))
    from torch_geometric.datasets import Entities

    data = Entities(options.mutag, MUTAG)[0]
    return Relational(data.num_nodes, int(data.edge_type.max()) + 1, data.edge_index, data.edge_type)


def heterogeneous(options: Options, graph: str) -> Heterogeneous:
    if graph == MANY:
        ends = ('a', 'b'), ('b', 'a')
        kinds = [(*ends[k % 2][:1], str(k), *ends[k % 2][1:]) for k in range(RELATIONS)]
        edges = {kind: torch.randint(NODES // 2, (2, EDGES_OF_ONE)) for kind in kinds}
        return Heterogeneous(dict.fromkeys('ab', NODES // 2), edges)
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
            kind: torch.stack([torch.randint(options.edges // end, (options.edges // 5,)) for end in (10, 50)])
            for kind in ('author', 'subject')
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
    parser.add_argument('--edges', type=int, default=500, help='of random graphs (default: %(default)s)')
    parser.add_argument('--models', nargs='*', default=[*RELATIONAL, *BY_TYPE], help='which')
    parser.add_argument('--pyg-repeats', type=int, default=3, help="how often PyG's relational layers run (default: 3)")
    parser.add_argument(
        '--limit', type=int, default=300, help='seconds for torch.compile, a model; 0: without (default: 300)'
    )


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    named = {MUTAG: options.mutag, IMDB: options.imdb, ACM: options.acm}
    given = [name for name, root in named.items() if root is not None]
    for model in options.models:
        fitting = [MUTAG] if model in RELATIONAL else [IMDB, ACM]
        for graph in [name for name in fitting if name in given] or ([] if given else [RANDOM]):
            yield {'model': model, 'graph': graph}
        if 'embeddings' not in model:
            yield {'model': model, 'graph': MANY}


def layers_of(model: str, graph: Relational) -> torch.nn.ModuleList:
    """Two layers of PyG's."""
    kind, _, embeddings = model.partition(', ')
    if kind == 'HEATConv':
        options = NODE_TYPES, graph.num_relations, EMBEDDING, EDGE_DIM, EMBEDDING, HEAT_HEADS
        return torch.nn.ModuleList(pyg.HEATConv(CHANNELS, CHANNELS, *options, concat=False) for _ in range(2))
    given: dict[str, Any] = {'num_bases': BASES} if embeddings else {}
    widths = (graph.num_nodes if embeddings else CHANNELS, CHANNELS)
    made = (getattr(pyg, kind)(width, CHANNELS, graph.num_relations, **given) for width in widths)
    return torch.nn.ModuleList(made)


class TwoLayers(torch.nn.Module):
    """Two layers of a class of PyG's over types of nodes."""

    def __init__(self, kind: str, graph: Heterogeneous) -> None:
        super().__init__()
        metadata = [*graph.sizes], [*graph.edges]
        self.layers = torch.nn.ModuleList(getattr(pyg, kind)(CHANNELS, CHANNELS, metadata, HEADS) for _ in range(2))

    def forward(self, x: dict[str, Tensor], edges: Mapping[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        for layer in self.layers:
            x = layer(x, edges)
        return x


class DenseMaps(TwoLayers):
    """HGT without edges: each type of edges maps its sources, whose sum stands for what targets receive."""

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


def by_torch_compile(model: torch.nn.Module) -> torch.nn.Module:
    """A model, or each of a list of layers, under torch.compile."""
    if not isinstance(model, torch.nn.ModuleList):
        return torch.compile(model)
    return torch.nn.ModuleList(map(torch.compile, model))


@benchmark(
    'typed',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {
        'channels': CHANNELS,
        'HGT and HAN heads': HEADS,
        'HEAT heads': HEAT_HEADS,
        'features of edges': EDGE_DIM,
        'bases of embeddings': BASES,
    },
    ratios=(*RATIOS, ('pygfuse', 'dense maps')),
    quick={'pyg_repeats': 2, 'edges': 500, 'limit': 0},
)
def typed(options: Options, model: str, graph: str) -> Measurement:
    """Two layers on one graph."""
    is_relational = model in RELATIONAL
    if is_relational:
        found = relational(options, graph)
        plain: torch.nn.Module = layers_of(model, found)
        x = None if 'embeddings' in model else torch.randn(found.num_nodes, CHANNELS, requires_grad=True)

        edges, given = found.edge_index.shape[1], [found.edge_index, found.edge_type]
        if model == 'HEATConv':
            # types of nodes before those of edges, features of edges behind them
            given = [given[0], torch.randint(NODE_TYPES, (found.num_nodes,)), given[1], torch.randn(edges, EDGE_DIM)]

        def loss(made: torch.nn.Module) -> Tensor:
            return made[1](made[0](x, *given).relu(), *given).sum()
    else:
        typed_edges = heterogeneous(options, graph)
        plain = TwoLayers(model, typed_edges)
        features = {kind: torch.randn(count, CHANNELS, requires_grad=True) for kind, count in typed_edges.sizes.items()}

        def loss(made: torch.nn.Module) -> Tensor:
            return sum(rows.sum() for rows in made(features, typed_edges.edges).values())

        edges, given = sum(pair.shape[1] for pair in typed_edges.edges.values()), [*typed_edges.edges.values()]
    fused = pygfuse.fuse(copy.deepcopy(plain))
    repeats = options.pyg_repeats if graph == MUTAG else None
    by_torch: Callable[[], None] | str = 'not run'
    if options.limit:
        by_torch = compiled_step(step_of(by_torch_compile(plain), loss), options.limit)
    steps = [Step('PyG', step_of(plain, loss), repeats=repeats), Step('pygfuse', step_of(fused, loss))]
    if callable(by_torch):
        steps.insert(1, Step('PyG compiled', by_torch, repeats=repeats))
    if model == 'HGTConv':
        steps.append(Step('dense maps', step_of(DenseMaps(model, typed_edges), loss)))
    yield steps
    check_fused(fused)
    saved = {
        f'{side} saved MB': saved_bytes(lambda made=made: loss(made), exclude=[*given, *made.parameters()]) / 1e6
        for side, made in (('PyG', plain), ('pygfuse', fused))
    }
    return {'edges': edges, **saved} | ({} if callable(by_torch) else {'PyG compiled': by_torch})
