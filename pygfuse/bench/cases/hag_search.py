"""The search of HAGs alone, from the edges as they come to the HAG: its time, what it finds, and the process's memory.

The peak of the process's memory is that of all graphs so far, so that one is given at a time.

    python -m pygfuse.bench hag_search --data DATA --graphs Tolokers --budget 1
    python -m pygfuse.bench hag_search --data DATA --graphs Tolokers --capacity none --block-size 1024

DATA is as for ``hag``.
"""

from __future__ import annotations

import argparse
import resource
import time

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.cases.hag import GRAPHS, add_options
from pygfuse.transforms import find_hag


def capacity(text: str) -> float | None:
    """A number, or none."""
    return None if text == 'none' else float(text)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument(
        '--capacity', type=capacity, default=0.25, help='aggregation nodes a node, or none (default: %(default)s)'
    )
    parser.add_argument('--block-size', type=int, default=2048, help='default: %(default)s')


def peak_gigabytes() -> float:
    """The peak of the process's memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@benchmark(
    'hag_search',
    parameters=lambda options: [
        {'graph': name, 'limit': 'none' if options.budget is None else f'{options.budget:g} s'}
        for name in options.graphs
    ],
    arguments=arguments,
    settings=lambda options: {'capacity': options.capacity},
    quick={'graphs': ['small hub']},
)
def hag_search(options: Options, graph: str, limit: str) -> Measurement:
    """One graph."""
    edge_index, num_nodes = GRAPHS[graph](options.data)
    find_hag(edge_index[:, :100], num_nodes)  # loads the kernels
    yield []
    start = time.perf_counter()
    chosen = {'capacity': options.capacity, 'budget_s': options.budget, 'block_size': options.block_size}
    found = find_hag(edge_index, num_nodes, **chosen).num_aggregations
    return {
        'blocks of': options.block_size,
        'search s': time.perf_counter() - start,
        'aggregations before': found.before,
        'aggregations': found.after,
        'aggregations saved': found.ratio,
        'peak GB': peak_gigabytes(),
    }
