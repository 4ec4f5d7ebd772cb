"""Bad input raises an error that names the argument."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import EdgeIndex

from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, EDGE_DIM, FEATURES

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def raises(name: str, x, edge_index, edge_attr=None, **arguments) -> None:
    options = arguments.pop('options', {})
    conv = GATConv(**{**BASE, **options})
    with pytest.raises(ValueError, match=name):
        conv(x, edge_index, edge_attr, **arguments)


X = torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(0))
EDGES = torch.tensor([[0, 1, 2], [1, 2, 4]])


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('row', [0, 1])
@pytest.mark.parametrize('node', [5, -1, 10**6, -(10**9), 2**40])
@pytest.mark.parametrize('adjacency', ['edge_index', 'EdgeIndex', 'int32'])
def test_an_index_out_of_range(adjacency, node, row, loops):
    edge_index = EDGES.clone()
    edge_index[row, 1] = node
    if adjacency == 'int32':
        if node > 2**31:
            pytest.skip('does not fit')
        edge_index = edge_index.int()
    elif adjacency == 'EdgeIndex':
        edge_index = EdgeIndex(edge_index)
    raises(rf'edge_index\[{row}\] holds node {node}', X, edge_index, options={'add_self_loops': loops})


@pytest.mark.parametrize('layout', ['coo', 'csr'])
@pytest.mark.parametrize('loops', [True, False])
def test_a_sparse_adjacency_out_of_range(layout, loops):
    size = (5, 5)
    with torch.sparse.check_sparse_tensor_invariants(False):
        if layout == 'coo':
            index, values = torch.tensor([[0, 1], [1, 7]]), torch.ones(2)
            adjacency = torch.sparse_coo_tensor(index, values, size, is_coalesced=True)
        else:
            pointer = torch.tensor([0, 1, 2, 2, 2, 2])
            adjacency = torch.sparse_csr_tensor(pointer, torch.tensor([1, 7]), torch.ones(2), size)
    raises('edge_index', X, adjacency, options={'add_self_loops': loops})


@pytest.mark.parametrize('pointer', [[0, 1, 2, 2, 2, 9], [0, 3, 1, 2, 2, 2], [1, 1, 2, 2, 2, 2]])
def test_a_row_pointer_that_is_none(pointer):
    with torch.sparse.check_sparse_tensor_invariants(False):
        adjacency = torch.sparse_csr_tensor(torch.tensor(pointer), torch.tensor([1, 2]), torch.ones(2), (5, 5))
    raises('edge_index', X, adjacency)


@pytest.mark.parametrize(
    'edge_index',
    [
        EDGES.float(),
        EDGES.to(torch.uint16),
        EDGES.bool(),
        EDGES[0],
        EDGES.t().contiguous(),
        EDGES.unsqueeze(0),
        torch.empty(3, 0, dtype=torch.int64),
        *(EDGES.tolist(), None, 'edges'),
    ],
    ids=lambda value: f'{value.dtype} {list(value.shape)}' if isinstance(value, torch.Tensor) else str(value)[:6],
)
def test_what_is_no_adjacency(edge_index):
    raises('edge_index', X, edge_index)


@pytest.mark.parametrize(
    'x', [X[:, :-1], torch.cat([X, X], dim=1), X[0], X.unsqueeze(0)], ids=lambda x: str(list(x.shape))
)
def test_features_of_a_wrong_shape(x):
    raises("'x'", x, EDGES)
    raises(r"'x\[0\]'", (x, X), EDGES)
    raises(r"'x\[1\]'", (X, x), EDGES)


def test_size_that_contradicts_the_features():
    raises('size', X, EDGES, size=(6, 6))
    raises('size', (X, X), EDGES, size=(5, 4))
    raises('size', (X, None), EDGES, size=(4, 5))


def test_an_edge_index_with_sizes_that_contradict_the_features():
    raises('edge_index', X, EdgeIndex(EDGES, sparse_size=(6, 6)))
    raises('edge_index', X, torch.eye(6).to_sparse())


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize(
    'shape', [(2, EDGE_DIM), (4, EDGE_DIM), (3, EDGE_DIM + 1), (3,), (3, 1, EDGE_DIM), (0, EDGE_DIM)]
)
def test_edge_features_of_a_wrong_shape(shape, loops):
    raises("'edge_attr'", X, EDGES, torch.randn(shape), options={'edge_dim': EDGE_DIM, 'add_self_loops': loops})


@pytest.mark.parametrize('part', ['edge_index', 'edge_attr', 'x'])
def test_tensors_on_different_devices(part):
    arguments = {'x': X, 'edge_index': EDGES, 'edge_attr': torch.randn(3, EDGE_DIM)}
    arguments[part] = arguments[part].to('meta')
    raises(part, **arguments, options={'edge_dim': EDGE_DIM})


def test_bad_input_after_good_input_raises_too():
    conv = GATConv(**BASE)
    edge_index = EDGES.clone()
    conv(X, edge_index)
    edge_index[1, 0] = 5
    with pytest.raises(ValueError, match='holds node 5'):
        conv(X, edge_index)
    with pytest.raises(ValueError, match='holds node 4'):
        conv(X[:4], EDGES)
