"""GATConv gives the numbers of PyG: graphs, adjacencies, shapes, options and attention weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.gat_conv import BASE, EDGE_DIM, FEATURES, GAT, RANDOM, layers
from tests.support.parity import ADJACENCIES, BIPARTITE, GRAPHS, SPARSE

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')

FILL_VALUES = ['mean', 'add', 'min', 'max', 'mul', 0.5, torch.tensor([0.5, -1.0, 2.0])]
SLOW_SHAPES = [
    *[(1, 3), (1, 7), (1, 64), (1, 300), (2, 1), (2, 3), (2, 16), (3, 8), (3, 64)],
    *[(4, 1), (4, 17), (5, 300), (8, 3), (8, 8), (8, 64), (16, 5)],
]


def check(graph: str = 'random', edge_dim: int | None = None, **options) -> None:
    """Parity on a named graph with the default adjacency; options of the constructor."""
    example = GRAPHS[graph]()
    edges = {} if edge_dim is None else {'edge_attr': example.edge_attr(edge_dim)}
    options = {**BASE, 'edge_dim': edge_dim, **options}
    GAT.check(options, x=example.x(FEATURES), edge_index=example.edge_index, **edges)


def fill_name(value) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize('edge_dim', [None, EDGE_DIM])
@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('graph', GRAPHS)
def test_graphs(graph, loops, edge_dim):
    if graph == 'bipartite, more targets' and loops and edge_dim:
        pytest.skip('PyG fails here')
    check(graph, edge_dim, add_self_loops=loops)


@pytest.mark.parametrize('weights', [None, True])
@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('graph', ['random', 'repeated edges', 'bipartite, more sources', 'no edges'])
@pytest.mark.parametrize('adjacency', ADJACENCIES)
def test_adjacencies(adjacency, graph, loops, weights, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    if adjacency == 'CSC' and weights:
        pytest.skip('PyG does not take torch.sparse CSC')
    example = GRAPHS[graph]()
    edge_index = ADJACENCIES[adjacency](example)
    # what PyG does not take stands in another form
    pyg_form = {'int32': 'edge_index', 'CSC': 'CSR'}.get(adjacency)
    pyg_edge_index = None if pyg_form is None else ADJACENCIES[pyg_form](example)
    GAT.check(
        {**BASE, 'add_self_loops': loops},
        x=example.x(FEATURES),
        edge_index=edge_index,
        pyg_edge_index=pyg_edge_index,
        return_attention_weights=weights,
    )


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('adjacency', [name for name in ADJACENCIES if name not in SPARSE])
def test_edge_features_follow_the_order_of_the_adjacency(adjacency, loops):
    edge_index = ADJACENCIES[adjacency](RANDOM)
    GAT.check(
        {**BASE, 'add_self_loops': loops, 'edge_dim': EDGE_DIM},
        x=RANDOM.x(FEATURES),
        edge_index=edge_index,
        pyg_edge_index=edge_index.long() if adjacency == 'int32' else None,
        edge_attr=RANDOM.edge_attr(EDGE_DIM),
        return_attention_weights=True,
    )


@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_edge_features_of_sparse_adjacencies(adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    edge_index = ADJACENCIES[adjacency](RANDOM)
    num_edges = edge_index.nnz() if adjacency == 'SparseTensor' else edge_index.values().numel()
    edge_attr = torch.randn(num_edges, EDGE_DIM, generator=torch.Generator().manual_seed(0))
    options = {**BASE, 'add_self_loops': False, 'edge_dim': EDGE_DIM}
    GAT.check(options, x=RANDOM.x(FEATURES), edge_index=edge_index, edge_attr=edge_attr)


def test_values_of_a_sparse_tensor_are_edge_features(needs_torch_sparse):
    adjacency = ADJACENCIES['SparseTensor'](RANDOM)
    adjacency = adjacency.set_value(RANDOM.edge_attr(EDGE_DIM), layout='coo')
    options = {**BASE, 'add_self_loops': False, 'edge_dim': EDGE_DIM}
    GAT.check(options, x=RANDOM.x(FEATURES), edge_index=adjacency)


@pytest.mark.parametrize(
    ('heads', 'channels'),
    [
        *[(1, 1), (3, 7), (5, 17)],
        *[pytest.param(*shape, marks=pytest.mark.slow) for shape in SLOW_SHAPES],
    ],
)
def test_shapes(heads, channels):
    check(edge_dim=EDGE_DIM, heads=heads, out_channels=channels)


@pytest.mark.parametrize(
    'options',
    [
        {'concat': False},
        {'concat': False, 'residual': True},
        {'negative_slope': 0.0},
        {'negative_slope': 1.5},
        {'negative_slope': -0.1},
        {'bias': False},
        {'residual': True},
        {'residual': True, 'bias': False, 'add_self_loops': False},
        {'aggr': 'mean'},
        {'aggr': 'mean', 'add_self_loops': False, 'concat': False},
        {'flow': 'target_to_source'},
        {'flow': 'target_to_source', 'add_self_loops': False},
        {'in_channels': -1},
        {'in_channels': (FEATURES, FEATURES)},
    ],
    ids=str,
)
@pytest.mark.parametrize('edge_dim', [None, EDGE_DIM])
def test_options(options, edge_dim):
    check(edge_dim=edge_dim, **options)


@pytest.mark.parametrize('graph', ['random', 'self-loops', 'isolated nodes', 'no edges', 'bipartite, more sources'])
@pytest.mark.parametrize('fill_value', FILL_VALUES, ids=fill_name)
def test_fill_values(fill_value, graph):
    check(graph, EDGE_DIM, fill_value=fill_value)


@pytest.mark.parametrize('fill_value', ['mean', 'max', 0.5], ids=fill_name)
def test_fill_values_in_the_reversed_flow(fill_value):
    check('self-loops', EDGE_DIM, fill_value=fill_value, flow='target_to_source')


@pytest.mark.parametrize('loops', [True, False])
def test_edge_features_of_one_dimension(loops):
    options = {**BASE, 'edge_dim': 1, 'add_self_loops': loops}
    GAT.check(options, x=RANDOM.x(FEATURES), edge_index=RANDOM.edge_index, edge_attr=RANDOM.edge_attr())


def test_edge_features_without_edge_dim_are_not_used():
    GAT.check(BASE, x=RANDOM.x(FEATURES), edge_index=RANDOM.edge_index, edge_attr=RANDOM.edge_attr(EDGE_DIM))


def test_edge_dim_without_edge_features():
    GAT.check({**BASE, 'edge_dim': EDGE_DIM}, x=RANDOM.x(FEATURES), edge_index=RANDOM.edge_index)


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('graph', BIPARTITE)
def test_bipartite_features_of_different_widths(graph, loops):
    example = GRAPHS[graph]()
    x = (example.x(FEATURES)[0], example.x(5, seed=1)[1])
    for in_channels in ((FEATURES, 5), (-1, -1)):
        for residual in (False, True):
            options = {**BASE, 'in_channels': in_channels, 'add_self_loops': loops, 'residual': residual}
            GAT.check(options, x=x, edge_index=example.edge_index)


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('graph', BIPARTITE)
def test_bipartite_without_features_of_targets(graph, loops):
    example = GRAPHS[graph]()
    size = (example.num_sources, example.num_targets)
    for in_channels in (FEATURES, (FEATURES, FEATURES)):
        options = {**BASE, 'in_channels': in_channels, 'add_self_loops': loops, 'residual': True}
        GAT.check(options, x=(example.x(FEATURES)[0], None), edge_index=example.edge_index, size=size)


def test_no_features_of_targets_and_no_size():
    options = {**BASE, 'add_self_loops': False}
    GAT.check(options, x=(RANDOM.x(FEATURES), None), edge_index=RANDOM.edge_index)


@pytest.mark.parametrize('loops', [True, False])
def test_size(loops):
    example = GRAPHS['bipartite, more sources']()
    size = (example.num_sources, example.num_targets)
    GAT.check({**BASE, 'add_self_loops': loops}, x=example.x(FEATURES), edge_index=example.edge_index, size=size)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    graph=st.sampled_from([name for name in GRAPHS if name not in ('hub', *BIPARTITE)]),
    edge_dim=st.sampled_from([None, EDGE_DIM]),
    options=st.fixed_dictionaries(
        {
            'concat': st.booleans(),
            'negative_slope': st.sampled_from([0.2, 0.0, 1.5, -0.1]),
            'add_self_loops': st.booleans(),
            'fill_value': st.sampled_from(['mean', 'add', 'min', 'max', 'mul', 0.5]),
            'bias': st.booleans(),
            'residual': st.booleans(),
            'aggr': st.sampled_from(['add', 'mean']),
            'flow': st.sampled_from(['source_to_target', 'target_to_source']),
        }
    ),
)
def test_random_combinations(graph, edge_dim, options):
    check(graph, edge_dim, **options)


@pytest.mark.parametrize('adjacency', ADJACENCIES)
def test_attention_weights_come_in_the_types_of_pyg(adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    if adjacency in ('CSC', 'int32'):
        pytest.skip('PyG does not take it')
    edge_index = ADJACENCIES[adjacency](RANDOM)
    for loops in (True, False):
        pyg, fused = layers(add_self_loops=loops)
        expected, got = (
            layer(RANDOM.x(FEATURES), edge_index, return_attention_weights=True)[1] for layer in (pyg, fused)
        )
        assert type(got) is type(expected)
        if isinstance(expected, tuple):
            assert [type(part) for part in got] == [type(part) for part in expected]
            assert got[0].layout == expected[0].layout
            assert got[0].dtype == expected[0].dtype
            assert got[0].size() == expected[0].size()


def test_features_that_are_not_contiguous():
    pyg, fused = layers()
    x = torch.randn(FEATURES, 60, generator=torch.Generator().manual_seed(0)).t()
    torch.testing.assert_close(fused(x, RANDOM.edge_index), pyg(x, RANDOM.edge_index))
