"""Layers at Reddit's size: seconds of a training step, ns an edge, and the peak of its bytes, beside what PyG needs.

The graph is generated with Reddit's numbers of nodes and edges and its spread of degrees, and with communities if asked
for; ``--fraction`` takes a share of the edges, of as many nodes, so that features are as far apart as in the whole. 64
channels in and out, 4 heads of 16 where there are heads.

PyG's peak is counted on a smaller graph of as many edges a node, and grows with it. Its time is measured at the largest
share of the edges that fits into the memory that is free, and given an edge, too.

    python benchmarks/run.py reddit_scale --fraction 0.01
    python benchmarks/run.py reddit_scale --communities 500 --edges 20000000
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import REDDIT_EDGES, REDDIT_NODES, like_reddit
from pygfuse.bench.layers import IN_CHANNELS, Layer, Training, check_fused
from pygfuse.bench.timing import Step
from pygfuse.memory import peak_bytes

HEADS, CHANNELS = 4, 16
WIDTH = HEADS * CHANNELS
ATTENTION = (IN_CHANNELS, CHANNELS), {'heads': HEADS}
LAYERS = {
    'GCNConv': Layer('GCNConv', (IN_CHANNELS, WIDTH)),
    'SAGEConv': Layer('SAGEConv', (IN_CHANNELS, WIDTH)),
    'GATConv': Layer('GATConv', *ATTENTION),
    'GATv2Conv': Layer('GATv2Conv', *ATTENTION),
}
# edges on which PyG's bytes are counted, and the share of the free memory that its step may take
FEW_EDGES, OF_FREE = 200_000, 0.6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=3)
    parser.add_argument('--fraction', type=float, default=1.0, help="share of Reddit's edges (default: all)")
    parser.add_argument('--edges', type=int, help='a number of edges instead')
    parser.add_argument('--nodes', type=int, default=REDDIT_NODES, help="default: Reddit's")
    parser.add_argument('--communities', type=int, default=0, help='how many communities (default: none)')
    parser.add_argument('--in-order', action='store_true', help='number the nodes by community')
    parser.add_argument('--convs', nargs='*', default=list(LAYERS), choices=list(LAYERS), help='which layers')
    parser.add_argument('--free-gb', type=float, help='memory that PyG may take (default: 60 %% of what is free)')


def edges_of(options: Options) -> int:
    """The number of edges that the options name."""
    return options.edges or 2 * round(options.fraction * REDDIT_EDGES / 2)


def settings(options: Options) -> dict[str, Any]:
    found = {'nodes': options.nodes, 'edges': edges_of(options), 'communities': options.communities}
    return {**found, 'numbers': 'by community' if options.in_order else 'shuffled', 'channels': WIDTH}


def graph_of(options: Options, edges: int) -> Tensor:
    """The graph, which is drawn once, or one like it of fewer edges."""
    if edges == edges_of(options) and hasattr(options, 'edge_index'):
        return options.edge_index
    drawn, _ = like_reddit(edges, options.communities, shuffled=not options.in_order, nodes=options.nodes)
    if edges == edges_of(options):
        options.edge_index = drawn
    return drawn


def free_bytes(options: Options) -> float:
    """The bytes that PyG's step may take."""
    if options.free_gb is not None:
        return options.free_gb * 1e9
    lines = dict(line.split(':') for line in Path('/proc/meminfo').read_text().splitlines())
    return OF_FREE * 1024 * int(lines['MemAvailable'].split()[0])


def training_step(module: torch.nn.Module, layer: Layer, edge_index: Tensor, nodes: int) -> Callable[[], None]:
    """A training step on a graph."""
    return Training(layer, edge_index, nodes).step(module, torch.randn(nodes, WIDTH))


def pyg_bytes(plain: torch.nn.Module, layer: Layer, nodes: int, edges: int) -> float:
    """The peak of PyG's step, from a graph of as many edges a node that is so much smaller."""
    share = min(1.0, FEW_EDGES / edges)
    few_nodes = max(2, round(share * nodes))
    edge_index, _ = like_reddit(round(share * edges), nodes=few_nodes)
    return peak_bytes(training_step(plain, layer, edge_index, few_nodes), warmup=1) / share


def edges_held(plain: torch.nn.Module, layer: Layer, options: Options) -> int:
    """The most edges, up to those of the graph, with which PyG's step fits into the memory that is free."""
    held, free = edges_of(options), free_bytes(options)
    while (needed := pyg_bytes(plain, layer, options.nodes, held)) > free and held > FEW_EDGES:
        held = max(FEW_EDGES, int(min(0.95, free / needed) * held))
    return held


@benchmark(
    'reddit_scale',
    parameters=lambda options: [{'layer': name} for name in options.convs],
    arguments=arguments,
    settings=settings,
    ratios=(),
    quick={'edges': 2000, 'nodes': 200},
)
def reddit_scale(options: Options, layer: str) -> Measurement:
    """One layer."""
    edges, made = edges_of(options), LAYERS[layer]
    plain, fused = made.pair()
    held = edges_held(plain, made, options)
    for_pyg = training_step(plain, made, graph_of(options, held), options.nodes)
    of_pyg = Step('PyG', for_pyg)
    for_pyg()
    seconds_of_pyg = min(of_pyg() for _ in range(options.repeats))
    del for_pyg, of_pyg
    step = training_step(fused, made, graph_of(options, edges), options.nodes)
    first = Step('first step', step)()
    samples = yield [Step('pygfuse', step)]
    check_fused(fused)
    ours, of_pyg_an_edge = statistics.median(samples['pygfuse']) / edges, seconds_of_pyg / held
    return {
        'ns an edge': round(ours * 1e9, 2),
        'first step s': round(first, 3),
        'peak GB': round(peak_bytes(step, warmup=1) / 1e9, 3),
        'PyG GB': round(pyg_bytes(plain, made, options.nodes, edges) / 1e9, 3),
        'PyG edges': held,
        'PyG s': round(seconds_of_pyg, 3),
        'PyG ns an edge': round(of_pyg_an_edge * 1e9, 2),
        'PyG / pygfuse an edge': round(of_pyg_an_edge / ours, 2),
    }
