"""Edges sorted by target and gathered row by row, or added up as they came: fuseGNN's two ways to aggregate.

A training step of a GCN layer (forward and backward, gradients of inputs and parameters) on random graphs of ten edges
a node: with the same edges in each step, which are sorted once, and with new ones, whose sort belongs to the step. Both
ways are forced (`pygfuse.force_mapping`); "chosen" is what the cost model says without. All sides in turn, in one
process; medians in ms with the quartiles in brackets.

    python -m pygfuse.bench aggregations
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import IN_CHANNELS, Layer, Training, check_fused
from pygfuse.bench.timing import Step

CONTEXTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    'gathered': partial(pygfuse.force_mapping, 'vertex'),
    'scattered': partial(pygfuse.force_mapping, 'scatter'),
    'chosen': contextlib.nullcontext,
    'chosen, used once': pygfuse.used_once,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--edges', nargs='*', type=int, default=[10_000, 100_000])
    parser.add_argument('--channels', nargs='*', type=int, default=[4, 16, 64])


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for edges in options.edges:
        for channels in options.channels:
            for which in ('the same', 'new'):
                yield {'edges': edges, 'channels': channels, 'edge_index': which}


@benchmark(
    'aggregations',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'layer': 'GCNConv', 'features': IN_CHANNELS},
    ratios=[('gathered', 'scattered')],
    quick={'edges': [200], 'channels': [4]},
)
def aggregations(options: Options, edges: int, channels: int, edge_index: str) -> Measurement:
    """One graph and width."""
    layer = Layer('GCNConv', (IN_CHANNELS, channels))
    _, fused = layer.pair()
    pairs, nodes = power_law(max(edges // 10, 2), edges)
    grad = torch.randn(nodes, channels)

    def side(name: str, context: Callable[[], AbstractContextManager[None]]) -> Step:
        training = Training(layer, pairs.clone(), nodes)  # no side finds the edges sorted by another
        step = training.step(fused, grad)

        def next_edges() -> None:
            if edge_index == 'new':
                training.edge_index = pairs.clone()

        def run() -> None:
            with context():
                step()

        return Step(name, run, next_edges, warmup=2)

    yield [side(name, context) for name, context in CONTEXTS.items()]
    check_fused(fused)
    return {}
