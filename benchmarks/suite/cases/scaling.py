"""How a training step grows with the edges, and what one node of very many edges costs.

Power-law graphs of ten edges a node; beside each step one CSR product of the same width on the same graph, whose time
per edge grows as the features leave the caches. Then 2 M edges among 100,000 nodes: uniform, half of them into one
node, half of them out of one. Medians in ms with the quartiles in brackets.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import IN_CHANNELS, Layer, Training, check_fused, product
from pygfuse.bench.timing import Step

HEADS, CHANNELS = 4, 16
GAT = Layer('GATConv', (IN_CHANNELS, CHANNELS), {'heads': HEADS, 'add_self_loops': False})
# the row of the edge_index that half of the edges have one node in
HUBS = {'uniform': None, 'half into one node': 1, 'half out of one node': 0}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=7)
    parser.add_argument('--edges', nargs='*', type=int, default=[10**5, 10**6, 10**7])
    parser.add_argument('--hub-edges', type=int, default=2_000_000)


def parameters(options: Options) -> list[dict[str, str]]:
    graphs = [f'power law, {count:,} edges' for count in options.edges]
    return [{'graph': name} for name in graphs + [f'{options.hub_edges:,} edges, {hub}' for hub in HUBS]]


def graph_of(options: Options, name: str) -> tuple[Tensor, int]:
    """The graph of a name that `parameters` gives."""
    for count in options.edges:
        if name == f'power law, {count:,} edges':
            return power_law(count // 10, count)
    return with_hub(HUBS[name.partition('edges, ')[2]], options.hub_edges // 20, options.hub_edges)


def with_hub(hub_row: int | None, nodes: int, edges: int) -> tuple[Tensor, int]:
    """Uniform edges, half of them moved to node 5 in one row of the ``edge_index``."""
    edge_index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
    if hub_row is not None:
        edge_index[hub_row, ::2] = 5
    return edge_index, nodes


@benchmark(
    'scaling',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'layer': 'GATConv', 'heads': HEADS, 'channels': CHANNELS},
    ratios=[('pygfuse', 'product')],
    quick={'edges': [2000], 'hub_edges': 2000},
)
def scaling(options: Options, graph: str) -> Measurement:
    """GAT without self-loops on one graph."""
    edge_index, nodes = graph_of(options, graph)
    _, fused = GAT.pair()
    training = Training(GAT, edge_index, nodes)
    step = training.step(fused, torch.randn(nodes, HEADS * CHANNELS))
    samples = yield [Step('pygfuse', step), Step('product', product(edge_index, nodes, HEADS * CHANNELS))]
    check_fused(fused)
    return {'ns an edge': statistics.median(samples['pygfuse']) / edge_index.shape[1] * 1e9}
