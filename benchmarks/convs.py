"""Every fused convolution beside PyG's on one graph: training step, forward, and the floor.

Both sides run in one process, step by step in turn, on the same threads, PyG with a plain ``edge_index``. The floor is
one CSR sparse-dense product of the width that the layer aggregates (``torch.sparse``, MKL). Figures are medians in ms,
with the quartiles in brackets. The columns: a training step (forward and backward, gradients of inputs and parameters)
of both and their ratio; the fused walk of the forward alone, without linear maps, and its ratio to the floor.

    python benchmarks/convs.py --root data/Tolokers
    python benchmarks/convs.py --convs GATConv --heads 4 --channels 16
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy
import torch
import torch_geometric
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
import pygfuse.conv
from pygfuse.cpu import backend as target
from pygfuse.graph.graph import Graph

IN_CHANNELS = 64


def tolokers(root: str) -> tuple[Tensor, int]:
    """11,758 nodes, 1,038,000 edges."""
    from torch_geometric.datasets import HeterophilousGraphDataset

    data = HeterophilousGraphDataset(root, 'Tolokers')[0]
    return data.edge_index, data.num_nodes


def power_law(nodes: int, edges: int, seed: int = 0) -> tuple[Tensor, int]:
    """A random graph whose in-degrees follow a power law."""
    generator = torch.Generator().manual_seed(seed)
    popularity = torch.rand(nodes, generator=generator).pow(-1 / 1.5)
    targets = torch.multinomial(popularity, edges, replacement=True, generator=generator)
    sources = torch.randint(nodes, (edges,), generator=generator)
    return torch.stack([sources, targets]), nodes


def planetoid(root: str, name: str) -> tuple[Tensor, int]:
    """Cora, CiteSeer or PubMed."""
    from torch_geometric.datasets import Planetoid

    data = Planetoid(root, name)[0]
    return data.edge_index, data.num_nodes


def snap(path: str) -> tuple[Tensor, int]:
    """A list of edges in text, as SNAP has them: two nodes a line, comments after ``#``."""
    edge_index = torch.from_numpy(numpy.loadtxt(path, dtype=numpy.int64)).t().contiguous()
    return edge_index, int(edge_index.max()) + 1


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """The options that `chosen_graph` reads."""
    parser.add_argument('--root', default='data/Tolokers', help='where PyG keeps Tolokers, or downloads it to')
    parser.add_argument('--planetoid', metavar='NAME', help='Cora, CiteSeer or PubMed instead, kept under ROOT')
    parser.add_argument('--snap', metavar='FILE', help='a list of edges in text instead, for example web-NotreDame')
    parser.add_argument('--power-law', nargs=2, type=int, metavar=('NODES', 'EDGES'), help='a generated graph instead')


def chosen_graph(options: argparse.Namespace) -> tuple[Tensor, int]:
    """The graph that the options name, and its number of nodes."""
    if options.power_law:
        return power_law(*options.power_law)
    if options.snap:
        return snap(options.snap)
    return planetoid(options.root, options.planetoid) if options.planetoid else tolokers(options.root)


def layers(heads: int, channels: int) -> dict[str, tuple[tuple, dict, dict[str, int]]]:
    """For each class: arguments, options, and the widths of further inputs of edges."""
    width = heads * channels
    linear = torch.nn.Linear
    return {
        'GATConv': ((IN_CHANNELS, channels), {'heads': heads}, {}),
        'GATv2Conv': ((IN_CHANNELS, channels), {'heads': heads}, {}),
        'TransformerConv': ((IN_CHANNELS, channels), {'heads': heads}, {}),
        'GCNConv': ((IN_CHANNELS, width), {}, {}),
        'SAGEConv': ((IN_CHANNELS, width), {}, {}),
        'SAGEConv max': ((IN_CHANNELS, width), {'aggr': 'max'}, {}),
        'GraphConv': ((IN_CHANNELS, width), {}, {}),
        'GINConv': ((linear(IN_CHANNELS, width),), {}, {}),
        'GINConv identity': ((torch.nn.Identity(),), {}, {}),
        'GINEConv': ((linear(IN_CHANNELS, width),), {'edge_dim': 8}, {'edge_attr': 8}),
        'AGNNConv': ((), {}, {}),
        'FAConv': ((IN_CHANNELS,), {}, {}),
        'EdgeConv': ((linear(2 * IN_CHANNELS, width),), {}, {}),
        'GMMConv': ((IN_CHANNELS, width, 3, 3), {}, {'edge_attr': 3}),
        'ResGatedGraphConv': ((IN_CHANNELS, width), {}, {}),
        'CGConv': ((IN_CHANNELS,), {}, {}),
    }


def quartiles(times: list[float], digits: int = 1) -> str:
    """Median and quartiles in ms."""
    low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return f'{middle * 1e3:.{digits}f} [{low * 1e3:.{digits}f}, {high * 1e3:.{digits}f}]'


class Timer:
    """Durations of calls."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, function: Callable) -> object:
        start = time.perf_counter()
        result = function()
        self.times.append(time.perf_counter() - start)
        return result

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def measure(name: str, spec: tuple, edge_index: Tensor, num_nodes: int, repeats: int, plain_repeats: int) -> list[str]:
    """One row of the table."""
    arguments, options, extra = spec
    kind = name.split()[0]
    torch.manual_seed(0)
    plain = getattr(pyg, kind)(*arguments, **options)
    fused = getattr(pygfuse.conv, kind)(*arguments, **options)
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
    inputs = {key: torch.randn(edge_index.shape[1], width) for key, width in extra.items()}
    positional = (x, x.detach()) if kind == 'FAConv' else (x,)
    grad = torch.randn_like(fused(*positional, edge_index, **inputs))
    graph = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes)
    values = torch.rand(graph.num_edges)
    matrix = torch.sparse_csr_tensor(graph.csr.indptr, graph.csr.index, values, (num_nodes, num_nodes))

    def step(layer: torch.nn.Module) -> Callable:
        def run() -> None:
            x.grad = None
            layer.zero_grad()
            layer(*positional, edge_index, **inputs).backward(grad)

        return run

    walk, widths = Timer(), []
    inner = target.forward

    def timed(call):
        widths.append(call.width)
        return walk(lambda: inner(call))

    target.forward = timed
    try:
        mine, theirs, floor = Timer(), Timer(), Timer()
        step(fused)()
        walk.times.clear()
        dense = torch.randn(num_nodes, widths[-1])
        matrix @ dense
        for i in range(repeats):
            if i < plain_repeats:
                theirs(step(plain))
            mine(step(fused))
            floor(lambda: matrix @ dense)
    finally:
        target.forward = inner
    assert fused.note.reason is None, fused.note.reason
    return [
        name,
        str(widths[-1]),
        quartiles(theirs.times),
        quartiles(mine.times),
        f'{theirs.median / mine.median:.0f}x',
        quartiles(walk.times),
        quartiles(floor.times),
        f'{walk.median / floor.median:.2f}',
    ]


HEADER = ['layer', 'width', 'PyG step', 'pygfuse step', 'ratio', 'fused forward', 'one product', 'forward / product']


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument('--convs', nargs='*', help='which layers (default: all)')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)
    parser.add_argument('--repeats', type=int, default=20)
    parser.add_argument('--pyg-repeats', type=int, default=4)
    options = parser.parse_args()
    edge_index, num_nodes = chosen_graph(options)
    print(
        f'{num_nodes} nodes, {edge_index.shape[1]} edges; {torch.get_num_threads()} threads of {os.cpu_count()} cores, '
        f'{platform.machine()}; torch {torch.__version__}, torch_geometric {torch_geometric.__version__}, '
        f'pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}\n'
    )
    print(f'| {" | ".join(HEADER)} |\n|{" --- |" * len(HEADER)}', flush=True)
    for name, spec in layers(options.heads, options.channels).items():
        if not options.convs or name in options.convs:
            row = measure(name, spec, edge_index, num_nodes, options.repeats, options.pyg_repeats)
            print(f'| {" | ".join(row)} |', flush=True)


if __name__ == '__main__':
    main()
