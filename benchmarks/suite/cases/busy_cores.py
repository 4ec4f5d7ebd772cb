"""Training steps of few edges while another process computes on the same cores.

The other process multiplies matrices with as many threads as this one has, without a pause; it is stopped for the steps
that are alone. One layer, 64 to 4 x 16 channels, on random graphs of ten edges a node, the same in each step. All sides
in turn; medians in ms with the quartiles in brackets.

    python benchmarks/run.py busy_cores
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import Training, check_fused, layers
from pygfuse.bench.timing import Step

HEADS, CHANNELS = 4, 16
ALONE, BESIDE = 'alone', 'beside another'
# until the scheduler has put the other process where it runs
SETTLE_S = 0.01
_WORK = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
matrix = torch.randn(512, 512)
print('ready', flush=True)
while True:
    torch.mm(matrix, matrix)
"""


@contextlib.contextmanager
def another_process(threads: int) -> Iterator[Callable[[bool], None]]:
    """A process that computes, and a function that lets it run or stops it."""
    with subprocess.Popen([sys.executable, '-c', _WORK, str(threads)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        runs = True

        def let_run(on: bool) -> None:
            nonlocal runs
            if on != runs:
                os.kill(process.pid, signal.SIGCONT if on else signal.SIGSTOP)
                runs = on
                time.sleep(SETTLE_S)

        try:
            yield let_run
        finally:
            process.kill()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=200)
    parser.add_argument(
        '--convs', nargs='*', default=['GCNConv', 'GINConv', 'GATConv', 'EdgeConv'], help='which layers'
    )
    parser.add_argument('--edges', nargs='*', type=int, default=[100, 1_000])


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for layer in options.convs:
        for edges in options.edges:
            yield {'layer': layer, 'edges': edges}


@benchmark(
    'busy_cores',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'heads': HEADS, 'channels': CHANNELS},
    ratios=[(f'{side}, {BESIDE}', f'{side}, {ALONE}') for side in ('PyG', 'pygfuse')],
    quick={'edges': [100], 'convs': ['GCNConv']},
)
def busy_cores(options: Options, layer: str, edges: int) -> Measurement:
    """One layer on one graph."""
    made = layers(HEADS, CHANNELS)[layer]
    plain, fused = made.pair()
    training = Training(made, *power_law(max(edges // 10, 2), edges))
    grad = torch.randn_like(training.forward(plain))
    with another_process(torch.get_num_threads()) as let_run:
        yield [
            Step(
                f'{name}, {where}', training.step(module, grad), lambda where=where: let_run(where == BESIDE), warmup=3
            )
            for where in (ALONE, BESIDE)
            for name, module in (('PyG', plain), ('pygfuse', fused))
        ]
    check_fused(fused)
    return {}
