"""Bytes of one training step, counted exactly: kept for backward, and at the peak, of PyG's layer and the fused one.

python benchmarks/memory.py --root data/Tolokers
"""

from __future__ import annotations

import argparse

import torch

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.layers import Training
from pygfuse.bench.options import (
    SMALL,
    add_graph_options,
    add_layer_options,
    chosen_graph,
    chosen_layers,
    layer_settings,
)
from pygfuse.bench.schema import Row
from pygfuse.memory import peak_bytes, saved_bytes


def arguments(parser: argparse.ArgumentParser) -> None:
    add_graph_options(parser)
    add_layer_options(parser, ['GATConv'])


@benchmark(
    'memory',
    parameters=lambda options: [{'layer': name} for name in chosen_layers(options)],
    arguments=arguments,
    settings=layer_settings,
    quick=SMALL,
)
def memory(options: Options, layer: str) -> Measurement:
    """One layer of both sides: a row each."""
    edge_index, num_nodes = chosen_graph(options)
    made = chosen_layers(options)[layer]
    rows = []
    yield []
    for side, module in zip(('PyG', 'pygfuse'), made.pair(), strict=True):
        training = Training(made, edge_index, num_nodes)
        lives = [*module.parameters(), training.x, edge_index, *training.inputs.values()]
        saved = saved_bytes(lambda t=training, m=module: t.forward(m).sum(), exclude=lives)
        step = training.step(module, torch.ones_like(training.forward(module)))
        values = {'saved MB': saved / 1e6, 'peak MB': peak_bytes(step, warmup=1) / 1e6}
        rows.append(Row({'layer': layer, 'side': side}, values=values))
    return rows
