from __future__ import annotations

import concurrent.futures
import copy
import inspect
import io
import multiprocessing
import pickle
import shutil

import pytest
import torch
import torch_geometric.nn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv as PyGATConv
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.conv import GATConv
from pygfuse.ops import Edges, aggregate
from pygfuse.program.program import PROGRAMS
from tests.support.parity import ADJACENCIES, BIPARTITE, GRAPHS, SPARSE, Parity, random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')

GAT = Parity(PyGATConv, GATConv)
FEATURES, HEADS, CHANNELS, EDGE_DIM = 6, 4, 8, 3
BASE = {'in_channels': FEATURES, 'out_channels': CHANNELS, 'heads': HEADS}
FILL_VALUES = ['mean', 'add', 'min', 'max', 'mul', 0.5, torch.tensor([0.5, -1.0, 2.0])]
SLOW_SHAPES = [
    *[(1, 3), (1, 7), (1, 64), (1, 300), (2, 1), (2, 3), (2, 16), (3, 8), (3, 64)],
    *[(4, 1), (4, 17), (5, 300), (8, 3), (8, 8), (8, 64), (16, 5)],
]
RANDOM = GRAPHS['random']()


def check(graph: str = 'random', edge_dim: int | None = None, **options) -> None:
    """Parity on a named graph with the default adjacency; options of the constructor."""
    example = GRAPHS[graph]()
    edges = {} if edge_dim is None else {'edge_attr': example.edge_attr(edge_dim)}
    options = {**BASE, 'edge_dim': edge_dim, **options}
    GAT.check(options, x=example.x(FEATURES), edge_index=example.edge_index, **edges)


def fill_name(value) -> str:
    return value if isinstance(value, str) else type(value).__name__


# Parity over graphs, adjacencies, shapes and options


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


# Numbers at the edge


def layers(dtype=torch.float32, **options):
    pyg, fused = GAT.make({**BASE, **options})
    return pyg.to(dtype), fused.to(dtype)


@pytest.mark.parametrize('bad', [float('nan'), float('inf'), -float('inf')])
def test_nan_and_infinity_spread_as_in_pyg(bad):
    pyg, fused = layers()
    x = RANDOM.x(FEATURES)
    x[7, 2] = bad
    expected, got = pyg(x, RANDOM.edge_index), fused(x, RANDOM.edge_index)
    assert expected.isnan().any()
    assert torch.equal(got.isnan(), expected.isnan())
    finite = expected.isfinite()
    torch.testing.assert_close(got[finite], expected[finite])


def one_score_per_edge(scores: torch.Tensor, dtype: torch.dtype):
    """Layers whose scores are the edge feature itself, for edges into one node."""
    options = {'in_channels': 1, 'out_channels': 1, 'edge_dim': 1, 'add_self_loops': False, 'negative_slope': 1.0}
    pyg, fused = (cls(**options).to(dtype) for cls in (PyGATConv, GATConv))
    with torch.no_grad():
        for layer in (pyg, fused):
            for name, parameter in layer.named_parameters():
                parameter.fill_(0.0 if name in ('att_src', 'att_dst', 'bias') else 1.0)
    x = torch.arange(1.0, len(scores) + 1, dtype=dtype).view(-1, 1)
    edge_index = torch.stack([torch.arange(len(scores)), torch.zeros(len(scores), dtype=torch.int64)])
    return [layer(x, edge_index, scores.to(dtype))[0, 0] for layer in (pyg, fused)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(
    'scores',
    [
        [1e4, 1e4 - 1, 0.0, -1e4],
        [-1e4, -1e4 - 1, -1e4 + 1],
        [-float('inf'), -float('inf')],
        [float('inf'), 1.0],
        [1.0, float('nan')],
        [-3.2e38, -3.3e38],
        [3.2e38, 3.3e38],
        [*range(100)],
        [*range(100, 0, -1)],
        [7.9 * i for i in range(20)],
    ],
    ids=lambda scores: ' '.join(map(str, scores[:4])),
)
def test_extreme_scores(scores, dtype):
    pyg, fused = one_score_per_edge(torch.tensor(scores), dtype)
    torch.testing.assert_close(fused, pyg, equal_nan=True)


def test_an_infinite_feature_of_an_edge_shows():
    # of several channels PyG's maps may add infinities of both signs, which one contracted map cannot tell
    _, fused = one_score_per_edge(torch.tensor([-float('inf'), 1.0, 2.0]), torch.float32)
    assert fused.isnan()


def test_scores_beyond_the_range_of_float32():
    pyg, fused = one_score_per_edge(torch.tensor([-1e100, -1.0001e100, -2e100], dtype=torch.float64), torch.float64)
    torch.testing.assert_close(fused, pyg)


# Attention weights


def edge_list(pair: torch.Tensor) -> list[tuple[int, int]]:
    return list(map(tuple, pair.t().tolist()))


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


# Dropout


def dropped(conv, x, edge_index, edge_attr=None, seed: int = 0):
    """Output, adjacency and attention weights of a layer in training with this seed."""
    torch.manual_seed(seed)
    out, (adjacency, weights) = conv(x, edge_index, edge_attr, return_attention_weights=True)
    return out, adjacency, weights


MANY_EDGES = random_edges(500, 500, 20_000, seed=3)
MANY_X = torch.randn(500, FEATURES, generator=torch.Generator().manual_seed(4))


def test_dropout_is_decided_by_the_seed():
    conv = GATConv(**BASE, dropout=0.5)
    first, _, _ = dropped(conv, MANY_X, MANY_EDGES, seed=0)
    assert torch.equal(dropped(conv, MANY_X, MANY_EDGES, seed=0)[0], first)
    assert not torch.equal(dropped(conv, MANY_X, MANY_EDGES, seed=1)[0], first)
    torch.manual_seed(0)
    assert torch.equal(conv(MANY_X, MANY_EDGES), first)
    assert not torch.equal(conv(MANY_X, MANY_EDGES), first)


@pytest.mark.parametrize('edge_dim', [None, EDGE_DIM])
@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('p', [0.1, 0.6])
def test_dropout_zeroes_weights_and_scales_the_rest(p, loops, edge_dim):
    conv = GATConv(**BASE, dropout=p, add_self_loops=loops, edge_dim=edge_dim, bias=False).double()
    x = MANY_X.double()
    edge_attr = None if edge_dim is None else torch.randn(MANY_EDGES.shape[1], edge_dim, dtype=torch.float64)
    out, (source, target), weights = dropped(conv, x, MANY_EDGES, edge_attr)
    _, _, alpha = dropped(conv.eval(), x, MANY_EDGES, edge_attr)
    is_zero = weights == 0
    torch.testing.assert_close(weights[~is_zero], (alpha / (1 - p))[~is_zero], rtol=1e-12, atol=0)
    count = weights.numel()
    assert abs(int(is_zero.sum()) - p * count) < 5 * (count * p * (1 - p)) ** 0.5
    # every head draws for itself
    assert 0.5 * p < float(is_zero[:, 0].double().mean()) < 1.5 * p
    assert not torch.equal(is_zero[:, 0], is_zero[:, 1])
    messages = weights.unsqueeze(-1) * conv.lin(x).view(-1, HEADS, CHANNELS)[source]
    torch.testing.assert_close(out, scatter(messages, target, 0, len(x)).flatten(1), rtol=1e-10, atol=1e-12)


def test_dropout_keeps_the_expectation():
    conv = GATConv(**BASE, dropout=0.4)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    runs = 200
    mean = sum(dropped(conv, x, edge_index, seed=seed)[2] for seed in range(runs)) / runs
    _, _, alpha = dropped(conv.eval(), x, edge_index)
    deviation = alpha * (0.4 / 0.6 / runs) ** 0.5
    assert bool(((mean - alpha).abs() < 5 * deviation).all())


@pytest.mark.parametrize('training', [True, False])
def test_dropout_of_nothing(training):
    conv = GATConv(**BASE, dropout=0.0 if training else 0.9).train(training)
    plain = GATConv(**BASE)
    plain.load_state_dict(conv.state_dict())
    assert torch.equal(conv(MANY_X, MANY_EDGES), plain(MANY_X, MANY_EDGES))


def test_dropout_of_everything():
    conv = GATConv(**BASE, dropout=1.0)
    x = MANY_X.clone().requires_grad_()
    out, _, weights = dropped(conv, x, MANY_EDGES)
    assert not weights.any()
    assert torch.equal(out, conv.bias.expand_as(out))
    out.sum().backward()
    assert not x.grad.any()
    assert not conv.lin.weight.grad.any()


def test_gradients_of_returned_weights_with_dropout():
    conv, x = GATConv(**BASE, dropout=0.5).double(), RANDOM.x(FEATURES).double()

    def weights_of(x):
        torch.manual_seed(0)
        return conv(x, RANDOM.edge_index, return_attention_weights=True)[1][1]

    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).double()
    factors = torch.randn(weights_of(x).shape, generator=torch.Generator().manual_seed(2)).double()
    given = x.clone().requires_grad_()
    (found,) = torch.autograd.grad((weights_of(given) * factors).sum(), given)
    step = 1e-6 * direction
    expected = ((weights_of(x + step) - weights_of(x - step)) * factors).sum() / 2e-6
    torch.testing.assert_close((found * direction).sum(), expected, rtol=1e-6, atol=1e-8)


def test_returned_weights_with_dropout_under_autocast():
    conv, x, found = GATConv(**BASE, dropout=0.5), RANDOM.x(FEATURES), []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        with torch.autocast('cpu', torch.bfloat16, enabled=dtype is torch.bfloat16):
            found.append(conv.to(dtype)(x.to(dtype), RANDOM.edge_index, return_attention_weights=True)[1][1])
    assert found[1].dtype is torch.bfloat16
    assert torch.equal(found[1] == 0, found[0] == 0)
    torch.testing.assert_close(found[1].float(), found[0], rtol=0.05, atol=0.02)


def test_dropout_goes_with_the_edge_not_with_the_order_of_the_walk():
    conv = GATConv(**BASE, dropout=0.5, add_self_loops=False)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    _, _, weights = dropped(conv, MANY_X, MANY_EDGES)
    x = torch.empty_like(MANY_X)
    x[order] = MANY_X
    _, _, renamed = dropped(conv, x, order[MANY_EDGES])
    assert torch.equal(weights == 0, renamed == 0)


# Derivatives of every order


@pytest.mark.parametrize('p', [0.0, 0.5])
@pytest.mark.parametrize('edge_dim', [None, 2])
@pytest.mark.parametrize('second', [False, True])
def test_derivatives(second, edge_dim, p):
    torch.manual_seed(0)
    conv = GATConv(3, 2, heads=2, dropout=p, edge_dim=edge_dim).double()
    edge_index = random_edges(4, 4, 8)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    edge_attr = None if edge_dim is None else torch.randn(8, edge_dim, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in conv.named_parameters()]

    def run(x, edge_attr, *parameters):
        torch.manual_seed(5)  # the same edges drop in every evaluation
        return torch.func.functional_call(conv, dict(zip(names, parameters, strict=True)), (x, edge_index, edge_attr))

    check_gradients = gradgradcheck if second else gradcheck
    assert check_gradients(run, (x, edge_attr, *conv.parameters()))
    assert conv.note.reason is None


# The class


def test_constructor_is_that_of_pyg():
    assert inspect.signature(GATConv.__init__) == inspect.signature(PyGATConv.__init__)
    assert list(inspect.signature(GATConv.forward).parameters) == list(inspect.signature(PyGATConv.forward).parameters)
    assert issubclass(GATConv, PyGATConv)


@pytest.mark.parametrize(
    'options', [{}, {'edge_dim': 3, 'residual': True}, {'in_channels': (5, 6), 'bias': False}], ids=str
)
def test_state_and_text_are_those_of_pyg(options):
    torch.manual_seed(0)
    pyg = PyGATConv(**{**BASE, **options})
    torch.manual_seed(0)
    fused = GATConv(**{**BASE, **options})
    assert repr(fused) == repr(pyg)
    expected, got = pyg.state_dict(), fused.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    pyg.load_state_dict(fused.state_dict())


def saved_and_loaded(layer, path):
    torch.save(layer, path)
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize('way', ['deepcopy', 'pickle', 'torch.save'])
@pytest.mark.parametrize('after_a_call', [False, True])
def test_copies_compute_the_same(way, after_a_call, tmp_path):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    if after_a_call:
        conv(x, edge_index).sum().backward()
    if way == 'deepcopy':
        twin = copy.deepcopy(conv)
    elif way == 'pickle':
        twin = pickle.loads(pickle.dumps(conv))
    else:
        twin = saved_and_loaded(conv, tmp_path / 'conv.pt')
    assert type(twin) is GATConv
    assert torch.equal(twin(x, edge_index), conv(x, edge_index))


# Autograd


def test_gradients_only_where_required():
    conv = GATConv(**BASE, edge_dim=EDGE_DIM)
    conv.lin.weight.requires_grad_(False)
    conv.att_dst.requires_grad_(False)
    x, edge_attr = RANDOM.x(FEATURES), RANDOM.edge_attr(EDGE_DIM).requires_grad_()
    conv(x, RANDOM.edge_index, edge_attr).sum().backward()
    assert x.grad is None
    assert conv.lin.weight.grad is None
    assert conv.att_dst.grad is None
    pyg = PyGATConv(**BASE, edge_dim=EDGE_DIM)
    pyg.load_state_dict(conv.state_dict())
    pyg_attr = edge_attr.detach().clone().requires_grad_()
    pyg(x, RANDOM.edge_index, pyg_attr).sum().backward()
    torch.testing.assert_close(edge_attr.grad, pyg_attr.grad)
    torch.testing.assert_close(conv.att_edge.grad, pyg.att_edge.grad)
    torch.testing.assert_close(conv.att_src.grad, pyg.att_src.grad)


def test_only_the_bias_trains():
    conv = GATConv(**BASE)
    for name, parameter in conv.named_parameters():
        parameter.requires_grad_(name == 'bias')
    conv(RANDOM.x(FEATURES), RANDOM.edge_index).sum().backward()
    assert [name for name, parameter in conv.named_parameters() if parameter.grad is not None] == ['bias']


def test_an_unused_attention_vector_gets_no_gradient():
    conv = GATConv(**BASE, add_self_loops=False)
    conv((RANDOM.x(FEATURES), None), RANDOM.edge_index).sum().backward()
    assert conv.att_dst.grad is None
    assert conv.att_src.grad is not None


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index).detach()
    with mode():
        out = conv(x, edge_index)
        assert not out.requires_grad
        assert torch.equal(out, expected)
        # an edge_index made here has no version counter
        assert torch.equal(conv(x, edge_index.clone()), expected)
    assert torch.equal(conv(x, edge_index), expected)


def test_an_edge_index_of_inference_mode_may_change_in_place():
    conv = GATConv(**BASE)
    x = RANDOM.x(FEATURES)
    with torch.inference_mode():
        edge_index = RANDOM.edge_index.clone()
        conv(x, edge_index)
        edge_index.copy_(RANDOM.edge_index.flip(0))
        assert torch.equal(conv(x, edge_index), conv(x, RANDOM.edge_index.flip(0)))


def test_backward_twice_gives_the_same():
    conv = GATConv(**BASE, dropout=0.5)
    x = RANDOM.x(FEATURES).requires_grad_()
    out = conv(x, RANDOM.edge_index).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (second,) = torch.autograd.grad(out, x)
    assert torch.equal(first, second)


def test_an_expanded_gradient_reaches_the_layer():
    pyg, fused = layers()
    x = RANDOM.x(FEATURES)
    found = []
    for layer in (pyg, fused):
        leaf = x.clone().requires_grad_()
        layer(leaf, RANDOM.edge_index)[:, ::3].mean(0, keepdim=True).expand(5, -1).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0])


def test_features_that_are_not_contiguous():
    pyg, fused = layers()
    x = torch.randn(FEATURES, 60, generator=torch.Generator().manual_seed(0)).t()
    torch.testing.assert_close(fused(x, RANDOM.edge_index), pyg(x, RANDOM.edge_index))


def test_an_edge_index_changed_in_place_is_noticed():
    pyg, fused = layers()
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index.clone()
    for change in (lambda: None, lambda: edge_index.copy_(edge_index.flip(0)), lambda: edge_index[0].fill_(3)):
        change()
        torch.testing.assert_close(fused(x, edge_index), pyg(x, edge_index))


@pytest.mark.parametrize('change', [lambda index: index.fill_(0), lambda index: index.add_(10**9)])
def test_an_edge_index_changed_between_forward_and_backward_raises(change):
    conv = GATConv(**BASE)
    edge_index = RANDOM.edge_index.clone()
    out = conv(RANDOM.x(FEATURES), edge_index)
    change(edge_index)
    with pytest.raises(RuntimeError):
        out.sum().backward()


def test_a_model_trains_after_its_edge_index_is_gone():
    conv = GATConv(**BASE)
    x = RANDOM.x(FEATURES)
    out = conv(x, RANDOM.edge_index.clone())
    expected = conv(x, RANDOM.edge_index)
    out.sum().backward()
    gradient = conv.lin.weight.grad.clone()
    conv.zero_grad()
    expected.sum().backward()
    assert torch.equal(conv.lin.weight.grad, gradient)


# Compilation by torch


def compiled_and_eager(backend: str) -> None:
    torch._dynamo.reset()
    conv = GATConv(**BASE, edge_dim=EDGE_DIM)
    x, edge_attr = RANDOM.x(FEATURES).requires_grad_(), RANDOM.edge_attr(EDGE_DIM).requires_grad_()
    inputs = (x, edge_attr, *conv.parameters())
    found = []
    for function in (conv, torch.compile(conv, fullgraph=True, backend=backend)):
        out = function(x, RANDOM.edge_index, edge_attr)
        found.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_compiled_without_a_graph_break():
    compiled_and_eager('aot_eager')


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('g++') is None, reason='torch.compile needs a C++ compiler')
def test_compiled_by_inductor():
    compiled_and_eager('inductor')


def test_compiled_dropout_differs_from_call_to_call():
    torch._dynamo.reset()
    conv = GATConv(**BASE, dropout=0.5)
    function = torch.compile(conv, fullgraph=True, backend='aot_eager')
    x = RANDOM.x(FEATURES)
    assert not torch.equal(function(x, RANDOM.edge_index), function(x, RANDOM.edge_index))


# What falls back


def reason_of(conv, *arguments) -> str | None:
    conv(*arguments)
    (row,) = pygfuse.report(conv, file=io.StringIO())
    assert row.why_not == conv.note.reason
    return row.why_not


def test_a_type_without_kernels_falls_back():
    pyg, fused = layers(torch.bfloat16)
    x = RANDOM.x(FEATURES).bfloat16()
    assert 'bfloat16' in reason_of(fused, x, RANDOM.edge_index)
    assert torch.equal(fused(x, RANDOM.edge_index), pyg(x, RANDOM.edge_index))


@pytest.mark.parametrize(
    'register',
    [
        'register_propagate_forward_pre_hook',
        'register_propagate_forward_hook',
        'register_message_forward_pre_hook',
        'register_message_forward_hook',
        'register_aggregate_forward_pre_hook',
        'register_aggregate_forward_hook',
        'register_edge_update_forward_pre_hook',
        'register_edge_update_forward_hook',
    ],
)
def test_hooks_are_called(register):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index)
    called = []
    handle = getattr(conv, register)(lambda *arguments: called.append(1))
    assert 'hook' in reason_of(conv, x, edge_index)
    assert called
    torch.testing.assert_close(conv(x, edge_index), expected)
    handle.remove()
    called.clear()
    assert reason_of(conv, x, edge_index) is None
    assert not called


@pytest.mark.parametrize('part', ['lin', 'lin_edge', 'res'])
@pytest.mark.parametrize(
    'register', ['register_forward_pre_hook', 'register_forward_hook', 'register_full_backward_hook']
)
def test_hooks_of_the_linear_layers_are_called(part, register):
    conv = GATConv(**BASE, edge_dim=EDGE_DIM, residual=True)
    called = []
    getattr(getattr(conv, part), register)(lambda *arguments: called.append(1))
    x = RANDOM.x(FEATURES).requires_grad_()
    conv(x, RANDOM.edge_index, RANDOM.edge_attr(EDGE_DIM)).sum().backward()
    assert called


def test_an_explainer_sees_the_messages():
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index)
    conv.explain = True
    conv._edge_mask = torch.nn.Parameter(torch.zeros(RANDOM.num_edges))
    conv._apply_sigmoid = False
    conv._loop_mask = edge_index[0] != edge_index[1]
    out = conv(x, edge_index)
    assert 'explain' in conv.note.reason
    assert not torch.equal(out, expected)  # masked to nothing but the loops
    conv.explain = False
    conv._edge_mask = None
    assert torch.equal(conv(x, edge_index), expected)
    assert conv.note.reason is None


@pytest.mark.parametrize('aggr', ['max', 'min', 'std', ['add', 'mean']], ids=str)
def test_other_aggregations_fall_back(aggr):
    pyg, fused = layers(aggr=aggr)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    if isinstance(aggr, list):  # PyG's layer cannot use these either
        assert fused.why_not() is not None
        return
    assert 'aggr' in reason_of(fused, x, edge_index)
    assert torch.equal(fused(x, edge_index), pyg(x, edge_index))


def test_a_subclass_that_changes_the_message_is_not_overruled():
    class Doubled(GATConv):
        def message(self, x_j, alpha):
            return 2 * super().message(x_j, alpha)

    torch.manual_seed(0)
    conv = GATConv(**BASE, bias=False)
    doubled = Doubled(**BASE, bias=False)
    doubled.load_state_dict(conv.state_dict())
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    torch.testing.assert_close(doubled(x, edge_index), 2 * conv(x, edge_index))


# Threads and processes


@pytest.fixture
def threads():
    """Sets torch's number of threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def training_step(conv, x, edge_index, seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    x = x.clone().requires_grad_()
    out = conv(x, edge_index)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, conv.att_src, conv.att_dst])]


def test_the_same_bits_with_any_number_of_threads(threads):
    conv = GATConv(**BASE, dropout=0.3).requires_grad_()
    x = torch.randn(500, FEATURES)
    threads(1)
    expected = training_step(conv, x, MANY_EDGES.clone())
    for count in (1, 2, 4, 4):
        threads(count)
        found = training_step(conv, x, MANY_EDGES.clone())
        # the products with dense matrices are torch's own
        assert torch.equal(found[0], expected[0])
        for got, wanted in zip(found[1:], expected[1:], strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_same_bits_run_to_run():
    conv = GATConv(**BASE, dropout=0.3, edge_dim=1)
    edge_attr = torch.randn(MANY_EDGES.shape[1])
    runs = []
    for _ in range(3):
        torch.manual_seed(0)
        out = conv(MANY_X, MANY_EDGES.clone(), edge_attr)
        runs.append([out, *torch.autograd.grad(out.square().sum(), list(conv.parameters()))])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


def test_several_python_threads_at_once():
    conv = GATConv(**BASE)
    graphs = [random_edges(500, 500, 5000, seed=seed) for seed in range(4)]
    expected = [training_step(conv, MANY_X, graph) for graph in graphs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # clones: the graphs are built by the threads too
        found = list(pool.map(lambda i: training_step(conv, MANY_X, graphs[i % 4].clone()), range(40)))
    for i, step in enumerate(found):
        for got, wanted in zip(step, expected[i % 4], strict=True):
            torch.testing.assert_close(got, wanted)


def _attention_step(x, alpha, edge_index):
    """The fused operator alone: torch's own parallel operators hang in a child of a process that used OpenMP."""
    operands = {'x': x, 'alpha_src': alpha, 'alpha_dst': alpha, 'negative_slope': 0.2}
    out = aggregate(PROGRAMS['gat'], Edges(edge_index, len(x), len(x)), operands, HEADS, CHANNELS)
    return out, torch.autograd.grad(out, alpha, torch.ones_like(out))[0]


def _step_in_a_child(connection, *arguments):
    out, gradient = _attention_step(*arguments)
    connection.send((out.detach().numpy(), gradient.numpy()))


@pytest.mark.filterwarnings('ignore:This process')
@pytest.mark.parametrize('count', [1, 2])
def test_a_forked_child_runs_after_its_parent_did(count, threads):
    threads(count)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(MANY_X), HEADS, CHANNELS, generator=generator)
    alpha = torch.randn(len(MANY_X), HEADS, generator=generator).requires_grad_()
    edge_index = MANY_EDGES.clone()
    out, gradient = _attention_step(x, alpha, edge_index)
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_step_in_a_child, args=(there, x, alpha, edge_index))
    child.start()
    try:
        assert here.poll(60), 'the child hangs'
        got, got_gradient = here.recv()
    finally:
        child.kill()
        child.join()
    assert torch.equal(torch.from_numpy(got), out.detach())
    assert torch.equal(torch.from_numpy(got_gradient), gradient)


class _Convolved(torch.utils.data.Dataset):
    def __init__(self, conv):
        self.conv = conv

    def __len__(self):
        return 6

    def __getitem__(self, i):
        with torch.no_grad():
            return self.conv(MANY_X[:, :FEATURES], random_edges(500, 500, 5000, seed=i))


@pytest.mark.filterwarnings('ignore:This process', 'ignore:This DataLoader')
def test_workers_of_a_data_loader_run_a_layer():
    conv = GATConv(**BASE)
    data = _Convolved(conv)
    expected = [data[i] for i in range(len(data))]
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=2, multiprocessing_context='fork', timeout=60
    )
    for got, wanted in zip(loader, expected, strict=True):
        torch.testing.assert_close(got, wanted)


# Bad input


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


# As part of a model


def test_the_basic_model_of_pyg_runs_fused():
    torch.manual_seed(0)
    model = torch_geometric.nn.GAT(FEATURES, 16, num_layers=2, out_channels=3, heads=4, v2=False)
    twin = pygfuse.fuse(copy.deepcopy(model))
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    torch.testing.assert_close(twin(x, edge_index), model(x, edge_index))
    assert all(row.why_not is None for row in pygfuse.report(twin))
