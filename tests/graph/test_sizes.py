"""How many nodes a graph has."""

import pytest
import torch
from torch_geometric import EdgeIndex

from pygfuse.graph.graph import Graph
from tests.support.adjacencies import FLOWS

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def test_sizes_nobody_gives_follow_from_the_largest_node():
    edge_index = torch.tensor([[0, 6], [1, 2]])
    assert (Graph.of(edge_index).num_sources, Graph.of(edge_index).num_targets) == (7, 7)
    assert Graph.of(edge_index, num_sources=9).num_targets == 3
    assert Graph.of(edge_index, num_targets=9, flow=FLOWS[1]).num_sources == 3
    assert Graph.of(torch.zeros(2, 0, dtype=torch.int64)).num_sources == 0
    assert Graph.of(edge_index, (8, None), num_targets=4).num_targets == 4


def test_sizes_that_contradict_each_other():
    edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="'num_sources' and 'size' to agree"):
        Graph.of(edge_index, (3, 3), num_sources=4)
    with pytest.raises(ValueError, match=r"'num_targets'.*size of 'edge_index'.*got 3 and 2"):
        Graph.of(EdgeIndex(edge_index, sparse_size=(2, 2)), num_targets=3)
    with pytest.raises(ValueError, match='pair'):
        Graph.of(edge_index, (3, 3, 3))
    with pytest.raises(ValueError, match='negative'):
        Graph.of(edge_index, num_sources=-1)
    with pytest.raises(ValueError, match="'flow'"):
        Graph.of(edge_index, flow='sideways')
