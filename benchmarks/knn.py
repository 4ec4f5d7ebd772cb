"""The search for nearest neighbours beside scikit-learn's, point clouds against themselves.

Columns: `pygfuse.knn_graph`, scikit-learn's ``NearestNeighbors`` by brute force and by k-d tree, and their ratios to
ours. scikit-learn goes cloud by cloud, with the fit in the time; the tree stands where it is of use, in three
dimensions. All on the same threads, in turn. Points are normally distributed; ``sorted`` ones lie in the order of their
first coordinate. Medians in ms, quartiles in brackets.

    python benchmarks/knn.py
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import sklearn
import torch
from convs import Timer, quartiles
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

import pygfuse

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
HEADER = ['clouds x points', 'dims', 'k', 'pygfuse', 'brute force', 'ratio', 'k-d tree', 'ratio']


def sklearn_search(clouds: list, k: int, algorithm: str) -> None:
    for cloud in clouds:
        NearestNeighbors(n_neighbors=k, algorithm=algorithm).fit(cloud).kneighbors(cloud, return_distance=False)


def points(clouds: int, count: int, dims: int, ordered: bool) -> Tensor:
    x = torch.randn(clouds, count, dims, generator=torch.Generator().manual_seed(0))
    return torch.stack([cloud[cloud[:, 0].argsort()] for cloud in x]) if ordered else x


def measure(case: tuple, repeats: int) -> list[str]:
    """One row of the table."""
    clouds, count, dims, k, ordered = case
    x = points(clouds, count, dims, ordered)
    flat, batch = x.flatten(0, 1), torch.arange(clouds).repeat_interleave(count)
    arrays = list(x.numpy())
    searches = {
        'pygfuse': lambda: pygfuse.knn_graph(flat, k, batch, loop=True),
        'brute': lambda: sklearn_search(arrays, k, 'brute'),
        'kd_tree': lambda: sklearn_search(arrays, k, 'kd_tree'),
    }
    if dims > TREE_DIMENSIONS:
        del searches['kd_tree']
    timers = {name: Timer() for name in searches}
    for search in searches.values():
        search()
    for _ in range(repeats):
        for name, search in searches.items():
            timers[name](search)
    mine = timers['pygfuse'].median
    row = [f'{clouds} x {count:,}{" sorted" if ordered else ""}', str(dims), str(k)]
    row.append(quartiles(timers['pygfuse'].times))
    for name in ('brute', 'kd_tree'):
        known = name in timers
        row += [quartiles(timers[name].times), f'{timers[name].median / mine:.1f}x'] if known else ['', '']
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--repeats', type=int, default=20)
    options = parser.parse_args()
    print(
        f'{torch.get_num_threads()} threads of {os.cpu_count()} cores, {platform.machine()}; '
        f'torch {torch.__version__}, scikit-learn {sklearn.__version__}, pygfuse {pygfuse.__version__}; '
        f'{time.strftime("%Y-%m-%d")}\n'
    )
    print(f'| {" | ".join(HEADER)} |\n|{" --- |" * len(HEADER)}', flush=True)
    for case in CASES:
        print(f'| {" | ".join(measure(case, options.repeats))} |', flush=True)


if __name__ == '__main__':
    main()
