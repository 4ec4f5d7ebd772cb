"""Graphs in every layout of an adjacency."""

import pytest
import torch
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_edge_index

LAYOUTS = [
    'edge_index',
    'int32',
    'columns of a table',
    'EdgeIndex',
    'coo',
    'uncoalesced',
    'csr',
    'csc',
    pytest.param(
        'SparseTensor',
        marks=pytest.mark.skipif(not WITH_TORCH_SPARSE, reason='torch_sparse is not installed'),
    ),
]
SPARSE = ('coo', 'uncoalesced', 'csr', 'csc', 'SparseTensor')
FLOWS = ('source_to_target', 'target_to_source')


@st.composite
def graphs(draw):
    """Sources, targets, and the number of each: bipartite or not, with repeats, loops, hubs and isolated nodes."""
    num_targets = draw(st.integers(1, 9))
    num_sources = num_targets if draw(st.booleans()) else draw(st.integers(1, 9))
    count = draw(st.integers(0, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sources = torch.randint(0, num_sources, (count,), generator=generator)
    targets = torch.randint(0, num_targets, (count,), generator=generator)
    if draw(st.booleans()):
        targets[: count // 2] = num_targets - 1
    if draw(st.booleans()):
        order = targets.sort(stable=True).indices
        sources, targets = sources[order], targets[order]
    return sources, targets, num_sources, num_targets


def make(layout, case, flow=FLOWS[0]):
    """The adjacency in one layout, and its (targets, sources) in the order in which PyG sees its edges."""
    sources, targets, num_sources, num_targets = case
    size = (num_targets, num_sources)
    if layout not in SPARSE:
        first, second = (sources, targets) if flow == FLOWS[0] else (targets, sources)
        edge_index = torch.stack((first, second))
        if layout == 'int32':
            edge_index = edge_index.int()
        elif layout == 'columns of a table':
            edge_index = edge_index.t().contiguous().t()
        elif layout == 'EdgeIndex':
            rows = (num_sources, num_targets) if flow == FLOWS[0] else (num_targets, num_sources)
            edge_index = EdgeIndex(edge_index, sparse_size=rows)
        return edge_index, targets, sources
    if layout == 'SparseTensor':
        adjacency = SparseTensor(row=targets, col=sources, sparse_sizes=size)
    else:
        adjacency = torch.sparse_coo_tensor(torch.stack((targets, sources)), torch.ones(len(targets)), size)
        if layout == 'uncoalesced':
            return adjacency, targets, sources
        adjacency = adjacency.coalesce()
        if layout in ('csr', 'csc'):
            adjacency = getattr(adjacency, f'to_sparse_{layout}')()
    rows, columns = to_edge_index(adjacency)[0]
    return adjacency, rows, columns
