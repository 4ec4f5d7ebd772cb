"""Fused convolutions beside DGL's on a CPU: training steps in one process, in turn, on the same threads.

DGL's last wheel for CPUs that runs with a current PyTorch is 1.1.3; it needs `packaging`. Give it an environment of its
own:

    python -m venv dgl && dgl/bin/pip install torch==2.13.0 torch_geometric numba tqdm packaging dgl==1.1.3
    dgl/bin/python benchmarks/with_dgl.py --root data/Tolokers

Figures are medians in ms with the quartiles in brackets, of forward and backward with gradients of inputs and
parameters. DGL's layers are those of ``dgl.nn``, with the same widths; its graph has its formats made beforehand, as
has ours.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import dgl
import dgl.nn as dgl_nn
import torch
from convs import IN_CHANNELS, Timer, add_graph_options, chosen_graph, quartiles
from torch import Tensor
from tqdm import tqdm

import pygfuse
from pygfuse import conv

PAUSE = 0.05


def layers(heads: int, channels: int) -> dict[str, tuple[Callable, Callable, int]]:
    """For each layer: DGL's, ours, and the width of a further input of edges."""
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


def measure(name: str, spec: tuple, edge_index: Tensor, num_nodes: int, repeats: int) -> list[str]:
    """One row of the table."""
    make_theirs, make_ours, edge_width = spec
    torch.manual_seed(0)
    theirs, ours = make_theirs(), make_ours()
    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=num_nodes)
    graph.create_formats_()
    x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
    of_edges = (torch.rand(edge_index.shape[1], edge_width),) if edge_width else ()
    calls = {'dgl': lambda: theirs(graph, x, *of_edges), 'pygfuse': lambda: ours(x, edge_index, *of_edges)}
    timers = {key: Timer() for key in calls}
    grads = {key: torch.randn_like(call()) for key, call in calls.items()}
    for i in range(repeats + 2):
        for key, call in calls.items():

            def step(key=key, call=call) -> None:
                x.grad = None
                call().backward(grads[key])

            # each brings a team of OpenMP threads: before one runs, the other's has to fall asleep
            time.sleep(PAUSE)
            step()
            if i > 1:
                timers[key](step)
    assert ours.note.reason is None, ours.note.reason
    ratio = timers['dgl'].median / timers['pygfuse'].median
    return [name, quartiles(timers['dgl'].times), quartiles(timers['pygfuse'].times), f'{ratio:.1f}x']


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument('--layers', nargs='*', help='which layers (default: all)')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)
    parser.add_argument('--repeats', type=int, default=10)
    options = parser.parse_args()
    edge_index, num_nodes = chosen_graph(options)
    print(
        f'{num_nodes} nodes, {edge_index.shape[1]} edges; {options.heads} heads x {options.channels}; '
        f'{torch.get_num_threads()} threads of {os.cpu_count()} cores, {platform.machine()}; '
        f'torch {torch.__version__}, dgl {dgl.__version__}, pygfuse {pygfuse.__version__}; '
        f'{time.strftime("%Y-%m-%d")}\n'
    )
    chosen = {
        n: s for n, s in layers(options.heads, options.channels).items() if not options.layers or n in options.layers
    }
    rows = [measure(n, s, edge_index, num_nodes, options.repeats) for n, s in tqdm(chosen.items(), 'layers')]
    print('| layer | DGL step | pygfuse step | ratio |\n| --- | --- | --- | --- |')
    for row in rows:
        print(f'| {" | ".join(row)} |')


if __name__ == '__main__':
    main()
