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
import dataclasses
from collections.abc import Callable

import torch

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.comparison import let_settle
from pygfuse.bench.layers import Layer, Training, check_fused, layers
from pygfuse.bench.options import SMALL, add_graph_options, chosen_graph, layer_settings
from pygfuse.bench.providers import dgl as theirs
from pygfuse.bench.providers.self_loops import WITH_LOOPS
from pygfuse.bench.timing import Step

NAMES = {
    'GAT': 'GATConv',
    'GATv2': 'GATv2Conv',
    'GCN': 'GCNConv',
    'SAGE mean': 'SAGEConv',
    'GIN': 'GINConv',
    'GMM': 'GMMConv',
    'EdgeConv': 'EdgeConv',
}


def layer_of(options: Options, kind: str) -> Layer:
    """A layer without self-loops."""
    layer = layers(options.heads, options.channels)[kind]
    without = {'add_self_loops': False} if kind in WITH_LOOPS else {}
    return dataclasses.replace(layer, options={**layer.options, **without})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=10)
    add_graph_options(parser)
    parser.add_argument('--layers', nargs='*', choices=NAMES, default=[*NAMES], help='which layers (default: all)')
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
    made = layer_of(options, NAMES[layer])
    training = Training(made, *chosen_graph(options))
    module = theirs.modules(made.features, options.heads, options.channels)[NAMES[layer]]()
    ours = pygfuse.fuse(made.plain())

    def side(name: str, call: Callable[[], torch.Tensor]) -> Step:
        grad = torch.randn_like(call())

        def step() -> None:
            training.x.grad = None
            call().backward(grad)

        return Step(name, step)

    graph = theirs.graph_of(training, with_loops=False)
    steps = [side('DGL', theirs.forward_of(module, graph, training)), side('pygfuse', lambda: training.forward(ours))]
    let_settle(steps, theirs.PAUSE)
    yield steps
    check_fused(ours)
    return {}
