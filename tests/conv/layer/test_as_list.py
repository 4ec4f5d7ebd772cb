"""Few edges of a sparse matrix and of an ``EdgeIndex`` are taken as the list of their edges."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import pygfuse
from pygfuse.conv._compiled import prepared_edges as _prepared_edges
from pygfuse.conv._layer import as_list as _as_list
from pygfuse.graph.attached import ATTACHED
from tests.support.parity import ADJACENCIES, GRAPHS, SPARSE, assert_close, results

pytestmark = [
    pytest.mark.usefixtures('listed'),
    pytest.mark.filterwarnings('ignore:Sparse', 'ignore:The usage of', 'ignore:Converting sparse tensor'),
]
LAYERS = {
    'GCN': lambda: pyg.GCNConv(8, 4),
    'GCN, no loops': lambda: pyg.GCNConv(8, 4, add_self_loops=False),
    'GCN, improved': lambda: pyg.GCNConv(8, 4, improved=True),
    'SAGE': lambda: pyg.SAGEConv(8, 4),
    'SAGE, sum': lambda: pyg.SAGEConv(8, 4, aggr='sum'),
    'GIN': lambda: pyg.GINConv(torch.nn.Linear(8, 4)),
    'Graph': lambda: pyg.GraphConv(8, 4),
    'GAT': lambda: pyg.GATConv(8, 4, heads=2),
    'GATv2, no loops': lambda: pyg.GATv2Conv(8, 4, add_self_loops=False),
    'Transformer': lambda: pyg.TransformerConv(8, 4),
    'APPNP': lambda: pyg.APPNP(3, 0.1),
    'ARMA': lambda: pyg.ARMAConv(8, 4),
    'ClusterGCN': lambda: pyg.ClusterGCNConv(8, 4),
    'GatedGraph': lambda: pyg.GatedGraphConv(8, 2),
    'LE': lambda: pyg.LEConv(8, 4),
    'LG': lambda: pyg.LGConv(),
    'MF': lambda: pyg.MFConv(8, 4, max_degree=5),
    'MixHop': lambda: pyg.MixHopConv(8, 4),
    'SG': lambda: pyg.SGConv(8, 4, K=2),
    'SSG': lambda: pyg.SSGConv(8, 4, 0.1, K=2),
    'Simple': lambda: pyg.SimpleConv(aggr='mean'),
    'Simple, loops': lambda: pyg.SimpleConv(combine_root='self_loop'),
    'Simple, mean of loops': lambda: pyg.SimpleConv('mean', combine_root='self_loop'),
    'TAG': lambda: pyg.TAGConv(8, 4),
}
FORMATS = [name for name in ADJACENCIES if name.startswith('EdgeIndex') or name in SPARSE]


def made(name: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    plain = LAYERS[name]()
    return plain, pygfuse.fuse(copy.deepcopy(plain))


def is_listed(adjacency) -> bool:
    return ATTACHED.get(adjacency, ('as a list',)) is not None


@pytest.mark.parametrize('graph', ['random', 'complete', 'self-loops', 'repeated edges', 'isolated nodes'])
@pytest.mark.parametrize('kind', FORMATS)
@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(name, kind, graph, needs_torch_sparse):
    example = GRAPHS[graph]()
    plain, conv = made(name)
    given = {'x': example.x(8), 'edge_index': ADJACENCIES[kind](example)}
    try:
        narrow = results(plain, given, torch.float32, 0)
    except (ValueError, NotImplementedError, RuntimeError):
        assert kind in ('COO', 'CSR', 'CSC')
        pytest.skip('PyG takes no such matrix')
    for _ in range(2):
        conv.zero_grad()
        assert_close(results(conv, given, torch.float32, 0), narrow)
    # others have edges twice, whose values are no ones
    is_taken = kind not in ('COO', 'CSR', 'CSC') or graph == 'complete'
    assert is_listed(given['edge_index']) or not is_taken or name == 'GCN, improved'


def test_what_is_kept_goes_once_an_edge_index_is_written_to():
    example = GRAPHS['random']()
    plain, conv = made('GCN')
    edge_index, x = ADJACENCIES['EdgeIndex'](example), example.x(8)
    conv(x, edge_index)
    with torch.no_grad():
        edge_index[1, :50] = 3
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index.as_tensor()))


@pytest.mark.parametrize('name', ['SAGE', 'SG', 'GCN'])
def test_values_that_are_written_to_are_no_longer_ones(name):
    example = GRAPHS['complete']()
    plain, conv = made(name)
    matrix, x = ADJACENCIES['CSR'](example), example.x(8)
    conv(x, matrix)
    assert is_listed(matrix)
    matrix.values().mul_(torch.rand(matrix.values().shape) + 0.5)
    torch.testing.assert_close(conv(x, matrix), plain(x, matrix))


@pytest.mark.parametrize('kind', ['CSR', 'SparseTensor'])
def test_a_matrix_for_other_numbers_of_nodes_is_refused_as_before(kind, needs_torch_sparse):
    example = GRAPHS['random']()
    _, conv = made('SAGE')
    matrix = ADJACENCIES[kind](example)
    with pytest.raises(ValueError, match='61'):
        conv(torch.randn(61, 8), matrix)
    assert not is_listed(matrix)


@pytest.mark.parametrize('pointer', [[0, 1, 2, 2, 9], [0, 3, 1, 2, 2], [1, 1, 2, 2, 2]])
def test_a_row_pointer_that_is_none_is_refused(pointer):
    _, conv = made('SAGE')
    with torch.sparse.check_sparse_tensor_invariants(False):
        matrix = torch.sparse_csr_tensor(torch.tensor(pointer), torch.tensor([1, 2]), torch.ones(2), (4, 4))
    with pytest.raises(ValueError, match="row pointer of the sparse adjacency 'edge_index'"):
        conv(torch.randn(4, 8), matrix)


def test_a_column_that_there_is_not_is_refused():
    _, conv = made('SAGE')
    with torch.sparse.check_sparse_tensor_invariants(False):
        matrix = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([1, 7]), torch.ones(2), (2, 2))
    with pytest.raises(ValueError, match='edge_index'):
        conv(torch.randn(2, 8), matrix)


def test_rows_of_two_sets_of_nodes(needs_torch_sparse):
    example = GRAPHS['bipartite, more sources']()
    plain, conv = made('SAGE')
    given = {'x': example.x(8), 'edge_index': ADJACENCIES['SparseTensor'](example)}
    assert_close(results(conv, given, torch.float32, 0), results(plain, given, torch.float32, 0))
    assert is_listed(given['edge_index'])


NOT_LISTED = {
    'an extreme': (lambda: pyg.SAGEConv(8, 4, aggr='max'), {}),
    'what is kept by the layer': (lambda: pyg.GCNConv(8, 4, cached=True), {}),
    'numbers beside it': (lambda: pyg.GCNConv(8, 4), {'edge_weight': torch.rand(400)}),
    'weights that are asked for': (lambda: pyg.GATConv(8, 4), {'return_attention_weights': True}),
    'loops that weigh more': (lambda: pyg.GCNConv(8, 4, improved=True), {}),
    'features of three dimensions': (lambda: pyg.SAGEConv(8, 4), {'x': torch.randn(2, 60, 8)}),
}


@pytest.mark.parametrize('why', NOT_LISTED)
def test_what_is_not_taken_so(why, needs_torch_sparse):
    make, given = NOT_LISTED[why]
    example = GRAPHS['random']()
    plain = make()
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = {'x': example.x(8), 'edge_index': ADJACENCIES['SparseTensor'](example), **given}
    found, expected = conv(**given), plain(**given)
    torch.testing.assert_close(*(out[0] if isinstance(out, tuple) else out for out in (found, expected)))
    assert not is_listed(given['edge_index'])


def test_loops_of_a_matrix_are_added_to():
    plain, conv = made('GCN')
    edges = torch.tensor([[0, 1, 2, 2], [0, 2, 0, 1]])
    matrix = torch.sparse_coo_tensor(edges, torch.ones(4), (3, 3)).coalesce().to_sparse_csr()
    x = torch.randn(3, 8)
    torch.testing.assert_close(conv(x, matrix), plain(x, matrix))


def test_norms_of_a_matrix_depend_on_options(monkeypatch, needs_torch_sparse):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_LISTED', 0)
    example = GRAPHS['random']()
    matrix = ADJACENCIES['SparseTensor'](example)
    for name in ('GCN', 'GCN, no loops', 'GCN, improved', 'GCN'):
        plain, conv = made(name)
        torch.testing.assert_close(conv(example.x(8), matrix), plain(example.x(8), matrix))


def test_values_are_weights_where_a_layer_takes_them(needs_torch_sparse):
    example = GRAPHS['random']()
    matrix = ADJACENCIES['SparseTensor'](example)
    matrix = matrix.set_value(torch.rand(matrix.nnz()), layout='coo')
    for name, takes in (('Graph', True), ('GCN', True), ('SAGE', False), ('GIN', False)):
        plain, conv = made(name)
        one = matrix.set_value(matrix.storage.value(), layout='coo')
        torch.testing.assert_close(conv(example.x(8), one), plain(example.x(8), one))
        assert is_listed(one) != takes


@pytest.mark.parametrize('name', ['APPNP', 'ARMA', 'LG', 'SG', 'TAG'])
@pytest.mark.parametrize('weights', [False, True], ids=['no weights', 'weights'])
def test_layers_are_compiled_as_before(name, weights):
    example = GRAPHS['random']()
    plain, conv = made(name)
    given = {'edge_weight': example.edge_attr().abs()} if weights else {}
    found = torch.compile(conv, backend='eager')(example.x(8), example.edge_index, **given)
    torch.testing.assert_close(found, plain(example.x(8), example.edge_index, **given))


def test_an_explainer_reads_messages_of_the_matrix(needs_torch_sparse):
    example = GRAPHS['random']()
    plain, conv = made('SG')
    matrix = ADJACENCIES['SparseTensor'](example)
    called = []
    conv.register_message_and_aggregate_forward_hook(lambda *given: called.append(given))
    torch.testing.assert_close(conv(example.x(8), matrix), plain(example.x(8), matrix))
    assert called
    assert not is_listed(matrix)


def test_a_method_that_is_replaced_is_called_with_the_matrix(needs_torch_sparse):
    example = GRAPHS['random']()
    _, conv = made('Simple')
    matrix = ADJACENCIES['SparseTensor'](example)
    conv.message_and_aggregate = lambda edge_index, x: torch.ones(60, 8)
    assert (conv(example.x(8), matrix) == 1).all()


def test_users_classes_over_ours_are_called_with_the_matrix(needs_torch_sparse):
    class Own(pyg.SimpleConv):
        def forward(self, x, edge_index):
            assert not isinstance(edge_index, torch.Tensor)
            return super().forward(x, edge_index)

    example = GRAPHS['random']()
    matrix = ADJACENCIES['SparseTensor'](example)
    torch.testing.assert_close(pygfuse.compile(Own())(example.x(8), matrix), Own()(example.x(8), matrix))


@pytest.mark.parametrize('kind', ['CSR', 'SparseTensor', 'EdgeIndex'])
def test_one_thread_in_the_middle_of_a_block(kind, needs_torch_sparse):
    example = GRAPHS['random']()
    plain, conv = made('SAGE')
    adjacency, x = ADJACENCIES[kind](example), example.x(8)
    with pygfuse.execution_paths(False):
        torch.testing.assert_close(conv(x, adjacency), plain(x, adjacency))
    assert not is_listed(adjacency)
    with torch.autocast('cpu', torch.bfloat16):
        assert conv(x, adjacency).dtype is plain(x, adjacency).dtype
    assert not is_listed(adjacency)


def test_the_list_of_an_edge_index_is_its_own_memory():
    edge_index = EdgeIndex(torch.tensor([[0, 1], [1, 0]]))
    found = _as_list._list_of(edge_index)
    assert type(found) is torch.Tensor
    assert found.data_ptr() == edge_index.as_tensor().data_ptr()


@pytest.mark.parametrize('name', ['GCN', 'SG', 'TAG'])
def test_norms_of_a_matrix_are_kept_with_it(name, monkeypatch, needs_torch_sparse):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_LISTED', 0)
    computed = []
    monkeypatch.setattr(_prepared_edges, 'gcn_norm', lambda *a, **k: computed.append(a) or gcn_norm(*a, **k))
    example = GRAPHS['self-loops']()
    plain, conv = made(name)
    matrix = ADJACENCIES['SparseTensor'](example)
    given = {'x': example.x(8), 'edge_index': matrix}
    expected = results(plain, given, torch.float32, 0)
    for _ in range(3):
        conv.zero_grad()
        assert_close(results(conv, given, torch.float32, 0), expected)
    assert len(computed) == 1
    matrix.storage.col()[3] = 5
    torch.testing.assert_close(conv(**given), plain(**given))
    assert len(computed) == 2
