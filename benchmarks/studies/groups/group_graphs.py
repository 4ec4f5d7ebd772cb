"""The graphs on which group sizes are measured: generated and real ones to fit choosers on, and others to judge them.

R-MAT graphs ("R-MAT: A Recursive Model for Graph Mining", Chakrabarti et al., 2004) and data sets in ``--data DATA``:
what ``execution_paths`` reads there; the raw files that PyTorch Geometric downloads of Planetoid
(``planetoid/NAME/raw``), Amazon (``amazon/NAME/raw``), TU (``tu/NAME/raw``) and Tolokers
(``heterophilous/tolokers/raw``); and ``acm/pap.npz``, papers that share an author as arrays ``row`` and ``col``. Of the
larger ones an execution path is a graph too: the edges into a random tenth of the targets, by source, which is what the
last layer's backward walks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from pygfuse.bench.files import ego_twitter, github, raw_amazon, raw_planetoid, raw_tolokers, raw_tu, web_notredame
from pygfuse.bench.graphs import rmat
from pygfuse.cpu.edges.paths import by_source
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import ExecutionPath

# with fewer edges than this, a path is too small to share out
EDGES_WORTH_A_PATH, PATH_SHARE = 100_000, 0.1


def _rmats(scales: list[int], degrees: list[int], skews: list[float], seed: int) -> dict[str, Callable[[Path], Tensor]]:
    found = {}
    for scale, degree, skew in itertools.product(scales, degrees, skews):
        edges = degree << scale
        if 8_000 <= edges <= 1_200_000:
            name = f'R-MAT 2^{scale} nodes, degree {degree}, skew {skew}'
            found[name] = lambda data, args=(scale, edges, skew, seed): rmat(*args)
    return found


def acm(data: Path) -> Tensor:
    """Papers that share an author."""
    arrays = numpy.load(data / 'acm/pap.npz')
    return torch.stack([torch.from_numpy(arrays[name].astype('int64')) for name in ('row', 'col')])


TO_FIT: dict[str, Callable[[Path], Tensor]] = {
    **_rmats(list(range(10, 18)), [2, 5, 12, 30, 70], [0.25, 0.45, 0.6], seed=0),
    **{name: partial(raw_planetoid, name=name) for name in ('Cora', 'CiteSeer', 'PubMed')},
    **{f'Amazon {name}': partial(raw_amazon, name=name) for name in ('Photo', 'Computers')},
    **{name: partial(raw_tu, name=name) for name in ('MUTAG', 'IMDB-BINARY')},
}
TO_JUDGE: dict[str, Callable[[Path], Tensor]] = {
    **_rmats([11, 13, 15], [3, 20, 50], [0.35, 0.57], seed=1),
    'BZR': partial(raw_tu, name='BZR'),
    'ACM, papers of an author': acm,
    'GitHub': lambda data: to_undirected(github(data)),
    'Tolokers': raw_tolokers,
    'ego-Twitter': lambda data: to_undirected(ego_twitter(data)),
    'web-NotreDame': web_notredame,
}


def rows_of(edge_index: Tensor) -> Iterator[tuple[str, Csr]]:
    """What is walked of a graph, with a suffix for its name: the rows by target; of a large graph, a path too."""
    num_nodes = int(edge_index.max()) + 1
    graph = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes)
    yield '', graph.csr
    if graph.num_edges >= EDGES_WORTH_A_PATH:
        active = torch.rand(num_nodes, generator=torch.Generator().manual_seed(0)) < PATH_SHARE
        path = by_source(ExecutionPath(graph, active.to(torch.uint8)), graph)
        yield ', path', Csr(path.indptr, path.index, path.edge_id)


def graphs(chosen: dict[str, Callable[[Path], Tensor]], data: Path | None) -> Iterator[tuple[str, Csr]]:
    """All graphs and paths by name; without `data`, the generated ones."""
    for name, load in chosen.items():
        if data is not None or name.startswith('R-MAT'):
            for suffix, csr in rows_of(load(data)):
                yield name + suffix, csr
