from __future__ import annotations

import pytest
import torch
import torch_geometric.nn
from torch.nn.utils import parametrize
from torch_geometric.utils import add_remaining_self_loops

from pygfuse.conv import GCNConv
from tests.support import cases as table
from tests.support.cases import FEATURES
from tests.support.parity import ADJACENCIES, GRAPHS, random_edges
from tests.support.states import Noisy

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor')

RANDOM = GRAPHS['random']()
OPTIONS = [
    {},
    {'improved': True},
    {'improved': True, 'bias': False},
    {'add_self_loops': False},
    {'normalize': False},
    {'cached': True},
    {'cached': True, 'add_self_loops': False},
    {'flow': 'target_to_source', 'improved': True},
    {'flow': 'target_to_source', 'add_self_loops': False},
    {'aggr': 'mean'},
]


@pytest.mark.parametrize('layer', [table.GCN, table.GCN_WEIGHTS], ids=str)
@pytest.mark.parametrize('options', OPTIONS, ids=str)
@pytest.mark.parametrize('graph', ['random', 'self-loops', 'isolated nodes', 'no edges'])
def test_options(graph, options, layer):
    layer.check(GRAPHS[graph](), options=options, narrow=False)


@pytest.mark.parametrize('adjacency', ['edge_index', 'int32', 'EdgeIndex', 'EdgeIndex by row', 'EdgeIndex by column'])
@pytest.mark.parametrize('improved', [False, True])
def test_weights_of_self_loops_are_kept(improved, adjacency):
    """Nodes 0 and 2 have self-loops, the others get one."""
    example = table.square([[0, 2, 1, 3, 4, 0], [0, 2, 0, 4, 1, 2]], 6)
    table.GCN_WEIGHTS.check(
        example,
        options={'improved': improved},
        edge_index=ADJACENCIES[adjacency](example),
        pyg_edge_index=example.edge_index if adjacency == 'int32' else None,
    )


def test_edge_weights_in_a_column():
    weight = table.GCN_WEIGHTS.inputs(RANDOM)['edge_weight'].view(-1, 1)
    table.GCN_WEIGHTS.check(RANDOM, edge_weight=weight, narrow=False)


@pytest.mark.parametrize('loops', [True, False])
def test_degrees_that_are_zero_or_negative(loops):
    """Infinite roots become zeros, roots of negative numbers stay NaN: as in PyG."""
    pyg, fused = table.GCN_WEIGHTS.pair(torch.float64, add_self_loops=loops)
    x = table.GCN.inputs(RANDOM, dtype=torch.float64)['x']
    for weight in (-torch.ones(RANDOM.num_edges), torch.zeros(RANDOM.num_edges), torch.randn(RANDOM.num_edges)):
        expected, got = (conv(x, RANDOM.edge_index, weight.double()) for conv in (pyg, fused))
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert fused.note.reason is None


def with_values(adjacency: str, values: torch.Tensor):
    """The random graph with these values on its edges, and how to read their gradient."""
    if adjacency == 'SparseTensor':
        return ADJACENCIES[adjacency](RANDOM).set_value(values, layout='coo'), values
    matrix = ADJACENCIES['COO'](RANDOM)
    matrix = torch.sparse_coo_tensor(matrix.indices(), values, matrix.shape, is_coalesced=True)
    return (matrix if adjacency == 'COO' else matrix.to_sparse_csr()), values


@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
@pytest.mark.parametrize(
    'options', [{}, {'improved': True}, {'add_self_loops': False}, {'normalize': False}, {'cached': True}], ids=str
)
def test_values_of_sparse_adjacencies_are_edge_weights(options, adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    num_edges = ADJACENCIES['COO'](RANDOM).values().numel()
    if adjacency == 'SparseTensor':
        num_edges = RANDOM.num_edges
    start = torch.rand(num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.25
    pyg, fused = table.GCN.pair(torch.float64, **options)
    found = []
    for conv in (pyg, fused):
        x = RANDOM.x(FEATURES).double().requires_grad_()
        edge_index, _ = with_values(adjacency, start.clone())
        for _ in range(2):
            out = conv(x, edge_index)
            found.append((out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])))
    assert fused.note.reason is None
    for got, expected in zip([*found[2], *found[3]], [*found[0], *found[1]], strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_of_the_values_of_a_sparse_tensor(needs_torch_sparse):
    start = torch.rand(RANDOM.num_edges, dtype=torch.float64) + 0.25
    pyg, fused = table.GCN.pair(torch.float64)
    found = []
    for conv in (pyg, fused):
        values = start.clone().requires_grad_()
        edge_index, _ = with_values('SparseTensor', values)
        conv(RANDOM.x(FEATURES).double(), edge_index).square().sum().backward()
        found.append(values.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('adjacency', ['edge_index', 'SparseTensor'])
def test_a_cached_layer_keeps_the_first_adjacency(adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    pyg, fused = table.GCN.pair(torch.float64, cached=True)
    x = RANDOM.x(FEATURES).double()
    other = table.square(random_edges(60, 60, 100, seed=7), 60)
    first, second = (ADJACENCIES[adjacency](example) for example in (RANDOM, other))
    for edge_index in (first, second, first):
        torch.testing.assert_close(fused(x, edge_index), pyg(x, edge_index))
    assert fused.note.reason is None
    pyg.reset_parameters()
    fused.reset_parameters()
    fused.load_state_dict(pyg.state_dict())
    torch.testing.assert_close(fused(x, second), pyg(x, second))


@pytest.mark.parametrize('weighed', ['never', 'with a gradient', 'without one'])
def test_a_cached_layer_over_few_edges(weighed):
    pyg, fused = table.GCN.pair(torch.float64, cached=True)
    x = torch.randn(12, pyg.in_channels, dtype=torch.float64)
    weight = None if weighed == 'never' else torch.rand(40, dtype=torch.float64)
    if weighed == 'with a gradient':
        weight.requires_grad_()
    for seed in range(4):
        if seed == 3:
            # what it keeps is others' once it is told so
            pyg._cached_edge_index = fused._cached_edge_index = None
        edge_index = random_edges(12, 12, 40, seed)
        found = []
        for conv in (fused, pyg):
            out = conv(x, edge_index, weight)
            wanted = [*conv.parameters(), *([weight] if weighed == 'with a gradient' else [])]
            found.append([out, *torch.autograd.grad(out.sin().sum(), wanted, retain_graph=True)])
        torch.testing.assert_close(*found)
    with pytest.raises(ValueError, match='node'):
        fused(x[:3], edge_index, weight)


@pytest.mark.parametrize('widths', [(4, 9), (9, 4)], ids=['wider', 'narrower'])
@pytest.mark.parametrize('options', [{}, {'add_self_loops': False}, {'bias': False}], ids=str)
def test_few_edges_of_rows_that_become_wider_or_narrower(widths, options):
    conv = GCNConv(*widths, **options).double()
    plain = torch_geometric.nn.GCNConv(*widths, **options).double()
    plain.load_state_dict(conv.state_dict())
    for seed in range(3):
        x = torch.randn(12, widths[0], dtype=torch.float64, requires_grad=True)
        edge_index, found = random_edges(12, 12, 40, seed), []
        for layer in (conv, plain):
            out = layer(x, edge_index)
            found.append([out, *torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()])])
        torch.testing.assert_close(*found)


def test_few_edges_of_a_map_that_is_watched():
    conv, x, edge_index = GCNConv(4, 9), torch.randn(12, 4), random_edges(12, 12, 40)
    expected, seen = conv(x, edge_index), []
    conv.lin.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    torch.testing.assert_close(conv(x, edge_index), expected)
    assert [given is x for given in seen] == [True]


def test_few_edges_of_a_bias_that_is_computed():
    """Each read of it draws."""
    x, edge_index, found = torch.randn(12, 4), random_edges(12, 12, 40), []
    for kind in (torch_geometric.nn.GCNConv, GCNConv):
        torch.manual_seed(0)
        conv = kind(4, 9)
        torch.nn.init.ones_(conv.bias)
        parametrize.register_parametrization(conv, 'bias', Noisy())
        found.append(conv(x, edge_index))
    torch.testing.assert_close(found[1], found[0])


def test_what_one_class_cached_serves_the_other():
    pyg, fused = table.GCN.pair(torch.float64, cached=True)
    x = RANDOM.x(FEATURES).double()
    expected = pyg(x, RANDOM.edge_index)
    fused._cached_edge_index = pyg._cached_edge_index
    torch.testing.assert_close(fused(x, RANDOM.edge_index), expected)


def test_weights_may_change_from_call_to_call():
    pyg, fused = table.GCN_WEIGHTS.pair(torch.float64)
    x = RANDOM.x(FEATURES).double()
    weight = torch.rand(RANDOM.num_edges, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(fused(x, RANDOM.edge_index, weight), pyg(x, RANDOM.edge_index, weight))
        torch.testing.assert_close(fused(x, RANDOM.edge_index), pyg(x, RANDOM.edge_index))
        weight.mul_(torch.rand(RANDOM.num_edges))


def test_an_edge_index_changed_in_place_is_noticed():
    pyg, fused = table.GCN.pair(torch.float64)
    x, edge_index = RANDOM.x(FEATURES).double(), RANDOM.edge_index.clone()
    for _ in range(2):
        torch.testing.assert_close(fused(x, edge_index), pyg(x, edge_index))
        edge_index[1].fill_(3)


def test_the_norms_of_a_graph_are_of_each_type(monkeypatch):
    # of few edges nothing is kept
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    x, pair = table.GCN.inputs(RANDOM, dtype=torch.float64)['x'], table.GCN.pair()
    for dtype in (torch.float32, torch.float64):
        expected, found = (conv.to(dtype)(x.to(dtype), RANDOM.edge_index) for conv in pair)
        torch.testing.assert_close(found, expected, **({'rtol': 1e-12, 'atol': 1e-12} if dtype is x.dtype else {}))


def test_a_graph_that_has_its_loops_already():
    edge_index, _ = add_remaining_self_loops(RANDOM.edge_index, num_nodes=60)
    table.GCN.check(table.square(edge_index, 60), options={'add_self_loops': False}, narrow=False)


def test_features_of_two_sides_are_refused():
    x = RANDOM.x(FEATURES)
    with pytest.raises(ValueError, match='bipartite'):
        GCNConv(FEATURES, FEATURES)((x, x), RANDOM.edge_index)


@pytest.mark.parametrize('shape', [(), (8, 2), (1, 8)])
def test_edge_weights_of_a_wrong_shape(shape):
    edge_index = random_edges(4, 4, 8)
    with pytest.raises(ValueError, match="'edge_weight'"):
        GCNConv(FEATURES, FEATURES)(torch.randn(4, FEATURES), edge_index, torch.ones(shape))


@pytest.mark.parametrize('normalize', [True, False])
def test_a_sparse_tensor_under_autocast(normalize, needs_torch_sparse):
    """PyG takes its values to the narrow type of the features."""
    example = GRAPHS['random']()
    adjacency = ADJACENCIES['SparseTensor'](example)
    adjacency = adjacency.set_value(torch.rand(adjacency.nnz()), layout='coo')
    plain, fused = table.GCN.pair(normalize=normalize, add_self_loops=normalize, bias=False)
    with torch.autocast('cpu', torch.bfloat16):
        found, expected = fused(example.x(FEATURES), adjacency), plain(example.x(FEATURES), adjacency)
    assert found.dtype is expected.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('normalize', [True, False])
def test_weights_beside_a_sparse_tensor_that_is_not_multiplied(normalize, needs_torch_sparse):
    """PyG's messages then have the weights that are given, which are not normalised."""
    example = GRAPHS['random']()
    adjacency = ADJACENCIES['SparseTensor'](example)
    plain, fused = table.GCN.pair(normalize=normalize, add_self_loops=False)
    plain.fuse = fused.fuse = False
    weights = torch.rand(adjacency.nnz())
    found, expected = (conv(example.x(FEATURES), adjacency, weights) for conv in (fused, plain))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    'options', [{}, {'cached': True}, {'aggr': 'mean'}, {'bias': False}, {'normalize': False}], ids=str
)
def test_a_narrow_model_under_autocast_gives_the_type_of_pyg(options):
    pyg, fused = table.GCN.parity.make({'in_channels': FEATURES, 'out_channels': 8, **options})
    x = RANDOM.x(FEATURES).bfloat16()
    with torch.autocast('cpu', torch.bfloat16):
        for _ in range(2):
            expected, found = (conv.bfloat16()(x, RANDOM.edge_index) for conv in (pyg, fused))
            assert fused.note.reason is None
            assert found.dtype is expected.dtype
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
