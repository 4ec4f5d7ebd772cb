"""PyG's own example scripts, unchanged, with their models as they are and fused.

Each side runs for some seconds in a process of its own, the sides in turn; the time is that between two steps of the
optimiser: a mini-batch, or an epoch with what a script evaluates in it. "Alike" counts the lines that both sides print
letter for letter, of those that both print: dropout on edges draws other numbers. Of the data sets, Planetoid is the
real one, the others are generated (`suite/stand_ins.py`).

    python benchmarks/run.py pyg_examples --pyg PATH_OF_PYG --planetoid ROOT
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pygfuse.bench.case import RATIOS, Measurement, Options, benchmark
from pygfuse.bench.schema import Row

CHILD = Path(__file__).parents[1] / 'pyg_example.py'
SIDES = 'PyG', 'pygfuse'
OF_PLANETOID = (
    'gcn', 'gat', 'agnn', 'arma', 'gcn2_cora', 'graph_unet', 'link_pred', 'mixhop', 'super_gat', 'tagcn', 'rect', 'dna',
    'ar_link_pred',
)  # fmt: skip
GENERATED = (
    'film', 'geniepath', 'ppi', 'pna', 'graph_gps', 'proteins_topk_pool', 'dir_gnn', 'hetero/hetero_conv_dblp',
    'hetero/hgt_dblp', 'hetero/hetero_link_pred', 'hetero/bipartite_sage',
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=2)
    parser.add_argument('--pyg', type=Path, help="a checkout of PyG's repository, of the version that is installed")
    parser.add_argument(
        '--planetoid', help='where Planetoid lies or is downloaded to; without, its examples are not run'
    )
    parser.add_argument('--examples', nargs='*', help='names below examples/, without .py')
    parser.add_argument('--seconds', type=float, default=4.0, help='how long a side runs each time')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    if options.pyg is None:
        raise SystemExit("Expected '--pyg' to name a checkout of PyG (got none)")
    names = options.examples or (*(() if options.planetoid is None else OF_PLANETOID), *GENERATED)
    for name in names:
        yield {'example': name}


@benchmark(
    'pyg_examples',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'seconds': options.seconds},
    quick={'examples': ['hetero/hetero_link_pred'], 'seconds': 0.1},
)
def pyg_examples(options: Options, example: str) -> Measurement:
    """One example."""
    yield []
    samples, lines = {side: [] for side in SIDES}, {}
    for _ in range(options.repeats):
        for side in SIDES:
            found = run_example(options, example, side)
            samples[side] += found['seconds']
            lines[side] = found['lines']
    both = list(zip(lines['PyG'], lines['pygfuse'], strict=False))
    alike = f'{sum(a == b for a, b in both)} of {len(both)}'
    return [Row.of({'example': example}, samples, RATIOS, {'alike': alike})]


def run_example(options: Options, example: str, side: str) -> dict[str, Any]:
    """What a process found: seconds between steps, and lines.

    Raises:
        RuntimeError: If the script fails; with the end of what it said.
    """
    script = options.pyg / 'examples' / f'{example}.py'
    command = [sys.executable, CHILD, script, '--side', side, '--seconds', str(options.seconds)]
    command += ['--threads', str(torch.get_num_threads())]
    command += [] if options.planetoid is None else ['--planetoid', options.planetoid]
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get('PYTHONPATH')])]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'{example} fails beside {side}: {done.stderr[-2000:]}')
    return json.loads(done.stdout.splitlines()[-1])
