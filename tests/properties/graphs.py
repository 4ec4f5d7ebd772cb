"""Small graphs of every shape, and the layouts of their adjacencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from tests.support.parity import ADJACENCIES, Example

NODES, EDGES, HUB = 12, 40, 150


def _random(sources: int, targets: int, edges: int, generator: Generator) -> Example:
    rows = [torch.randint(max(size, 1), (edges,), generator=generator) for size in (sources, targets)]
    return Example(torch.stack(rows), sources, targets)


def _square(generator: Generator, edges: int = EDGES) -> Example:
    return _random(NODES, NODES, edges, generator)


def _with(example: Example, *more: Tensor) -> Example:
    return Example(torch.cat([example.edge_index, *more], dim=1), example.num_sources, example.num_targets)


def _sorted(example: Example, row: int) -> Example:
    order = example.edge_index[row].sort(stable=True).indices
    return Example(example.edge_index[:, order], example.num_sources, example.num_targets)


def _hub(row: int) -> Callable[[Generator], Example]:
    """One node at the end of many edges, beside others."""

    def make(generator: Generator) -> Example:
        edges = torch.randint(NODES, (2, HUB), generator=generator)
        edges[row] = 3
        return _with(_square(generator), edges)

    return make


def _isolated(generator: Generator) -> Example:
    return Example(3 * _random(5, 5, EDGES, generator).edge_index, 16, 16)


def _without_loops(generator: Generator) -> Example:
    example = _square(generator)
    keep = example.edge_index[0] != example.edge_index[1]
    return Example(example.edge_index[:, keep], NODES, NODES)


def _simple(generator: Generator) -> Example:
    """Neither loops nor repeats, sorted by target."""
    pairs = torch.randperm(NODES * NODES, generator=generator)[:EDGES].sort().values
    pairs = pairs[pairs % NODES != pairs // NODES]
    return Example(torch.stack([pairs % NODES, pairs // NODES]), NODES, NODES)


def _shared(generator: Generator) -> Example:
    """Targets whose neighbour lists have much in common."""
    sources = torch.tensor([0, 1, 2, 3, 4]).repeat(5)
    targets = torch.arange(6, 11).repeat_interleave(5)
    return _with(Example(torch.stack([sources, targets]), NODES, NODES), _square(generator, 6).edge_index)


GRAPHS: dict[str, Callable[[Generator], Example]] = {
    'random': _square,
    'no loops': _without_loops,
    'simple': _simple,
    'loops': lambda generator: _with(_square(generator), torch.arange(NODES).expand(2, NODES)),
    'repeats': lambda generator: _random(3, 3, EDGES, generator),
    'isolated nodes': _isolated,
    'hub of targets': _hub(1),
    'hub of sources': _hub(0),
    'shared neighbours': _shared,
    'more sources': lambda generator: _random(15, 7, EDGES, generator),
    'more targets': lambda generator: _random(6, 14, EDGES, generator),
    'sorted by target': lambda generator: _sorted(_square(generator), 1),
    'sorted by source': lambda generator: _sorted(_square(generator), 0),
    'path': lambda generator: Example(torch.stack([torch.arange(9), torch.arange(1, 10)]), 10, 10),
    'no edges': lambda generator: _random(7, 7, 0, generator),
    'one edge': lambda generator: _random(4, 4, 1, generator),
    'one node': lambda generator: _random(1, 1, 0, generator),
    'one node, loops': lambda generator: _random(1, 1, 3, generator),
    'no nodes': lambda generator: _random(0, 0, 0, generator),
}
BIPARTITE = ('more sources', 'more targets')


def _sliced(example: Example) -> Tensor:
    edges = torch.zeros(3, example.num_edges + 5, dtype=torch.int64)
    edges[1:, 2 : example.num_edges + 2] = example.edge_index
    return edges[1:, 2 : example.num_edges + 2]


def _weights(count: int) -> Tensor:
    return 0.5 + torch.arange(count) % 7 / 5


def _uncoalesced(example: Example) -> Tensor:
    size = (example.num_targets, example.num_sources)
    return torch.sparse_coo_tensor(example.edge_index.flip(0), torch.ones(example.num_edges), size)


def _weighted_csr(example: Example) -> Tensor:
    plain = ADJACENCIES['CSR'](example)
    parts = plain.crow_indices(), plain.col_indices(), _weights(plain.values().numel())
    return torch.sparse_csr_tensor(*parts, plain.shape)


def _weighted_sparse_tensor(example: Example) -> SparseTensor:
    plain = ADJACENCIES['SparseTensor'](example)
    return plain.set_value(_weights(plain.nnz()), layout='coo')


FORMATS: dict[str, Callable[[Example], Any]] = {
    **ADJACENCIES,
    'edge_index': lambda example: example.edge_index.clone(),
    'sliced': _sliced,
    'sparse COO, repeats': _uncoalesced,
    'CSR, weights': _weighted_csr,
    'SparseTensor, weights': _weighted_sparse_tensor,
}
PLAIN = ('edge_index', 'int32', 'not contiguous', 'sliced')
INDICES = (*PLAIN, 'EdgeIndex', 'EdgeIndex by row', 'EdgeIndex by column')
SPARSE = tuple(name for name in FORMATS if name not in INDICES)


def edges_of(adjacency: Any) -> int:
    """How many edges an adjacency has."""
    if isinstance(adjacency, SparseTensor):
        return adjacency.nnz()
    if isinstance(adjacency, EdgeIndex) or adjacency.layout is torch.strided:
        return adjacency.shape[1]
    return adjacency.values().numel() if adjacency.layout is not torch.sparse_coo else adjacency._nnz()
