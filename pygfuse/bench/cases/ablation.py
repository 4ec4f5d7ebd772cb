"""What each of the three ideas brings: reorganisation, fusion, recomputation, one switched on after the other.

The table of "Understanding GNN Computational Graph" (MLSys 2022, section 7.3): a training step's time, what it saves
for backward, and its peak memory, for PyG, for the same layer with all switches off, and with one more on in each row.
All run in one process, in turn. Medians with the quartiles in brackets.

    python -m pygfuse.bench ablation --root data/Tolokers
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

import pygfuse
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
from pygfuse.bench.timing import Spread, Step
from pygfuse.memory import peak_bytes, saved_bytes

SWITCHES = {
    'none of the three': {'reorganisation': False, 'fusion': False, 'recomputation': False},
    '+ reorganisation': {'fusion': False, 'recomputation': False},
    '+ fusion': {'recomputation': False},
    '+ recomputation': {},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=5)
    add_graph_options(parser)
    add_layer_options(parser, ['GATConv', 'GATv2Conv', 'EdgeConv', 'GMMConv'])


def switched(function: Callable[[], Tensor | None], switches: dict[str, bool]) -> Callable[[], Tensor | None]:
    """The function with some of the ideas switched off."""

    def run() -> Tensor | None:
        with pygfuse.ablation(**switches):
            return function()

    return run


@benchmark(
    'ablation',
    parameters=lambda options: [{'layer': name} for name in chosen_layers(options)],
    arguments=arguments,
    settings=layer_settings,
    quick=SMALL,
)
def ablation(options: Options, layer: str) -> Measurement:
    """One layer: a row for PyG and for each combination of switches."""
    edge_index, num_nodes = chosen_graph(options)
    made = chosen_layers(options)[layer]
    plain, fused = made.pair()
    training = Training(made, edge_index, num_nodes)
    grad = torch.randn_like(training.forward(fused))
    sides = {'PyG': (plain, {}), **{label: (fused, switches) for label, switches in SWITCHES.items()}}
    steps = {side: switched(training.step(module, grad), off) for side, (module, off) in sides.items()}
    samples = yield [Step(side, step) for side, step in steps.items()]
    times = {side: Spread.of(seconds) for side, seconds in samples.items()}
    rows = []
    for side, (module, off) in sides.items():
        forward = switched(lambda module=module: training.forward(module), off)
        saved = saved_bytes(forward, exclude=[training.x, edge_index, *training.inputs.values()])
        values = {'saved MB': saved / 1e6, 'peak MB': peak_bytes(steps[side]) / 1e6}
        ratio = {'PyG / this': times['PyG'].median / times[side].median}
        rows.append(Row({'layer': layer, 'side': side}, {'step': times[side]}, ratio, values))
    return rows
