"""All points within a distance beside scipy's ``cKDTree``.

Columns: `pygfuse.radius_graph` without a limit, on torch's threads; `cKDTree` with
``query_pairs(output_type='ndarray')`` and both directions of each pair, tree included, which has one thread and leaves
the edges unsorted; and the ratio. In turn; before each case the edges of both sides are compared. Points are uniform
in a cube (``uniform``), normally distributed (``normal``), in 1,000 clusters whose sizes differ by a factor of up to
100 (``clusters``) or all at one of 1,000 places (``places``), float32; the distance gives as many neighbours as the
table says. Medians in ms, quartiles in brackets.

    OMP_NUM_THREADS=1 python benchmarks/run.py radius --repeats 100
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Step

# points, dimensions, how they lie, distance
CASES = [
    (1_000, 3, 'uniform', 0.175),
    (1_000, 2, 'uniform', 0.08),
    (1_000, 3, 'normal', 0.5),
    (100_000, 3, 'uniform', 0.036),
    (100_000, 2, 'uniform', 0.008),
    (100_000, 3, 'normal', 0.1),
    (100_000, 3, 'clusters', 0.01),
    (100_000, 3, 'places', 0.001),
    (1_000_000, 3, 'uniform', 0.017),
    (1_000_000, 2, 'uniform', 0.0025),
    (1_000_000, 3, 'normal', 0.04),
]
# points from which on a case takes long, and how often it is repeated at most
MOST_REPEATS = {1_000_000: 3, 100_000: 9}


def cloud(count: int, dims: int, kind: str) -> Tensor:
    """The points of a case."""
    generator = torch.Generator().manual_seed(0)
    if kind == 'uniform':
        return torch.rand(count, dims, generator=generator)
    x = torch.randn(count, dims, generator=generator)
    if kind == 'normal':
        return x
    places = torch.randn(1000, dims, generator=generator)
    chosen = torch.randint(1000, (count,), generator=generator)
    sizes = 10 ** -(1 + 2 * torch.rand(1000, 1, generator=generator))
    return places[chosen] + (x * sizes[chosen] if kind == 'clusters' else 0)


def both_directions(points: np.ndarray, r: float) -> np.ndarray:
    """``[2, edges]`` by a tree."""
    pairs = cKDTree(points).query_pairs(r, output_type='ndarray')
    return np.concatenate([pairs, pairs[:, ::-1]]).T


def ours(x: Tensor, r: float) -> Tensor:
    return pygfuse.radius_graph(x, r, max_num_neighbors=None, flow='target_to_source')


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--cases', type=int, default=len(CASES), help='only the first so many (default: all)')


def parameters(options: Options) -> list[dict]:
    return [{'points': f'{count:,} {kind}', 'dims': dims, 'r': r} for count, dims, kind, r in CASES[: options.cases]]


@benchmark(
    'radius',
    parameters=parameters,
    arguments=arguments,
    ratios=[('cKDTree', 'pygfuse')],
    quick={'cases': 1},
    packages=['scipy'],
    settings=lambda options: {'load before': round(os.getloadavg()[0], 1)},
)
def radius(options: Options, points: str, dims: int, r: float) -> Measurement:
    """The edges of one cloud."""
    count, kind = points.split()
    x = cloud(int(count.replace(',', '')), dims, kind)
    array = x.double().numpy()
    found, expected = (edges[0] * len(x) + edges[1] for edges in (ours(x, r).numpy(), both_directions(array, r)))
    expected.sort()
    if not np.array_equal(found, expected):
        raise ValueError(f'Expected the edges of both sides to be the same for {points}')
    edges = len(found)
    repeats = next((most for least, most in MOST_REPEATS.items() if len(x) >= least), None)
    del found, expected
    yield [
        Step('pygfuse', lambda: ours(x, r), repeats=repeats),
        Step('cKDTree', lambda: both_directions(array, r), repeats=repeats),
    ]
    return {'edges': edges, 'neighbours': edges / len(x)}
