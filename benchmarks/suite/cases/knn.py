"""The search for nearest neighbours beside scikit-learn's, point clouds against themselves.

Columns: `pygfuse.knn_graph`, scikit-learn's ``NearestNeighbors`` by brute force and by k-d tree, and their ratios to
ours. scikit-learn goes cloud by cloud, with the fit in the time; the tree stands where it is of use, in three
dimensions. All on the same threads, in turn. Points are normally distributed; ``sorted`` ones lie in the order of their
first coordinate. Medians in ms, quartiles in brackets.

With ``--large`` single clouds that are searched among boxes, beside `pygfuse.knn_graph` without them and scipy's
``cKDTree`` on as many threads.

    python benchmarks/run.py knn
    python benchmarks/run.py knn --large --repeats 5
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from torch import Tensor

import pygfuse
import pygfuse.cpu.points.knn as search
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Step

# clouds, points of each, dimensions, neighbours, sorted
CASES = [
    (1, 1024, 3, 20, False),
    (1, 1024, 64, 20, False),
    (1, 1024, 64, 40, False),
    (1, 1024, 128, 20, False),
    (1, 1024, 256, 20, False),
    (1, 1024, 64, 20, True),
    (32, 1024, 3, 20, False),
    (32, 1024, 64, 20, False),
    (32, 1024, 64, 40, False),
    (1, 16384, 3, 20, False),
    (1, 16384, 64, 20, False),
]
LARGE_CASES = [
    (1, 8192, 3, 20, False),
    (1, 16384, 3, 20, False),
    (1, 16384, 2, 20, False),
    (1, 32768, 8, 20, False),
    (1, 100_000, 3, 20, False),
    (1, 1_000_000, 3, 20, False),
]
TREE_DIMENSIONS = 3
# points from which on brute force takes a minute
MANY = 1_000_000


def sklearn_search(clouds: list, k: int, algorithm: str) -> None:
    from sklearn.neighbors import NearestNeighbors

    for cloud in clouds:
        NearestNeighbors(n_neighbors=k, algorithm=algorithm).fit(cloud).kneighbors(cloud, return_distance=False)


def scipy_search(cloud: np.ndarray, k: int) -> None:
    from scipy.spatial import cKDTree

    cKDTree(cloud).query(cloud, k, workers=torch.get_num_threads())


def by_brute_force(x: Tensor, k: int) -> None:
    before = search.LEAST_POINTS
    search.LEAST_POINTS = {}
    pygfuse.knn_graph(x, k, loop=True)
    search.LEAST_POINTS = before


def clouds_of(clouds: int, count: int, dims: int, ordered: bool) -> Tensor:
    x = torch.randn(clouds, count, dims, generator=torch.Generator().manual_seed(0))
    return torch.stack([cloud[cloud[:, 0].argsort()] for cloud in x]) if ordered else x


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--cases', type=int, help='only the first so many (default: all)')
    parser.add_argument('--large', action='store_true', help='large clouds of few dimensions')


def parameters(options: Options) -> list[dict]:
    return [
        {'points': f'{clouds} x {count:,}{" sorted" if ordered else ""}', 'dims': dims, 'k': k}
        for clouds, count, dims, k, ordered in (LARGE_CASES if options.large else CASES)[: options.cases]
    ]


@benchmark(
    'knn',
    parameters=parameters,
    arguments=arguments,
    ratios=[(side, 'pygfuse') for side in ('brute force', 'k-d tree', 'pygfuse, brute force', 'cKDTree')],
    quick={'cases': 1},
    packages=['scikit-learn', 'scipy'],
    settings=lambda options: {'load before': round(os.getloadavg()[0], 1)},
)
def knn(options: Options, points: str, dims: int, k: int) -> Measurement:
    """The neighbours of all points of some clouds."""
    clouds, _, count = points.removesuffix(' sorted').partition(' x ')
    x = clouds_of(int(clouds), int(count.replace(',', '')), dims, points.endswith(' sorted'))
    flat, batch = x.flatten(0, 1), torch.arange(len(x)).repeat_interleave(x.shape[1])
    arrays = list(x.numpy())
    steps = [Step('pygfuse', lambda: pygfuse.knn_graph(flat, k, batch, loop=True))]
    if options.large:
        steps.append(Step('cKDTree', lambda: scipy_search(arrays[0], k), repeats=3 if len(flat) >= MANY else None))
        if len(flat) < MANY:
            steps.append(Step('pygfuse, brute force', lambda: by_brute_force(flat, k), repeats=3))
    else:
        steps.append(Step('brute force', lambda: sklearn_search(arrays, k, 'brute')))
        if dims <= TREE_DIMENSIONS:
            steps.append(Step('k-d tree', lambda: sklearn_search(arrays, k, 'kd_tree')))
    yield steps
    return {}
