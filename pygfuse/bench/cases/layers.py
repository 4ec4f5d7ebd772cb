"""How fast and how small layers and models are on this machine: pygfuse beside PyG and other libraries, and the floor.

A side is a library's layer, with PyG's parameters where it can take them over. All sides run in one process, in turn,
on the same threads: a training step (forward and backward, gradients of inputs and parameters), or forward alone with
--inference. Times are medians in ms with the quartiles in brackets, without the first call, which is shown apart.
"product" is one CSR sparse-dense product as wide as the layer's output (torch.sparse: MKL, cuSPARSE), which is about
the least that a forward pass can take. Bytes are counted: kept for backward, and at the peak of a step.

    python -m pygfuse.bench
    python -m pygfuse.bench --layers GATConv --edges 10000 1000000 --heads 4 --channels 16 --plot gat.png
    python -m pygfuse.bench --layers GCN GAT --data Cora PubMed --root data --providers PyG pygfuse --json found.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from tqdm import tqdm

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.comparison import PRODUCT, Contestant, Rules, contestant, let_settle, rows_of
from pygfuse.bench.datasets import DATASETS
from pygfuse.bench.graphs import GraphData, power_law
from pygfuse.bench.layers import Layer, Training, check_fused, layers, models, product
from pygfuse.bench.providers import PROVIDERS, Problem
from pygfuse.bench.runner import positive
from pygfuse.bench.timing import Samples, Step

DEFAULT_LAYERS = ('GATConv', 'GCNConv', 'SAGEConv', 'EdgeConv')


def arguments(parser: argparse.ArgumentParser) -> None:
    known = [*layers(1, 1), *models(1, 1)]
    parser.add_argument(
        '--layers', nargs='+', choices=known, default=DEFAULT_LAYERS, metavar='LAYER', help=f'of {", ".join(known)}'
    )
    parser.add_argument(
        '--edges',
        nargs='+',
        type=positive,
        default=[10_000, 100_000],
        help='of generated graphs (default: 10000 100000)',
    )
    parser.add_argument('--degree', type=positive, default=10, help='their edges a node (default: %(default)s)')
    parser.add_argument(
        '--data',
        nargs='+',
        choices=DATASETS,
        default=[],
        metavar='NAME',
        help=f"PyG's data sets instead, of {', '.join(DATASETS)}",
    )
    parser.add_argument('--root', default='data', help='where these lie or are downloaded to (default: %(default)s)')
    parser.add_argument('--features', type=positive, default=64, help='channels of the input (default: %(default)s)')
    parser.add_argument('--heads', type=positive, default=4, help='default: %(default)s')
    parser.add_argument('--channels', type=positive, default=16, help='of a head (default: %(default)s)')
    parser.add_argument(
        '--providers', nargs='+', choices=PROVIDERS, default=[*PROVIDERS], metavar='NAME',
        help=f'of {"; ".join(PROVIDERS)} (default: all that are there)',
    )  # fmt: skip
    parser.add_argument('--device', type=torch.device, default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.add_argument('--inference', action='store_true', help='forward alone, without gradients')
    parser.add_argument('--seconds', type=float, default=3.0, help='a side that takes longer runs less often')
    parser.add_argument('--limit', type=positive, default=300, help="seconds for a side's first call (default: 300)")


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    graphs = options.data or [f'power law, {count:,} edges' for count in options.edges]
    return ({'graph': graph, 'layer': layer} for graph in graphs for layer in options.layers)


def settings(options: Options) -> dict[str, Any]:
    what = 'forward' if options.inference else 'forward and backward'
    widths = {name: getattr(options, name) for name in ('degree', 'features', 'heads', 'channels')}
    return {'measured': what, 'device': str(options.device), **widths}


def remarks(options: Options) -> list[str]:
    """Which libraries are left out."""
    found = {name: PROVIDERS[name].why_not(options.device) for name in options.providers}
    return [f'{name} is left out: it {why_not}' for name, why_not in found.items() if why_not is not None]


def graph_of(options: Options, name: str) -> GraphData:
    """A graph by its name; the last one is kept."""
    if getattr(options, 'read', (None,))[0] != name:
        if name in DATASETS:
            edge_index, nodes = DATASETS[name](options.root)
        else:
            edges = int(name.removeprefix('power law, ').removesuffix(' edges').replace(',', ''))
            edge_index, nodes = power_law(max(edges // options.degree, 2), edges)
        options.read = name, (edge_index.to(options.device), nodes)
    return options.read[1]


def layer_of(options: Options, name: str) -> Layer:
    """A layer or a model by its name."""
    widths = options.heads, options.channels, options.features
    return {**layers(*widths), **models(*widths)}[name]


@benchmark(
    'layers',
    parameters=parameters,
    arguments=arguments,
    settings=settings,
    remarks=remarks,
    quick={'edges': [200], 'layers': ['GATConv'], 'data': [], 'providers': ['PyG', 'pygfuse']},
    packages=('torch_scatter', 'torch_sparse', 'pyg_lib', 'dgl'),
)
def side_by_side(options: Options, graph: str, layer: str) -> Measurement:
    """One layer on one graph: a row for each side."""
    edge_index, nodes = graph_of(options, graph)
    made = layer_of(options, layer)
    problem = Problem(
        layer, made, made.plain().to(options.device), Training(made, edge_index, nodes), options.heads, options.channels
    )
    rules = Rules(options.device, options.inference, options.repeats, options.seconds, options.limit)
    chosen = [name for name in options.providers if PROVIDERS[name].why_not(options.device) is None]
    sides: list[Contestant] = []
    bar = tqdm(chosen, f'{layer}, {graph}', leave=False, disable=None)
    for name in bar:
        bar.set_postfix_str(name)
        found = contestant(PROVIDERS[name], problem, rules)
        if isinstance(found, Contestant):
            sides.append(found)
        elif found is not None:
            tqdm.write(f'{name} fails on {layer}, {graph}: {found}')
    steps = [side.step for side in sides]
    if sides:
        steps.append(Step(PRODUCT, product(edge_index, nodes, sides[0].width), wait=rules.wait))
    pause = max((PROVIDERS[side.name].pause for side in sides), default=0.0)
    if pause:
        let_settle(steps, pause)
    samples: Samples = yield steps
    for side in sides:
        if side.name == 'pygfuse':
            check_fused(side.module)
    return rows_of({'graph': graph, 'layer': layer}, samples, {side.name: side.values() for side in sides})
