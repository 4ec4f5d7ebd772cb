"""Fused convolutions beside DGL's on a CPU: training steps in one process, in turn, on the same threads.

DGL's last wheel for CPUs that runs with a current PyTorch is 1.1.3; it needs `packaging`. Give it an environment of its
own:

    python -m venv dgl && dgl/bin/pip install torch==2.13.0 torch_geometric numba tqdm packaging dgl==1.1.3
    dgl/bin/python benchmarks/run.py with_dgl --root data/Tolokers

Figures are medians in ms with the quartiles in brackets, of forward and backward with gradients of inputs and
parameters. DGL's layers are those of ``dgl.nn``, with the same widths; its graph has its formats made beforehand, as
has ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from pygfuse import conv
from suite.case import Measurement, Options, benchmark
from suite.graphs import SMALL, add_graph_options, chosen_graph, layer_settings
from suite.layers import IN_CHANNELS, check_fused
from suite.timing import Step

# each library brings a team of OpenMP threads: before one runs, the other's has to fall asleep
PAUSE = 0.05

NAMES = ['GAT', 'GATv2', 'GCN', 'SAGE mean', 'GIN', 'GMM', 'EdgeConv']


def layers(heads: int, channels: int) -> dict[str, tuple[Callable, Callable, int]]:
    """For each layer: DGL's, ours, and the width of a further input of edges."""
    import dgl.nn as dgl_nn

    width, features = heads * channels, IN_CHANNELS
    linear = torch.nn.Linear
    return {
        'GAT': (
            lambda: dgl_nn.GATConv(features, channels, heads, allow_zero_in_degree=True),
            lambda: conv.GATConv(features, channels, heads=heads, add_self_loops=False),
            0,
        ),
        'GATv2': (
            lambda: dgl_nn.GATv2Conv(features, channels, heads, allow_zero_in_degree=True),
            lambda: conv.GATv2Conv(features, channels, heads=heads, add_self_loops=False),
            0,
        ),
        'GCN': (
            lambda: dgl_nn.GraphConv(features, width, allow_zero_in_degree=True),
            lambda: conv.GCNConv(features, width, add_self_loops=False),
            0,
        ),
        'SAGE mean': (lambda: dgl_nn.SAGEConv(features, width, 'mean'), lambda: conv.SAGEConv(features, width), 0),
        'GIN': (
            lambda: dgl_nn.GINConv(linear(features, width), 'sum'),
            lambda: conv.GINConv(linear(features, width)),
            0,
        ),
        'GMM': (
            lambda: dgl_nn.GMMConv(features, width, 3, 3, 'mean', allow_zero_in_degree=True),
            lambda: conv.GMMConv(features, width, 3, 3),
            3,
        ),
        'EdgeConv': (
            lambda: dgl_nn.EdgeConv(features, width, allow_zero_in_degree=True),
            lambda: conv.EdgeConv(linear(2 * features, width)),
            0,
        ),
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=10)
    add_graph_options(parser)
    parser.add_argument('--layers', nargs='*', choices=NAMES, default=NAMES, help='which layers (default: all)')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)


@benchmark(
    'with_dgl',
    parameters=lambda options: [{'layer': name} for name in options.layers],
    arguments=arguments,
    settings=layer_settings,
    ratios=[('DGL', 'pygfuse')],
    quick=SMALL,
    packages=['dgl'],
)
def with_dgl(options: Options, layer: str) -> Measurement:
    """One layer."""
    import dgl

    edge_index, num_nodes = chosen_graph(options)
    make_theirs, make_ours, edge_width = layers(options.heads, options.channels)[layer]
    theirs, ours = make_theirs(), make_ours()
    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=num_nodes)
    graph.create_formats_()
    x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
    of_edges = (torch.rand(edge_index.shape[1], edge_width),) if edge_width else ()

    def side(name: str, call: Callable[[], torch.Tensor]) -> Step:
        grad = torch.randn_like(call())

        def step() -> None:
            x.grad = None
            call().backward(grad)

        def wait() -> None:
            time.sleep(PAUSE)
            step()

        return Step(name, step, wait)

    yield [side('DGL', lambda: theirs(graph, x, *of_edges)), side('pygfuse', lambda: ours(x, edge_index, *of_edges))]
    check_fused(ours)
    return {}
