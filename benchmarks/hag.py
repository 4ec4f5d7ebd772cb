"""HAGs of real graphs: aggregations, transfers, search time, and the time of an aggregation with and without.

The plain and the HAG's aggregation (forward and backward, one operator each) run in one process, in turn. HAGs of
two kinds: with the paper's capacity, a quarter of the nodes, whatever a node saves, and with nodes that save at least
32 aggregations, as `ToHAG` keeps them. "levels alone" is the HAG without aggregation nodes: the same walks over the
plain edges. "expected" is what the cost model says of the ratio to that.

With ``--search`` nothing is aggregated: the search alone is timed, from the edges as they come to the HAG. The peak of
the process's memory is that of all graphs so far, so that one is given at a time.

    python benchmarks/hag.py --data DATA --graphs COLLAB IMDB-BINARY
    python benchmarks/hag.py --data DATA --graphs Tolokers --search --budget 1
    python benchmarks/hag.py --data DATA --graphs Tolokers --search --capacity none --block-size 1024

DATA has ``tu/other/COLLAB.npz``, ``tu/NAME/raw``, ``amazon/Computers/raw``, ``heterophilous/tolokers/raw`` and
``snap/ego-twitter-undirected``; the hubs are generated.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from convs import quartiles
from torch import Tensor

from pygfuse.hag.hag import Hag
from pygfuse.hag.prefix_tree import find_prefix_tree
from pygfuse.hag.search.find import expected_gain
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.transforms import find_hag

Loaded = tuple[Tensor, int]
KINDS = {'a quarter of the nodes': 1, 'nodes that save 32': 32}


def collab(data: Path) -> Loaded:
    arrays = np.load(data / 'tu/other/COLLAB.npz')
    node_ptr, indptr = arrays['node_ptr'].astype(np.int64), arrays['indptr'].astype(np.int64)
    degree = np.diff(indptr)
    first = np.repeat(node_ptr[:-1], np.diff(node_ptr))
    sources = arrays['indices_local'].astype(np.int64) + np.repeat(first, degree)
    targets = np.repeat(np.arange(len(degree)), degree)
    return torch.from_numpy(np.stack([sources, targets])), len(degree)


def text_batch(name: str) -> Callable[[Path], Loaded]:
    """All graphs of a TU dataset, read from its text files."""

    def load(data: Path) -> Loaded:
        raw = data / 'tu' / name / 'raw'
        pairs = np.loadtxt(raw / f'{name}_A.txt', delimiter=',', dtype=np.int64).T - 1
        num_nodes = len(np.loadtxt(raw / f'{name}_graph_indicator.txt'))
        pairs = pairs[:, pairs[0] != pairs[1]]
        return torch.from_numpy(np.ascontiguousarray(pairs)), num_nodes

    return load


def computers(data: Path) -> Loaded:
    (path,) = data.glob('amazon/Computers/raw/*.npz')
    arrays = np.load(path)
    indptr, indices = arrays['adj_indptr'].astype(np.int64), arrays['adj_indices'].astype(np.int64)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    both = np.concatenate([np.stack([rows, indices]), np.stack([indices, rows])], axis=1)
    both = np.unique(both[:, both[0] != both[1]], axis=1)
    return torch.from_numpy(both), len(indptr) - 1


def tolokers(data: Path) -> Loaded:
    (path,) = data.glob('heterophilous/tolokers/raw/*.npz')
    arrays = np.load(path)
    edges = torch.from_numpy(arrays['edges'].astype(np.int64)).t()
    return torch.cat([edges, edges.flip(0)], dim=1).contiguous(), len(arrays['node_labels'])


def twitter(data: Path) -> Loaded:
    (path,) = data.glob('snap/ego-twitter-undirected*/*.npz') or data.glob('snap/ego-twitter-undirected*.npz')
    arrays = np.load(path)
    indptr, indices = arrays['indptr'].astype(np.int64), arrays['indices'].astype(np.int64)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    kept = rows != indices
    pair = torch.from_numpy(np.stack([rows[kept], indices[kept]]))
    return torch.cat([pair, pair.flip(0)], dim=1), len(indptr) - 1


HUB_DEGREE = 1_000_000


def hub(data: Path) -> Loaded:
    """A node that a million others are neighbours of, and that is theirs; groups of 20 share 10 neighbours."""
    generator, shapes = torch.Generator().manual_seed(0), ((10_000, 20, 1), (10_000, 1, 10))
    targets, sources = (torch.randint(HUB_DEGREE, shape, generator=generator) for shape in shapes)
    related = torch.stack([sources.expand(-1, 20, -1).flatten(), targets.expand(-1, -1, 10).flatten()])
    return with_hub(related), HUB_DEGREE + 1


def random_hub(data: Path) -> Loaded:
    """The same hub, and as many edges at random."""
    related = torch.randint(HUB_DEGREE, (2, 2_000_000), generator=torch.Generator().manual_seed(0))
    return with_hub(related), HUB_DEGREE + 1


def with_hub(edge_index: Tensor) -> Tensor:
    """Edges, and a node more with an edge to and from each other one."""
    into = torch.stack([torch.arange(HUB_DEGREE), torch.full((HUB_DEGREE,), HUB_DEGREE)])
    return torch.cat([into, into.flip(0), edge_index], dim=1)


GRAPHS: dict[str, Callable[[Path], Loaded]] = {
    'COLLAB': collab,
    'IMDB-BINARY': text_batch('IMDB-BINARY'),
    'BZR': text_batch('BZR'),
    'Computers': computers,
    'Tolokers': tolokers,
    'ego-Twitter': twitter,
    'hub': hub,
    'random hub': random_hub,
}


def step(function: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Callable[[], None]:
    def run() -> None:
        torch.autograd.grad(function(x), x, grad)

    return run


def measure(name: str, edge_index: Tensor, num_nodes: int, arguments: argparse.Namespace) -> list[list[str]]:
    """A row of the table for each kind of HAG."""
    x = torch.randn(num_nodes, arguments.width, requires_grad=True)
    grad = torch.randn(num_nodes, arguments.width)
    edges = Edges(edge_index, num_nodes, num_nodes)
    find_hag(edge_index[:, :100], num_nodes)  # loads the kernels
    edges.graph().csc  # noqa: B018  (the search finds the graph sorted)
    hags: dict[str, tuple[Hag, float]] = {}
    for kind, min_saving in KINDS.items():
        start = time.perf_counter()
        hag = find_hag(edge_index, num_nodes, min_saving=min_saving, budget_s=arguments.budget)
        hags[kind] = hag, time.perf_counter() - start
    hags['levels alone'] = find_hag(edge_index, num_nodes, capacity=0), 0.0
    reduce = arguments.reduce

    def plain(x: Tensor) -> Tensor:
        return aggregate(NEIGHBOURS, edges, {'x': x}, 1, arguments.width, reduce).flatten(1)

    runs = {'plain': step(plain, x, grad)}
    for kind, (hag, _) in hags.items():
        runs[kind] = step(lambda x, hag=hag: hag_aggregate(hag, x, reduce), x, grad)
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for repeat in range(arguments.repeats + 2):
        for kind, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat > 1:
                times[kind].append(time.perf_counter() - start)
    rows = []
    for kind, (hag, seconds) in hags.items():
        aggregations, transfers = hag.num_aggregations, hag.data_transfers
        ratios = [
            statistics.median(times[kind]) / statistics.median(times[other]) for other in ('plain', 'levels alone')
        ]
        rows.append(
            [
                *(name, kind, f'{hag.num_aggregation_nodes:,}', str(hag.depth)),
                *(
                    f'{aggregations.after:,} ({aggregations.ratio:.2f}x)',
                    f'{transfers.after:,} ({transfers.ratio:.2f}x)',
                ),
                *(f'{seconds:.1f}' if seconds else '', quartiles(times['plain'], 2), quartiles(times[kind], 2)),
                *(f'{ratios[0]:.2f}', f'{ratios[1]:.2f}', f'{1 / expected_gain(hag):.2f}'),
            ]
        )
    return rows


def search(name: str, edge_index: Tensor, num_nodes: int, arguments: argparse.Namespace) -> list[str]:
    """A row on the search alone."""
    find_hag(edge_index[:, :100], num_nodes)  # loads the kernels
    start = time.perf_counter()
    hag = find_hag(
        edge_index,
        num_nodes,
        capacity=arguments.capacity,
        budget_s=arguments.budget,
        block_size=arguments.block_size,
    )
    seconds, found = time.perf_counter() - start, hag.num_aggregations
    limit = 'none' if arguments.budget is None else f'{arguments.budget:g} s'
    return [
        *(name, limit, f'{arguments.block_size:,}', f'{seconds:.2f}'),
        *(f'{found.before:,} -> {found.after:,} ({found.ratio:.2f}x)', f'{peak_gigabytes():.2f} GB'),
    ]


def peak_gigabytes() -> float:
    """The peak of the process's memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def share(text: str) -> float | None:
    """A number, or none."""
    return None if text == 'none' else float(text)


def sequences(name: str, edge_index: Tensor, num_nodes: int) -> str:
    """What sharing the beginnings of ordered neighbour lists saves."""
    tree = find_prefix_tree(edge_index[:, edge_index[0].argsort(stable=True)], num_nodes)
    found, steps = tree.num_aggregations, tree.num_steps
    return f'{name}: {found.before:,} -> {found.after:,} ({found.ratio:.2f}x), steps {steps.ratio:.2f}x'


HEADER = [
    'graph', 'HAG', 'nodes', 'levels', 'aggregations', 'transfers', 'search s', 'plain ms', 'HAG ms', 'HAG / plain',
    'HAG / levels alone', 'expected',
]  # fmt: skip
SEARCH_HEADER = ['graph', 'limit', 'blocks of', 'whole search s', 'aggregations', 'memory']


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=Path, default=Path('data'), help='where the graphs lie (default: %(default)s)')
    parser.add_argument('--graphs', nargs='+', choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument('--reduce', choices=['sum', 'mean', 'max', 'min'], default='sum', help='default: sum')
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=11)
    parser.add_argument('--budget', type=float, help='seconds for a search (default: no limit)')
    parser.add_argument('--sequences', action='store_true', help='also the tree of common beginnings')
    parser.add_argument('--search', action='store_true', help='the search alone')
    parser.add_argument(
        '--capacity', type=share, default=0.25, help='with --search: aggregation nodes a node, or none (default: 0.25)'
    )
    parser.add_argument('--block-size', type=int, default=2048, help='with --search (default: 2048)')
    arguments = parser.parse_args()
    threads = f'{os.cpu_count()} cores, {torch.get_num_threads()} threads'
    versions = f'torch {torch.__version__}, PyG {torch_geometric.__version__}'
    machine = platform.processor() or platform.machine()
    print(f'{machine}, {threads}; {versions}; {arguments.reduce}, width {arguments.width}')
    header = SEARCH_HEADER if arguments.search else HEADER
    print('| ' + ' | '.join(header) + ' |\n' + '| --- ' * len(header) + '|')
    lines = []
    for name in arguments.graphs:
        edge_index, num_nodes = GRAPHS[name](arguments.data)
        given = (name, edge_index, num_nodes, arguments)
        rows = [search(*given)] if arguments.search else measure(*given)
        for row in rows:
            print('| ' + ' | '.join(row) + ' |', flush=True)
        if arguments.sequences:
            lines.append(sequences(name, edge_index, num_nodes))
    print(*lines, sep='\n')
    print(f'peak memory of the process: {peak_gigabytes():.1f} GB')


if __name__ == '__main__':
    main()
