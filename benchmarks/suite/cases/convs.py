"""Every fused convolution beside PyG's on one graph: training step, forward, and the floor.

All sides run in one process, step by step in turn, on the same threads, PyG with a plain ``edge_index``. The floor is
one CSR sparse-dense product of the width that the layer aggregates (``torch.sparse``, MKL). Figures are medians in ms,
with the quartiles in brackets. The columns: a training step (forward and backward, gradients of inputs and parameters)
of both and their ratio; the fused walk of the forward alone, without linear maps, and its ratio to the floor. With
``--compile``, PyG's layer under torch.compile is a side too.

    python benchmarks/convs.py --root data/Tolokers
    python benchmarks/convs.py --convs GATConv --heads 4 --channels 16
"""

from __future__ import annotations

import argparse

import torch

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.layers import Training, check_fused, product
from pygfuse.bench.options import (
    add_graph_options,
    add_layer_options,
    chosen_graph,
    chosen_layers,
    layer_settings,
)
from pygfuse.bench.timing import Step
from pygfuse.bench.walks import Walks


def arguments(parser: argparse.ArgumentParser) -> None:
    add_graph_options(parser)
    add_layer_options(parser)
    parser.add_argument('--pyg-repeats', type=int, default=4, help="how often PyG's layer runs (default: 4)")
    parser.add_argument('--compile', action='store_true', help="also PyG's layer under torch.compile")


@benchmark(
    'convs',
    parameters=lambda options: [{'layer': name} for name in chosen_layers(options)],
    arguments=arguments,
    settings=layer_settings,
    ratios=(('PyG', 'pygfuse'), ('PyG compiled', 'pygfuse'), ('forward', 'product')),
    # of fewer edges no walk is timed alone
    quick={'power_law': (4000, 40_000), 'pyg_repeats': 2},
)
def convs(options: Options, layer: str) -> Measurement:
    """One layer."""
    edge_index, num_nodes = chosen_graph(options)
    made = chosen_layers(options)[layer]
    plain, fused = made.pair()
    training = Training(made, edge_index, num_nodes)
    walk = Walks('forward', 'forward')
    with walk.recording():
        grad = torch.randn_like(training.forward(fused))
    if not walk.widths:
        raise ValueError(
            'Expected a graph of more edges: along few ones, a walk is one call with the maps around it '
            f'(got {edge_index.shape[1]})'
        )
    width = walk.widths[-1]
    steps = [Step('PyG', training.step(plain, grad), repeats=options.pyg_repeats)]
    if options.compile:
        step = training.step(torch.compile(plain), grad)
        steps.append(Step('PyG compiled', step, repeats=options.pyg_repeats, warmup=2))
    steps.append(Step('pygfuse', walk.within(training.step(fused, grad))))
    yield [*steps, walk, Step('product', product(edge_index, num_nodes, width))]
    check_fused(fused)
    return {'width': width}
