"""What is an adjacency, and what is none."""

import pytest
import torch
from torch_geometric import EdgeIndex

from pygfuse.graph.adjacency import values_of
from pygfuse.graph.graph import Graph
from tests.support.adjacencies import FLOWS, LAYOUTS, make

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.mark.parametrize(
    ('adjacency', 'message'),
    [
        (torch.zeros(2, 3), 'type int64, int32, .*got torch.float32'),
        (torch.zeros(2, 3, dtype=torch.bool), 'type int64, int32, .*got torch.bool'),
        (torch.zeros(2, 3, dtype=torch.uint16), 'type int64, int32, .*got torch.uint16'),
        (torch.zeros(3, 2, dtype=torch.int64), r'shape \[2, num_edges\] \(got \[3, 2\]\)'),
        (torch.zeros(2, dtype=torch.int64), r'shape \[2, num_edges\] \(got \[2\]\)'),
        (torch.zeros(2, 2, 2, dtype=torch.int64), r'got \[2, 2, 2\]'),
        (torch.zeros(2, 3, dtype=torch.int64, device='meta'), r"on the CPU.*'meta'"),
        ([[0], [1]], 'got list'),
        (None, 'got NoneType'),
    ],
)
def test_what_is_no_adjacency(adjacency, message):
    with pytest.raises(ValueError, match=message):
        Graph.of(adjacency)


@pytest.mark.parametrize('layout', LAYOUTS[4:])
def test_sparse_adjacencies_have_one_direction(layout):
    case = (torch.tensor([0]), torch.tensor([1]), 2, 2)
    with pytest.raises(ValueError, match='target_to_source'):
        Graph.of(make(layout, case)[0], flow=FLOWS[1])


def test_values():
    assert values_of(torch.zeros(2, 3, dtype=torch.int64)) is None
    values = torch.rand(3, 4, requires_grad=True)
    repeated = torch.tensor([[1, 0, 1], [0, 1, 0]])
    for leaf in (values.detach(), values):
        assert torch.equal(values_of(torch.sparse_coo_tensor(repeated, leaf, (2, 2, 4))), values)
    found = values_of(torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [0, 0, 1]]), values, (2, 2, 4)).coalesce())
    assert torch.equal(found, values)
    found.sum().backward()
    assert values.grad.tolist() == torch.ones(3, 4).tolist()
    csr = torch.eye(3).to_sparse_csr()
    assert values_of(csr).tolist() == [1, 1, 1]
    assert values_of(EdgeIndex([[0, 1], [1, 0]])) is None


def test_dense_dimensions_are_no_nodes():
    adjacency = torch.sparse_coo_tensor(torch.tensor([[1, 0], [0, 1]]), torch.ones(2, 7), (2, 3, 7))
    graph = Graph.of(adjacency)
    assert (graph.num_targets, graph.num_sources) == (2, 3)
    assert graph.csr.index.tolist() == [1, 0]
