"""The search for nearest neighbours beside scikit-learn's, point clouds against themselves.

Columns: `pygfuse.knn_graph`, scikit-learn's ``NearestNeighbors`` by brute force and by k-d tree, and their ratios to
ours. scikit-learn goes cloud by cloud, with the fit in the time; the tree stands where it is of use, in three
dimensions. All on the same threads, in turn. Points are normally distributed; ``sorted`` ones lie in the order of their
first coordinate. Medians in ms, quartiles in brackets.

    python benchmarks/run.py knn
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import pygfuse
from suite.case import Measurement, Options, benchmark
from suite.timing import Step

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
TREE_DIMENSIONS = 3


def sklearn_search(clouds: list, k: int, algorithm: str) -> None:
    from sklearn.neighbors import NearestNeighbors

    for cloud in clouds:
        NearestNeighbors(n_neighbors=k, algorithm=algorithm).fit(cloud).kneighbors(cloud, return_distance=False)


def clouds_of(clouds: int, count: int, dims: int, ordered: bool) -> Tensor:
    x = torch.randn(clouds, count, dims, generator=torch.Generator().manual_seed(0))
    return torch.stack([cloud[cloud[:, 0].argsort()] for cloud in x]) if ordered else x


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--cases', type=int, default=len(CASES), help='only the first so many (default: all)')


def parameters(options: Options) -> list[dict]:
    return [
        {'points': f'{clouds} x {count:,}{" sorted" if ordered else ""}', 'dims': dims, 'k': k}
        for clouds, count, dims, k, ordered in CASES[: options.cases]
    ]


@benchmark(
    'knn',
    parameters=parameters,
    arguments=arguments,
    ratios=[('brute force', 'pygfuse'), ('k-d tree', 'pygfuse')],
    quick={'cases': 1},
    packages=['scikit-learn'],
)
def knn(options: Options, points: str, dims: int, k: int) -> Measurement:
    """The neighbours of all points of some clouds."""
    clouds, _, count = points.removesuffix(' sorted').partition(' x ')
    x = clouds_of(int(clouds), int(count.replace(',', '')), dims, points.endswith(' sorted'))
    flat, batch = x.flatten(0, 1), torch.arange(len(x)).repeat_interleave(x.shape[1])
    arrays = list(x.numpy())
    steps = [
        Step('pygfuse', lambda: pygfuse.knn_graph(flat, k, batch, loop=True)),
        Step('brute force', lambda: sklearn_search(arrays, k, 'brute')),
    ]
    if dims <= TREE_DIMENSIONS:
        steps.append(Step('k-d tree', lambda: sklearn_search(arrays, k, 'kd_tree')))
    yield steps
    return {}
