"""Layers that sum neighbours add along few edges as they come, with nothing looked up and nothing sorted."""

import copy

import pytest
import torch
import torch_geometric.nn
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.conv import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv
from pygfuse.graph.graph import Graph
from pygfuse.mapping import few_edges
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 30, 120
LAYERS = {
    'GCN': lambda: pyg.GCNConv(WIDTH, WIDTH),
    'GCN, no loops': lambda: pyg.GCNConv(WIDTH, WIDTH, add_self_loops=False),
    'GCN, no norm': lambda: pyg.GCNConv(WIDTH, WIDTH, normalize=False),
    'GCN, cached': lambda: pyg.GCNConv(WIDTH, WIDTH, cached=True),
    'GCN, cached, no loops': lambda: pyg.GCNConv(WIDTH, WIDTH, cached=True, improved=True, add_self_loops=False),
    'GIN': lambda: pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3),
    'GIN, learned': lambda: pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3, train_eps=True),
    'Graph': lambda: pyg.GraphConv(WIDTH, WIDTH),
    'SAGE': lambda: pyg.SAGEConv(WIDTH, WIDTH),
    'GAT': lambda: pyg.GATConv(WIDTH, 4, heads=2),
    'GAT, residual': lambda: pyg.GATConv(WIDTH, 4, heads=2, residual=True, add_self_loops=False),
    'GAT, mean': lambda: pyg.GATConv(WIDTH, 4, heads=2, residual=True, concat=False),
    'GATv2': lambda: pyg.GATv2Conv(WIDTH, 4, heads=2, residual=True),
    'Transformer': lambda: pyg.TransformerConv(WIDTH, 4, heads=2),
    'Transformer, mean': lambda: pyg.TransformerConv(WIDTH, 4, heads=2, concat=False),
    'ResGated': lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH),
    'ResGated, no root': lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH, root_weight=False),
    'CG': lambda: pyg.CGConv(WIDTH),
    'FiLM': lambda: pyg.FiLMConv(WIDTH, WIDTH),
    'SAGE, all': lambda: pyg.SAGEConv(WIDTH, WIDTH, project=True, normalize=True, root_weight=False),
}
every = pytest.mark.parametrize('name', LAYERS)
OF_EDGES = {
    'GINE': lambda: pyg.GINEConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3, edge_dim=3),
    'GINE, learned': lambda: pyg.GINEConv(torch.nn.Linear(WIDTH, WIDTH), eps=0.3, train_eps=True, edge_dim=3),
    'GINE, network': lambda: pyg.GINEConv(
        torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.ReLU(), torch.nn.Linear(5, WIDTH)), edge_dim=3
    ),
    'GINE, as they are': lambda: pyg.GINEConv(torch.nn.Linear(WIDTH, WIDTH)),
    'GMM': lambda: pyg.GMMConv(WIDTH, WIDTH, dim=3, kernel_size=2),
    'CG': lambda: pyg.CGConv(WIDTH, dim=3, batch_norm=True),
    'ResGated': lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=3),
    'Transformer': lambda: pyg.TransformerConv(WIDTH, 4, heads=2, edge_dim=3),
    'GATv2': lambda: pyg.GATv2Conv(WIDTH, 4, heads=2, edge_dim=3, add_self_loops=False),
}


def layer_of(name: str) -> torch.nn.Module:
    torch.manual_seed(3)
    return pygfuse.fuse(LAYERS[name]()).double()


def features(requires_grad: bool = True) -> torch.Tensor:
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return x.requires_grad_(requires_grad)


def found_by(conv, x, edge_index) -> list:
    conv.zero_grad()
    out = conv(x, edge_index)
    out.sin().sum().backward()
    found = [out.detach(), x.grad, *(parameter.grad for parameter in conv.parameters())]
    x.grad = None
    return found


@every
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_new_edges_are_not_sorted(name, flow, monkeypatch):
    fused = layer_of(name)
    fused.flow, x = flow, features()
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    # the first calls are looked at
    for _ in range(2):
        fused(x, random_edges(NODES, NODES, EDGES))
    monkeypatch.setattr(Graph, 'of', None)
    for seed in range(3):
        edge_index = random_edges(NODES, NODES, EDGES, seed)
        torch.testing.assert_close(found_by(fused, x, edge_index), found_by(plain, x, edge_index))
    assert str(fused.note.backward).startswith('backward walked all ')


@every
def test_a_call_gives_the_same_bits_each_time(name):
    fused, x, edge_index = layer_of(name).float(), features().float().detach().requires_grad_(), None
    edge_index = random_edges(NODES, NODES, EDGES)
    first = found_by(fused, x, edge_index)
    # another layer has them sorted
    GATConv(WIDTH, WIDTH)(x, edge_index)
    Graph.of(edge_index, num_sources=NODES, num_targets=NODES).csc  # noqa: B018
    for _ in range(2):
        assert all(torch.equal(*pair) for pair in zip(found_by(fused, x, edge_index), first, strict=True))


@pytest.mark.parametrize('name', ['GIN', 'Graph', 'SAGE'])
def test_other_targets(name):
    fused, x = layer_of(name), features()
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    edge_index = random_edges(NODES, 12, EDGES)
    for _ in range(2):
        for pair in ((x, x[:12]), (x, x[:12].detach()), (x, x)):
            torch.testing.assert_close(fused(pair, edge_index), plain(pair, edge_index))
    pair = x, None
    edge_index = random_edges(NODES, NODES, EDGES)
    for _ in range(2):
        torch.testing.assert_close(fused(pair, edge_index), plain(pair, edge_index, size=(NODES, NODES)))


@pytest.mark.parametrize('aggr', ['mean', 'max'])
def test_a_root_with_a_bias(aggr):
    fused, x = pygfuse.fuse(pyg.SAGEConv(WIDTH, WIDTH, aggr=aggr)).double(), features()
    fused.lin_r.bias = torch.nn.Parameter(torch.arange(WIDTH, dtype=torch.float64))
    plain, edge_index = pygfuse.unfuse(copy.deepcopy(fused)), random_edges(NODES, NODES, EDGES)
    for _ in range(2):
        torch.testing.assert_close(found_by(fused, x, edge_index), found_by(plain, x, edge_index))


def not_sorted(fused, plain, arguments, monkeypatch):
    """Checks calls and their gradients, and that no graph is made but for the first call."""
    call = arguments(random_edges(NODES, NODES, EDGES))
    fused(*call)
    monkeypatch.setattr(Graph, 'of', None)
    for seed in range(3):
        call = arguments(random_edges(NODES, NODES, EDGES, seed))
        leaves = [value for value in call if value.requires_grad]
        found = []
        for conv in (fused, plain):
            out = conv(*call)
            found.append([out, *torch.autograd.grad(out.sin().sum(), [*leaves, *conv.parameters()])])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize('name', OF_EDGES)
def test_features_of_edges(name, monkeypatch):
    torch.manual_seed(3)
    fused, x = pygfuse.fuse(OF_EDGES[name]()).double(), features()
    width = WIDTH if name.endswith('as they are') else 3
    of_edges = torch.rand(EDGES, width, dtype=torch.float64, requires_grad=True)
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    not_sorted(fused, plain, lambda edge_index: (x, edge_index, of_edges), monkeypatch)
    monkeypatch.undo()
    with pytest.raises(ValueError, match='edge_attr'):
        fused(x, random_edges(NODES, NODES, EDGES), of_edges[1:])


@pytest.mark.parametrize('has_map', [True, False])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_a_few_rows_of_edges(has_map, flow):
    conv = pyg.GINEConv(torch.nn.Linear(WIDTH, WIDTH), edge_dim=3 if has_map else None, flow=flow)
    fused, x = pygfuse.fuse(conv).double(), features()
    plain, of_edges = pygfuse.unfuse(copy.deepcopy(fused)), torch.rand(EDGES, 3 if has_map else WIDTH).double()
    edge_index = random_edges(NODES, NODES, EDGES)
    for aggr in ('sum', 'mean', 'max'):
        for conv in (fused, plain):
            conv.aggr_module = torch_geometric.nn.resolver.aggregation_resolver(aggr)
            conv.aggr = aggr
        for _ in range(2):
            torch.testing.assert_close(fused(x, edge_index, of_edges), plain(x, edge_index, of_edges))
        fused(x, edge_index, of_edges).sum().backward()
        assert fused.note.backward.walked_edges == EDGES
    fused.aggr_module, fused.aggr = torch_geometric.nn.aggr.SumAggregation(), 'sum'
    for row in (0, 1):
        for wrong in (NODES, -1):
            outside = edge_index.clone()
            outside[row, 3] = wrong
            with pytest.raises(ValueError, match=f'holds node {wrong}'):
                fused(x, outside, of_edges)
    if not has_map:
        with pytest.raises(ValueError, match='edge_attr'):
            fused(x, edge_index, of_edges[:, :1])


@pytest.mark.parametrize('name', ['GAT', 'ResGated'])
def test_layers_that_are_alike_have_their_lines_in_common(name, monkeypatch):
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    first, other = copy.deepcopy(fused), copy.deepcopy(fused)
    expected = first(x, edge_index)
    # nothing is written for another layer, nor for calls that take turns between kinds
    monkeypatch.setattr('pygfuse.ops.mapped_walk.step.written_forward', None)
    for training in (True, False, True):
        for conv in (first.train(training), other.train(training)):
            torch.testing.assert_close(conv(x, edge_index), expected)


def test_a_bias_of_another_type_is_refused_as_torch_refuses_it():
    fused = pygfuse.fuse(pyg.ResGatedGraphConv(WIDTH, WIDTH))
    x, edge_index = features().float(), random_edges(NODES, NODES, EDGES)
    fused(x, edge_index)
    fused.lin_key.bias.data = fused.lin_key.bias.data.double()
    for conv in (fused, pygfuse.unfuse(copy.deepcopy(fused))):
        with pytest.raises(RuntimeError, match='dtype'):
            conv(x, edge_index)


@pytest.mark.parametrize('options', [{}, {'improved': True}, {'add_self_loops': False}])
def test_weights_of_edges(options, monkeypatch):
    torch.manual_seed(3)
    fused, x = pygfuse.fuse(pyg.GCNConv(WIDTH, WIDTH, **options)).double(), features()
    weight = torch.rand(EDGES, dtype=torch.float64, requires_grad=True)
    plain = pygfuse.unfuse(copy.deepcopy(fused))
    not_sorted(fused, plain, lambda edge_index: (x, edge_index, weight), monkeypatch)
    monkeypatch.undo()
    with pytest.raises(ValueError, match='edge_weight'):
        fused(x, random_edges(NODES, NODES, EDGES), weight[1:])


@pytest.mark.parametrize('loops', [True, False])
def test_normalised_attention(loops, monkeypatch):
    torch.manual_seed(3)
    fused, x = pygfuse.fuse(pyg.FAConv(WIDTH, add_self_loops=loops)).double(), features()
    plain, first = pygfuse.unfuse(copy.deepcopy(fused)), features().detach()
    not_sorted(fused, plain, lambda edge_index: (x, first, edge_index), monkeypatch)
    monkeypatch.undo()
    edge_index = random_edges(NODES, NODES, EDGES)
    edge_index[1, 3] = NODES
    with pytest.raises(ValueError, match=f'holds node {NODES}'):
        fused(x, first, edge_index)


@pytest.mark.parametrize('name', ['GAT', 'GATv2', 'Transformer'])
def test_weights_that_are_dropped(name):
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    fused.dropout = 0.5
    found = [fused(x, edge_index) for _ in range(2)]
    assert not torch.allclose(*found)
    fused.eval()
    assert torch.equal(*[fused(x, edge_index) for _ in range(2)])


def test_a_map_that_is_watched_after_the_first_calls():
    conv, x, seen = TransformerConv(WIDTH, WIDTH).double(), features(), []
    for _ in range(2):
        conv(x, random_edges(NODES, NODES, EDGES))
    conv.lin_value.register_forward_hook(lambda *given: seen.append(given))
    edge_index = random_edges(NODES, NODES, EDGES)
    found = conv(x, edge_index)
    assert len(seen) == 1
    torch.testing.assert_close(found, pygfuse.unfuse(conv)(x, edge_index))


@pytest.mark.parametrize('name', ['GCN', 'Graph'])
def test_weights_are_not_forgotten(name):
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    plain, weight = pygfuse.unfuse(copy.deepcopy(fused)), torch.rand(EDGES, dtype=torch.float64)
    for given in ((edge_index,), (edge_index, weight), (edge_index,)):
        torch.testing.assert_close(fused(x, *given), plain(x, *given))


@every
@pytest.mark.parametrize('calls', [0, 1, 2])
def test_checkpoints_of_the_first_calls(name, calls):
    """A call that backward computes again may be known, and has to save what the first one saved."""
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    for _ in range(calls):
        fused(x, edge_index)
    (found,) = torch.autograd.grad(checkpoint(fused, x, edge_index, use_reentrant=False).sum(), x)
    assert torch.equal(found, torch.autograd.grad(fused(x, edge_index).sum(), x)[0])


@pytest.mark.parametrize('name', [name for name in LAYERS if not name.startswith('GCN')])
def test_checkpoints_of_first_calls_with_a_tensor_twice(name):
    fused, x, edge_index = layer_of(name), features(), random_edges(NODES, NODES, EDGES)
    (found,) = torch.autograd.grad(checkpoint(fused, (x, x), edge_index, use_reentrant=False).sum(), x)
    assert torch.equal(found, torch.autograd.grad(fused((x, x), edge_index).sum(), x)[0])
    torch.testing.assert_close(found, torch.autograd.grad(pygfuse.unfuse(fused)((x, x), edge_index).sum(), x)[0])


def test_edges_that_inference_made():
    with torch.inference_mode():
        edge_index = random_edges(NODES, NODES, EDGES)
    conv = GINConv(torch.nn.Linear(WIDTH, WIDTH)).double()
    for _ in range(2):
        conv(features(), edge_index).sum().backward()


def test_edges_of_other_types_and_layouts():
    conv, x, edge_index = SAGEConv(WIDTH, WIDTH).double(), features(), random_edges(NODES, NODES, EDGES)
    expected = conv(x, edge_index)
    for given in (edge_index.int(), edge_index.t().contiguous().t()):
        for _ in range(2):
            torch.testing.assert_close(conv(x, given), expected)
    torch.testing.assert_close(conv(x.t().contiguous().t(), edge_index), expected)
    with pytest.raises(ValueError, match='edge_index'):
        conv(x, torch.zeros(3, 5, dtype=torch.int64))


def test_a_map_that_gives_other_rows():
    conv, x, edge_index = GCNConv(WIDTH, WIDTH).double(), features(), random_edges(NODES, NODES, EDGES)
    conv(x, edge_index)
    conv.lin.forward = lambda x: x[:5]
    with pytest.raises(ValueError, match=f"Expected 'x' to have {NODES} rows"):
        conv(x, edge_index)


@pytest.mark.parametrize(('edges', 'rows', 'is_few'), [(120, 30, True), (33_000, 30, False), (120, 33_000, False)])
def test_how_many_are_few(edges, rows, is_few):
    conv, edge_index = GraphConv(WIDTH, WIDTH), random_edges(rows, rows, edges)
    conv(torch.randn(rows, WIDTH), edge_index)
    assert (conv.few_edges(torch.randn(rows, WIDTH), edge_index, {}, conv.note.known.few) is not None) == is_few


def test_rows_that_are_wide_count_more(monkeypatch):
    for width, is_few in ((8, True), (128, False)):
        conv, edge_index = SAGEConv(width, 8), random_edges(NODES, NODES, EDGES)
        monkeypatch.setattr(few_edges, 'MOST_BYTES', 300 * (EDGES + 2 * NODES))
        x = torch.randn(NODES, width)
        conv(x, edge_index)
        assert (conv.few_edges(x, edge_index, {}, conv.note.known.few) is not None) == is_few


def test_rows_whose_channels_are_scored_count_twice(monkeypatch):
    x, edge_index = features(), random_edges(NODES, NODES, EDGES)
    monkeypatch.setattr(few_edges, 'MOST_BYTES', 300 * (EDGES + 2 * NODES))
    for kind, is_few in ((GATConv, True), (GATv2Conv, False), (TransformerConv, False)):
        conv = kind(WIDTH, 8).double()
        conv(x, edge_index)
        assert (conv.few_edges(x, edge_index, {}, conv.note.known.few) is not None) == is_few
