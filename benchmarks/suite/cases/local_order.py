"""Numbers of nodes in a local order (`pygfuse.transforms.ToLocalOrder`) beside those they came with.

A training step of one layer, 64 channels in and out, 4 heads of 16 where there are heads, on 233,000 nodes and 20 M
edges in 500 communities with shuffled numbers, or on a list of edges from a file. Both sides in turn, in one process;
medians in ms with the quartiles in brackets. The transform includes the sort of the edges by target, which no layer met
before, but not what compiles kernels, nor what a system takes to hand out memory for the first time; `search / step` is
its time in steps with the numbers as they came. Of so many edges a node the transform leaves the numbers as they are,
unless an order is named.

    python benchmarks/run.py local_order
    python benchmarks/run.py local_order --order communities
    python benchmarks/run.py local_order --edges 10000000
    python benchmarks/run.py local_order --snap web-NotreDame.txt.gz --least-saving 0
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from torch_geometric.data import Data

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import GraphData, like_reddit
from pygfuse.bench.layers import check_fused
from pygfuse.bench.options import chosen_graph, graph_settings
from pygfuse.bench.timing import Step
from pygfuse.transforms import ToLocalOrder
from pygfuse.transforms.node_orders import ORDERS
from suite.cases.reddit_scale import LAYERS, WIDTH, training_step

# timed ones, behind one that is not
SEARCHES = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=7, power_law=None, planetoid=None)
    parser.add_argument('--nodes', type=int, default=233_000)
    parser.add_argument('--edges', type=int, default=20_000_000)
    parser.add_argument('--communities', type=int, default=500)
    parser.add_argument('--snap', metavar='FILE', help='a list of edges in text instead, for example web-NotreDame')
    parser.add_argument('--least-saving', type=float, help='take an order that saves less than the transform asks for')
    parser.add_argument('--order', choices=list(ORDERS), help='number nodes in this order, whatever it saves')
    parser.add_argument('--convs', nargs='*', default=['GCNConv', 'GATConv'], choices=LAYERS, help='which layers')


def graph_of(options: Options) -> GraphData:
    """The graph, which is drawn or read once."""
    if options.snap:
        return chosen_graph(options)
    if not hasattr(options, 'drawn'):
        options.drawn = like_reddit(options.edges, options.communities, shuffled=True, nodes=options.nodes)[0]
    return options.drawn, options.nodes


def settings(options: Options) -> dict[str, Any]:
    drawn = {'nodes': options.nodes, 'edges': options.edges, 'communities': options.communities}
    return {**(graph_settings(options) if options.snap else drawn), 'channels': WIDTH}


@benchmark(
    'local_order',
    parameters=lambda options: [{'layer': name} for name in options.convs],
    arguments=arguments,
    settings=settings,
    ratios=[('as it is', 'local order')],
    quick={'edges': 2000, 'nodes': 200, 'communities': 4},
)
def local_order(options: Options, layer: str) -> Measurement:
    """One layer."""
    edge_index, nodes = graph_of(options)
    asked = {} if options.least_saving is None else {'least_saving': options.least_saving}
    transform, seconds = ToLocalOrder(options.order, **asked), []
    for _ in range(1 + SEARCHES):
        # a copy, as of edges that were met before the order by target is known
        data = Data(edge_index=edge_index.clone(), num_nodes=nodes)
        begin = time.perf_counter()
        data = transform(data)
        seconds.append(time.perf_counter() - begin)
    search = statistics.median(seconds[1:])
    made = LAYERS[layer]
    fused = made.pair()[1]
    sides = {'as it is': edge_index, 'local order': data.edge_index}
    samples = yield [Step(name, training_step(fused, made, edges, nodes), warmup=2) for name, edges in sides.items()]
    check_fused(fused)
    step = statistics.median(samples['as it is'])
    return {
        'reordered': 'original_node' in data,
        'search s': round(search, 3),
        'search / step': round(search / step, 2),
    }
