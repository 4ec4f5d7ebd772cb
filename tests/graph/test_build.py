"""Edges that name nodes which do not exist."""

import pytest
import torch

from pygfuse.graph.graph import Graph
from tests.support.adjacencies import FLOWS

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.mark.parametrize('flow', FLOWS)
@pytest.mark.parametrize(
    ('row', 'position', 'node', 'size'),
    [(0, 2, 7, 5), (1, 1, -1, 4), (0, 0, 2**40, 5), (1, 3, 4, 4)],
)
def test_a_node_that_does_not_exist(flow, row, position, node, size):
    edge_index = torch.zeros(2, 4, dtype=torch.int64)
    edge_index[row, position] = node
    edge_index[row, 3] = node
    kind = 'source' if (row == 0) == (flow == FLOWS[0]) else 'target'
    message = (
        rf'edge_index\[{row}\] holds node {node} at position {position}, '
        rf'but there are only {size} {kind} nodes \(indices 0 to {size - 1}\)'
    )
    sizes = (5, 4) if flow == FLOWS[0] else (4, 5)
    graph = Graph.of(edge_index, sizes, flow)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            graph.csr  # noqa: B018
        with pytest.raises(ValueError, match=message):
            graph.with_self_loops().csc  # noqa: B018


def bad_csr(pointer, columns, size):
    return torch.sparse_csr_tensor(
        torch.tensor(pointer), torch.tensor(columns), torch.ones(len(columns)), size, check_invariants=False
    )


@pytest.mark.parametrize(
    ('pointer', 'columns', 'message'),
    [
        ([0, 1, 2], [0, 3], 'column 3 at edge 1, but there are only 3 source nodes'),
        ([0, 1, 2], [-1, 0], 'column -1 at edge 0'),
        ([0, 3, 2], [0, 1], 'rise from 0'),
        ([1, 1, 2], [0, 1], 'rise from 0'),
        ([0, 1, 5], [0, 1], 'rise from 0'),
        ([0, -4, 2], [0, 1], 'rise from 0'),
    ],
)
def test_bad_compressed_rows(pointer, columns, message):
    for loops in (False, True):
        graph = Graph.of(bad_csr(pointer, columns, (2, 3)))
        with pytest.raises(ValueError, match=message):
            (graph.with_self_loops() if loops else graph).csr  # noqa: B018


def test_a_bad_sparse_coo():
    bad = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 0]]), torch.ones(2), (2, 2), check_invariants=False)
    for graph in (Graph.of(bad), Graph.of(bad).with_self_loops()):
        with pytest.raises(ValueError, match='row 2 at edge 1, but there are only 2 target nodes'):
            graph.csr  # noqa: B018
