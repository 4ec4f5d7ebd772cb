"""HAGs of real graphs: aggregations, transfers, search time, and the time of an aggregation with and without.

The plain and the HAG's aggregation (forward and backward, one operator each) run in one process, in turn. HAGs of
two kinds: with the paper's capacity, a quarter of the nodes, whatever a node saves, and with nodes that save at least
32 aggregations, as `ToHAG` keeps them. "levels alone" is the HAG without aggregation nodes: the same walks over the
plain edges. "expected" is what the cost model says of the ratio to that. The search alone: ``hag_search``.

    python -m pygfuse.bench hag --data DATA --graphs COLLAB IMDB-BINARY

DATA has ``tu/other/COLLAB.npz``, ``tu/NAME/raw``, ``amazon/Computers/raw``, ``heterophilous/tolokers/raw`` and
``snap/ego-twitter-undirected``; hubs and cliques are generated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.files import ego_twitter, raw_amazon, raw_tolokers, raw_tu
from pygfuse.bench.graphs import GraphData
from pygfuse.bench.schema import Row
from pygfuse.bench.timing import Spread, Step
from pygfuse.hag.hag import Hag
from pygfuse.hag.prefix_tree import find_prefix_tree
from pygfuse.hag.search.find import expected_gain
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.transforms import find_hag

KINDS = {'a quarter of the nodes': 1, 'nodes that save 32': 32}
LEVELS_ALONE = 'levels alone'


def collab(data: Path) -> GraphData:
    """All graphs of COLLAB as one."""
    arrays = np.load(data / 'tu/other/COLLAB.npz')
    node_ptr, indptr = arrays['node_ptr'].astype(np.int64), arrays['indptr'].astype(np.int64)
    degree = np.diff(indptr)
    first = np.repeat(node_ptr[:-1], np.diff(node_ptr))
    sources = arrays['indices_local'].astype(np.int64) + np.repeat(first, degree)
    targets = np.repeat(np.arange(len(degree)), degree)
    return torch.from_numpy(np.stack([sources, targets])), len(degree)


def without_loops(pairs: Callable[[Path], Tensor]) -> Callable[[Path], GraphData]:
    """A loader of a graph without its self-loops."""

    def load(data: Path) -> GraphData:
        edge_index = pairs(data)
        return remove_self_loops(edge_index)[0].contiguous(), int(edge_index.max()) + 1

    return load


HUB_DEGREE, SMALL_HUB_DEGREE = 1_000_000, 1000


def hub(data: Path, degree: int = HUB_DEGREE) -> GraphData:
    """A node that a million others are neighbours of, and that is theirs; groups of 20 share 10 neighbours."""
    generator, shapes = torch.Generator().manual_seed(0), ((degree // 100, 20, 1), (degree // 100, 1, 10))
    targets, sources = (torch.randint(degree, shape, generator=generator) for shape in shapes)
    related = torch.stack([sources.expand(-1, 20, -1).flatten(), targets.expand(-1, -1, 10).flatten()])
    return with_hub(related, degree), degree + 1


def random_hub(data: Path) -> GraphData:
    """The same hub, and as many edges at random."""
    related = torch.randint(HUB_DEGREE, (2, 2 * HUB_DEGREE), generator=torch.Generator().manual_seed(0))
    return with_hub(related, HUB_DEGREE), HUB_DEGREE + 1


def with_hub(edge_index: Tensor, degree: int) -> Tensor:
    """Edges, and a node more with an edge to and from each other one."""
    into = torch.stack([torch.arange(degree), torch.full((degree,), degree)])
    return torch.cat([into, into.flip(0), edge_index], dim=1)


def cliques(data: Path, count: int = 200, size: int = 40, nodes: int = 4000) -> GraphData:
    """Random groups of nodes, all of each connected with one another, as those of who works with whom are."""
    members = torch.randint(nodes, (count, size), generator=torch.Generator().manual_seed(0))
    pairs = torch.stack([members.repeat_interleave(size, 1).flatten(), members.repeat(1, size).flatten()])
    return remove_self_loops(coalesce(pairs, num_nodes=nodes))[0].contiguous(), nodes


GRAPHS: dict[str, Callable[[Path], GraphData]] = {
    'COLLAB': collab,
    'IMDB-BINARY': without_loops(partial(raw_tu, name='IMDB-BINARY')),
    'BZR': without_loops(partial(raw_tu, name='BZR')),
    'Computers': without_loops(partial(raw_amazon, name='Computers')),
    'Tolokers': without_loops(raw_tolokers),
    'ego-Twitter': without_loops(lambda data: to_undirected(ego_twitter(data))),
    'hub': hub,
    'random hub': random_hub,
    'small hub': partial(hub, degree=SMALL_HUB_DEGREE),
    'cliques': cliques,
}
LARGE = [name for name in GRAPHS if name not in ('small hub', 'cliques')]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which graphs, and a limit of the search."""
    parser.add_argument('--data', type=Path, default=Path('data'), help='where the graphs lie (default: %(default)s)')
    parser.add_argument('--graphs', nargs='+', choices=GRAPHS, default=LARGE)
    parser.add_argument('--budget', type=float, help='seconds for a search (default: no limit)')


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=11)
    add_options(parser)
    parser.add_argument('--reduce', choices=['sum', 'mean', 'max', 'min'], default='sum', help='default: sum')
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--sequences', action='store_true', help='also print the tree of common beginnings')


def searched(options: Options, edge_index: Tensor, num_nodes: int) -> dict[str, tuple[Hag, float | None]]:
    """By kind a HAG, and the seconds of its search."""
    find_hag(edge_index[:, :100], num_nodes)  # loads the kernels
    found: dict[str, tuple[Hag, float | None]] = {}
    for kind, min_saving in KINDS.items():
        start = time.perf_counter()
        hag = find_hag(edge_index, num_nodes, min_saving=min_saving, budget_s=options.budget)
        found[kind] = hag, time.perf_counter() - start
    return {**found, LEVELS_ALONE: (find_hag(edge_index, num_nodes, capacity=0), None)}


def sequences(name: str, edge_index: Tensor, num_nodes: int) -> str:
    """What sharing the beginnings of ordered neighbour lists saves."""
    tree = find_prefix_tree(edge_index[:, edge_index[0].argsort(stable=True)], num_nodes)
    found, steps = tree.num_aggregations, tree.num_steps
    return f'{name}: {found.before:,} -> {found.after:,} ({found.ratio:.2f}x), steps {steps.ratio:.2f}x'


@benchmark(
    'hag',
    parameters=lambda options: [{'graph': name} for name in options.graphs],
    arguments=arguments,
    settings=lambda options: {'reduce': options.reduce, 'width': options.width},
    quick={'graphs': ['small hub']},
)
def hag(options: Options, graph: str) -> Measurement:
    """One graph: a row for each kind of HAG."""
    edge_index, num_nodes = GRAPHS[graph](options.data)
    x = torch.randn(num_nodes, options.width, requires_grad=True)
    grad = torch.randn(num_nodes, options.width)
    edges = Edges(edge_index, num_nodes, num_nodes)
    edges.graph().csc  # noqa: B018  (the search finds the graph sorted)
    hags = searched(options, edge_index, num_nodes)

    def step(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x), x, grad)

    def plain(x: Tensor) -> Tensor:
        return aggregate(NEIGHBOURS, edges, {'x': x}, 1, options.width, options.reduce).flatten(1)

    steps = [Step('plain', step(plain), warmup=2)]
    for kind, (found, _) in hags.items():
        steps.append(Step(kind, step(lambda x, found=found: hag_aggregate(found, x, options.reduce)), warmup=2))
    samples = yield steps
    if options.sequences:
        print(sequences(graph, edge_index, num_nodes))
    times = {side: Spread.of(seconds) for side, seconds in samples.items()}
    rows = []
    for kind, (found, seconds) in hags.items():
        below = {'plain': times['plain'], LEVELS_ALONE: times[LEVELS_ALONE]}
        rows.append(
            Row(
                {'graph': graph, 'kind': kind},
                {'plain': times['plain'], 'HAG': times[kind]},
                {f'HAG / {side}': times[kind].median / spread.median for side, spread in below.items()},
                {**counts(found), 'search s': seconds},
            )
        )
    return rows


def counts(hag: Hag) -> dict[str, float]:
    """What a HAG saves."""
    aggregations, transfers = hag.num_aggregations, hag.data_transfers
    return {
        'nodes': hag.num_aggregation_nodes,
        'levels': hag.depth,
        'aggregations': aggregations.after,
        'aggregations saved': aggregations.ratio,
        'transfers': transfers.after,
        'transfers saved': transfers.ratio,
        'expected': 1 / expected_gain(hag),
    }
