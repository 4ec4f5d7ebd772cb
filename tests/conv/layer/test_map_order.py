"""A linear map before a sum over edges or after it: the same numbers, and the order that costs less."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.nn import Linear, ReLU, Sequential
from torch_geometric.data import Data

import pygfuse
from pygfuse.conv import GCNConv, GINConv, GraphConv, SAGEConv, gcn_conv, gin_conv
from pygfuse.conv._layer import layer as _layer
from pygfuse.conv._layer import map_first as _map_first
from pygfuse.mapping.map_order import AGGREGATE_FIRST, MAP_FIRST, ORDERS, force_order
from pygfuse.ops.few_edges.mapped_sums import mapped_sum_along
from pygfuse.ops.nodes import linear, several_maps
from pygfuse.transforms import SparseFeatures, ToHAG
from tests.support.cases import CHANNELS, FEATURES, GCN, GCN_WEIGHTS, GIN, GRAPH, GRAPH_WEIGHTS, SAGE
from tests.support.parity import GRAPHS, Example, cliques, random_edges, results

LAYERS = {str(layer): layer for layer in (SAGE, GRAPH, GRAPH_WEIGHTS, GIN, GCN, GCN_WEIGHTS)}
NODES, EDGES = 300, 9000
every = pytest.mark.parametrize('name', LAYERS)
orders = pytest.mark.parametrize('order', ORDERS)


@pytest.fixture
def widths(monkeypatch) -> list[int]:
    """The width of what layers aggregate, call by call."""
    found = []
    for name in ('aggregate', 'aggregate_known', 'hag_aggregate'):
        run = getattr(_layer, name)

        def recorded(first, *arguments, run=run, **options):
            operands = next((a for a in arguments if isinstance(a, dict)), None)
            found.append((arguments[0] if operands is None else operands['x']).shape[1])
            return run(first, *arguments, **options)

        monkeypatch.setattr(_layer, name, recorded)
    for module in (gcn_conv, gin_conv):

        def along_few(x, *arguments, run=module.sum_along, **options):
            found.append(x.shape[1])
            return run(x, *arguments, **options)

        monkeypatch.setattr(module, 'sum_along', along_few)

    def mapped(linear, x, *arguments, run=mapped_sum_along, **options):
        found.append(x[0].shape[1])
        return run(linear, x, *arguments, **options)

    for module in (_map_first, gin_conv):
        monkeypatch.setattr(module, 'mapped_sum_along', mapped)

    def summed_first(weight, bias, x, *arguments, run=gcn_conv.mapped_sum):
        found.append(x.shape[1])
        return run(weight, bias, x, *arguments)

    monkeypatch.setattr(gcn_conv, 'mapped_sum', summed_first)
    return found


def graph() -> torch.Tensor:
    return random_edges(NODES, NODES, EDGES)


def network(features: int, out: int) -> Sequential:
    return Sequential(Linear(features, out), ReLU(), Linear(out, 5))


@every
@orders
@pytest.mark.parametrize('graph', ['random', 'bipartite, more sources', 'bipartite, more targets', 'isolated nodes'])
def test_the_numbers_are_those_of_pyg(graph, order, name):
    layer, example = LAYERS[name], GRAPHS[graph]()
    if layer.square and example.bipartite:
        pytest.skip('sources are targets')
    for aggr in ('sum', 'mean'):
        with force_order(order):
            layer.check(example, options={'aggr': aggr})


@orders
@pytest.mark.parametrize('options', [{'project': True}, {'normalize': True}, {'root_weight': False}, {'bias': False}])
def test_options_of_sage(options, order):
    with force_order(order):
        SAGE.check(GRAPHS['random'](), options=options)


@orders
@pytest.mark.parametrize('train_eps', [True, False])
@pytest.mark.parametrize('nn', [Linear(FEATURES, 3), Sequential(Linear(FEATURES, 3)), network(FEATURES, 6)], ids=str)
def test_networks_of_gin(nn, train_eps, order):
    with force_order(order):
        for graph in ('random', 'bipartite, more sources'):
            GIN.check(GRAPHS[graph](), options={'nn': nn, 'eps': 0.3, 'train_eps': train_eps})
        example = GRAPHS['bipartite, more sources']()
        GIN.check(example, options={'nn': nn}, x=(example.x(FEATURES)[0], None), size=(40, 23))


@orders
def test_forced_orders_are_taken(order, widths):
    wide, narrow = (16, 4) if order == AGGREGATE_FIRST else (4, 16)
    convs = SAGEConv(16, 4), GraphConv(16, 4), GINConv(network(16, 4)), GCNConv(16, 4, bias=True)
    with force_order(order):
        for conv in convs:
            conv(torch.randn(NODES, 16), graph())
    assert widths == [wide] * 4
    assert narrow not in widths


@pytest.mark.parametrize('trains_x', [False, True])
def test_the_narrower_rows_are_gathered(trains_x, widths):
    for features, out in ((256, 16), (16, 256)):
        x = torch.randn(NODES, features, requires_grad=trains_x)
        for conv in (SAGEConv(features, out), GraphConv(features, out), GINConv(network(features, out))):
            conv(x, graph()).sum().backward()
        GCNConv(features, out)(x, graph()).sum().backward()
    assert widths == [16] * 8


def test_features_without_a_gradient_need_no_walk_back(widths):
    """Two walks over mapped rows cost as much as one over rows that are up to twice as wide."""
    edges = random_edges(NODES, NODES, 40_000)
    for trains_x, width in ((False, 96), (True, 64)):
        for kind in (SAGEConv, GraphConv, GCNConv):
            kind(96, 64)(torch.randn(NODES, 96, requires_grad=trains_x), edges)
        assert [widths.pop() for _ in range(3)] == [width] * 3
    with torch.no_grad():
        SAGEConv(96, 64)(torch.randn(NODES, 96), edges)
    assert widths == [64]


@pytest.mark.parametrize('kind', [SAGEConv, GraphConv], ids=lambda kind: kind.__name__)
def test_both_maps_of_one_input_are_one_product(kind, monkeypatch):
    seen = []

    def counted(function, rows):
        def count(x, weight, bias=None):
            seen.append(rows(weight))
            return function(x, weight, bias)

        return count

    conv, x = kind(256, 16), torch.randn(NODES, 256)
    monkeypatch.setattr(F, 'linear', counted(F.linear, lambda weight: len(weight)))
    monkeypatch.setattr(linear, 'product', counted(linear.product, lambda weight: weight.shape[1]))
    monkeypatch.setattr(linear, 'map_by_list', counted(linear.map_by_list, len))
    of_both = several_maps.products
    monkeypatch.setattr(
        several_maps,
        'products',
        lambda x, weights, biases: seen.append([*map(len, weights)]) or of_both(x, weights, biases),
    )
    conv(x, graph())
    assert seen == [[16, 16]]
    seen.clear()
    conv((x, x.clone()), graph())
    assert seen == [16, 16]


def test_few_edges_are_summed_as_in_pyg(widths):
    for kind, width in ((SAGEConv, 256), (GraphConv, 256), (GCNConv, 16)):
        kind(256, 16)(torch.randn(50, 256), random_edges(50, 50, 100))
        assert widths.pop() == width


def watched(conv: torch.nn.Module, module: torch.nn.Module, seen: list) -> torch.nn.Module:
    module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[1]))
    return conv


def test_a_map_that_is_watched_or_replaced_stays_where_it_is(widths):
    seen, x = [], torch.randn(NODES, 64)
    sage, gin, gcn = SAGEConv(64, 4), GINConv(network(64, 4)), GCNConv(4, 64)
    whole = GINConv(network(64, 4))
    convs = watched(sage, sage.lin_l, seen), watched(gin, gin.nn[0], seen), watched(whole, whole.nn, seen)
    replaced = SAGEConv(64, 4)
    replaced.lin_l = Sequential(replaced.lin_l, ReLU())
    class_of_ones_own = GINConv(pyg.MLP([64, 4, 4]))
    with force_order(MAP_FIRST):
        for conv in (*convs, replaced, class_of_ones_own):
            expected = pygfuse.unfuse(copy.deepcopy(conv))(x, graph())
            seen.clear()
            torch.testing.assert_close(conv(x, graph()), expected)
            assert seen == ([64] if conv in convs else [])
    assert widths == [64] * 5
    with force_order(AGGREGATE_FIRST):
        watched(gcn, gcn.lin, seen)(x[:, :4], graph())
    assert seen == [4]
    assert widths.pop() == 64


def test_the_bias_of_a_map_that_pyg_takes_first_is_summed(widths):
    conv, x = GCNConv(4, 64), torch.randn(NODES, 4)
    conv.lin = Linear(4, 64)
    with force_order(AGGREGATE_FIRST):
        torch.testing.assert_close(conv(x, graph()), pygfuse.unfuse(copy.deepcopy(conv))(x, graph()))
    assert widths == [64]


def test_what_follows_in_a_network_is_called():
    conv, seen = GINConv(network(64, 4)), []
    watched(conv, conv.nn[2], seen)
    with force_order(MAP_FIRST):
        conv(torch.randn(NODES, 64), graph())
    assert seen == [4]


@pytest.mark.parametrize('aggr', ['max', 'min'])
def test_extremes_are_taken_of_features(aggr, widths):
    for conv, width in ((SAGEConv(64, 4, aggr=aggr), 64), (GINConv(network(64, 4), aggr=aggr), 64)):
        with force_order(MAP_FIRST):
            conv(torch.randn(NODES, 64), graph())
        assert widths.pop() == width


def test_under_autocast_the_order_is_pygs(widths):
    with torch.autocast('cpu'), force_order(MAP_FIRST):
        SAGEConv(64, 4)(torch.randn(NODES, 64), graph())
    with torch.autocast('cpu'), force_order(AGGREGATE_FIRST):
        GCNConv(4, 64)(torch.randn(NODES, 4), graph())
    assert widths == [64, 64]


@orders
def test_a_parametrised_map_is_computed_once(order):
    for kind, name in ((SAGEConv, 'lin_l'), (GraphConv, 'lin_rel'), (GCNConv, 'lin')):
        conv = kind(16, 4)
        torch.nn.utils.parametrizations.spectral_norm(getattr(conv, name))
        plain = pygfuse.unfuse(copy.deepcopy(conv))
        x = torch.randn(NODES, 16)
        with force_order(order):
            torch.testing.assert_close(conv(x, graph()), plain(x, graph()))
        for found, expected in zip(conv.buffers(), plain.buffers(), strict=True):
            assert torch.equal(found, expected)


@every
@pytest.mark.parametrize('value', [float('inf'), float('nan')])
def test_features_of_a_node_without_edges_that_are_not_finite(value, name):
    """Node 9 is a target only, node 11 nothing at all."""
    layer = LAYERS[name]
    edges = torch.cat([random_edges(8, 8, 30), torch.tensor([[1], [9]])], dim=1)
    arguments = {**layer.inputs(Example(edges, 12, 12)), 'edge_index': edges}
    arguments['x'][9:] = value
    plain, fused = layer.pair()
    expected = results(plain, arguments, torch.float32, 0)
    for order in ORDERS:
        fused.zero_grad()
        with force_order(order):
            found = results(fused, arguments, torch.float32, 0)
        for key, tensor in expected.items():
            assert not bool((tensor.isfinite() & ~found[key].isfinite()).any()), f'{order}: {key} is poisoned'
            assert not bool((~tensor.isfinite() & found[key].isfinite()).any()), f'{order}: {key} hides it'


@every
def test_second_derivatives(name):
    layer, example = LAYERS[name], GRAPHS['random']()
    found = []
    for conv, order in zip(layer.pair(torch.float64), (None, MAP_FIRST), strict=True):
        inputs = layer.inputs(example, dtype=torch.float64)
        x = inputs.pop('x').requires_grad_()
        with force_order(order or AGGREGATE_FIRST):
            out = conv(x, example.edge_index, **inputs)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *conv.parameters()], allow_unused=True))
    for got, expected in zip(found[1], found[0], strict=True):
        if expected is not None:
            torch.testing.assert_close(got, expected)


@orders
@pytest.mark.parametrize('kind', [SAGEConv, GraphConv, GCNConv], ids=lambda kind: kind.__name__)
def test_over_a_hag(kind, order, widths):
    edge_index = cliques(4)
    data = ToHAG(progress=False)(Data(edge_index=edge_index, num_nodes=120))
    conv, x = kind(16, 4), torch.randn(120, 16, requires_grad=True)
    with force_order(order):
        found = conv(x, data.edge_index)
    assert conv.note.hag == 'used'
    torch.testing.assert_close(found, conv(x, edge_index.clone()))
    if kind is not GCNConv:
        assert widths[0] == (4 if order == MAP_FIRST else 16)


@orders
def test_rows_that_are_wanted(order):
    for conv in (SAGEConv(16, 4), GINConv(network(16, 4)), GCNConv(4, 16)):
        x = torch.randn(NODES, 4 if isinstance(conv, GCNConv) else 16)
        mask = torch.arange(NODES) < 20
        expected = conv(x, graph())[mask]
        with pygfuse.active(mask), force_order(order):
            found = conv(x, graph())[mask]
        torch.testing.assert_close(found, expected)


def test_sparse_features_are_mapped_first_by_gin(widths):
    x = torch.randn(NODES, 64) * (torch.rand(NODES, 64) < 0.1)
    for nn in (network(64, 4), network(64, 64)):
        conv = GINConv(nn)
        torch.testing.assert_close(conv(SparseFeatures.of(x), graph()), conv(x, graph()))
    assert widths[0] == 4


@pytest.mark.parametrize('kind', [SAGEConv, GraphConv], ids=lambda kind: kind.__name__)
def test_compiled_models_gather_the_narrower_rows(kind, widths):
    conv, x = kind(256, 16), torch.randn(NODES, 256)
    expected = conv(x, graph())
    widths.clear()
    torch._dynamo.reset()
    found = torch.compile(conv, backend='eager', fullgraph=True)(x, graph())
    torch.testing.assert_close(found, expected)


def test_an_unknown_order():
    with pytest.raises(ValueError, match="'order'"):
        force_order('first')


def test_channels_are_what_the_cases_say():
    assert FEATURES > CHANNELS  # both orders differ
