"""The graphs on which group sizes are measured: generated and real ones to fit choosers on, and others to judge them.

R-MAT graphs ("R-MAT: A Recursive Model for Graph Mining", Chakrabarti et al., 2004) and data sets in ``--data DATA``:
what ``execution_paths.py`` reads there; the raw files that PyTorch Geometric downloads of Planetoid
(``planetoid/NAME/raw``), Amazon (``amazon/NAME/raw``), TU (``tu/NAME/raw``) and Tolokers
(``heterophilous/tolokers/raw``); and ``acm/pap.npz``, papers that share an author as arrays ``row`` and ``col``. Of the
larger ones an execution path is a graph too: the edges into a random tenth of the targets, by source, which is what the
last layer's backward walks.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import torch
from execution_paths import ego_twitter, github, web_notredame
from torch import Tensor
from torch_geometric.utils import to_undirected

from pygfuse.cpu.paths import by_source
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import ExecutionPath

# with fewer edges than this, a path is too small to share out
EDGES_WORTH_A_PATH, PATH_SHARE = 100_000, 0.1


def rmat(scale: int, edges: int, skew: float, seed: int) -> Tensor:
    """Edges of a graph of 2^scale nodes: each bit of an edge's ends falls into the first quarter with chance `skew`."""
    generator = torch.Generator().manual_seed(seed)
    rest = (1 - skew) / 3
    ends = torch.zeros(2, edges, dtype=torch.int64)
    for _ in range(scale):
        quarter = torch.multinomial(torch.tensor([skew, rest, rest, rest]), edges, True, generator=generator)
        ends = 2 * ends + torch.stack([quarter // 2, quarter % 2])
    return ends


def _rmats(scales: list[int], degrees: list[int], skews: list[float], seed: int) -> dict[str, Callable[[Path], Tensor]]:
    found = {}
    for scale, degree, skew in itertools.product(scales, degrees, skews):
        edges = degree << scale
        if 8_000 <= edges <= 1_200_000:
            name = f'R-MAT 2^{scale} nodes, degree {degree}, skew {skew}'
            found[name] = lambda data, args=(scale, edges, skew, seed): rmat(*args)
    return found


def planetoid(name: str) -> Callable[[Path], Tensor]:
    def load(data: Path) -> Tensor:
        with open(data / f'planetoid/{name}/raw/ind.{name.lower()}.graph', 'rb') as file:
            neighbours = pickle.load(file, encoding='latin1')
        return torch.tensor([[node, other] for node, others in neighbours.items() for other in others]).t()

    return load


def amazon(name: str) -> Callable[[Path], Tensor]:
    def load(data: Path) -> Tensor:
        arrays = numpy.load(data / f'amazon/{name}/raw/amazon_electronics_{name.lower()}.npz')
        indptr, indices = (torch.from_numpy(arrays[f'adj_{kind}'].astype('int64')) for kind in ('indptr', 'indices'))
        return to_undirected(torch.stack([torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff()), indices]))

    return load


def tu(name: str) -> Callable[[Path], Tensor]:
    """All graphs of a TU data set as one batch."""

    def load(data: Path) -> Tensor:
        pairs = numpy.loadtxt(data / f'tu/{name}/raw/{name}_A.txt', dtype=numpy.int64, delimiter=',')
        return torch.from_numpy(pairs).t().contiguous() - 1

    return load


def tolokers(data: Path) -> Tensor:
    edges = numpy.load(data / 'heterophilous/tolokers/raw/tolokers.npz')['edges']
    return to_undirected(torch.from_numpy(edges).t())


def acm(data: Path) -> Tensor:
    """Papers that share an author."""
    arrays = numpy.load(data / 'acm/pap.npz')
    return torch.stack([torch.from_numpy(arrays[name].astype('int64')) for name in ('row', 'col')])


TO_FIT: dict[str, Callable[[Path], Tensor]] = {
    **_rmats(list(range(10, 18)), [2, 5, 12, 30, 70], [0.25, 0.45, 0.6], seed=0),
    **{name: planetoid(name) for name in ('Cora', 'CiteSeer', 'PubMed')},
    **{f'Amazon {name}': amazon(name) for name in ('Photo', 'Computers')},
    **{name: tu(name) for name in ('MUTAG', 'IMDB-BINARY')},
}
TO_JUDGE: dict[str, Callable[[Path], Tensor]] = {
    **_rmats([11, 13, 15], [3, 20, 50], [0.35, 0.57], seed=1),
    'BZR': tu('BZR'),
    'ACM, papers of an author': acm,
    'GitHub': lambda data: to_undirected(github(data)[0]),
    'Tolokers': tolokers,
    'ego-Twitter': lambda data: to_undirected(ego_twitter(data)[0]),
    'web-NotreDame': lambda data: web_notredame(data)[0],
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
