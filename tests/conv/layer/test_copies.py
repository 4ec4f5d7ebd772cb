"""Features of several copies of a graph, ``[copies, nodes, channels]``, are walked together."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from tests.support.parity import GRAPHS, assert_close, results

LAYERS = {
    'GCN': lambda: pyg.GCNConv(8, 4),
    'GCN, no loops': lambda: pyg.GCNConv(8, 4, add_self_loops=False),
    'GCN, no norm': lambda: pyg.GCNConv(8, 4, normalize=False, aggr='max'),
    'SAGE': lambda: pyg.SAGEConv(8, 4),
    'SAGE, max': lambda: pyg.SAGEConv(8, 4, aggr='max', normalize=True, root_weight=False),
    'SAGE, project': lambda: pyg.SAGEConv(8, 4, project=True),
    'Graph': lambda: pyg.GraphConv(8, 4, aggr='mean'),
    'GIN': lambda: pyg.GINConv(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), train_eps=True),
}
WEIGHED = ('GCN', 'GCN, no loops', 'GCN, no norm', 'Graph')


def made(name):
    torch.manual_seed(0)
    plain = LAYERS[name]()
    return plain, pygfuse.fuse(copy.deepcopy(plain))


@pytest.mark.parametrize('graph', ['random', 'self-loops', 'isolated nodes'])
@pytest.mark.parametrize('copies', [1, 3, 70])
@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(name, copies, graph):
    example = GRAPHS[graph]()
    plain, conv = made(name)
    x = torch.randn(copies, example.num_sources, 8, generator=torch.Generator().manual_seed(1))
    given = {'x': x, 'edge_index': example.edge_index}
    if name in WEIGHED and graph == 'random':
        given['edge_weight'] = example.edge_attr().abs()
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    wide = copy.deepcopy(conv).double()
    assert_close(results(wide, given, torch.float64, 0), reference)
    assert wide.note.reason is None
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))


EACH = {
    'Edge': lambda: pyg.EdgeConv(torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))),
    'Edge, sum': lambda: pyg.EdgeConv(torch.nn.Linear(16, 4), aggr='sum'),
    'CG': lambda: pyg.CGConv(8),
    'GINE': lambda: pyg.GINEConv(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.LayerNorm(4)), edge_dim=4),
    'ResGated': lambda: pyg.ResGatedGraphConv(8, 4),
    'FiLM': lambda: pyg.FiLMConv(8, 4),
    'FiLM, relations': lambda: pyg.FiLMConv(8, 4, num_relations=3),
}


@pytest.mark.parametrize('leading', [(1,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize('name', EACH)
def test_copies_that_are_walked_one_after_the_other(name, leading):
    torch.manual_seed(0)
    example = GRAPHS['random']()
    plain = EACH[name]()
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = {'x': torch.randn(*leading, 60, 8), 'edge_index': example.edge_index}
    if name == 'GINE':
        given['edge_attr'] = torch.randn(example.num_edges, 4)
    if name == 'FiLM, relations':
        given['edge_type'] = torch.arange(example.num_edges) % 3
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    wide = copy.deepcopy(conv).double()
    assert_close(results(wide, given, torch.float64, 0), reference)
    assert wide.note.reason is None
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))


@pytest.mark.parametrize('why', ['a module of its own', 'few edges', 'features of each', 'a hook', 'no features'])
def test_copies_that_pyg_s_operators_take(why, request):
    if why == 'few edges':
        request.getfixturevalue('by_pyg')

    class Softmax(torch.nn.Module):
        def forward(self, x):
            return x.softmax(dim=0)

    torch.manual_seed(0)
    example = GRAPHS['random']()
    last = Softmax() if why == 'a module of its own' else torch.nn.ReLU()
    plain = pyg.GINEConv(torch.nn.Sequential(torch.nn.Linear(8, 4), last), edge_dim=4)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    if why == 'a hook':
        for layer in (plain, conv):
            layer.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    x = torch.randn(2, 60, 8)
    edge_attr = torch.randn(2, example.num_edges, 4) if why == 'features of each' else torch.randn(example.num_edges, 4)
    x = x[:0] if why == 'no features' else x
    torch.testing.assert_close(conv(x, example.edge_index, edge_attr), plain(x, example.edge_index, edge_attr))


@pytest.mark.parametrize('name', LAYERS)
def test_several_dimensions_before_that_of_nodes(name):
    plain, conv = made(name)
    x, edge_index = torch.randn(2, 3, 60, 8), GRAPHS['random']().edge_index
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index), rtol=1e-4, atol=1e-5)
    assert conv.note.reason is None


def test_what_is_saved_does_not_grow_with_edges():
    _, conv = made('GCN')
    x = torch.randn(5, 300, 8, requires_grad=True)
    saved = []
    for num_edges in (3000, 9000):
        edge_index = torch.randint(300, (2, num_edges))
        seen = {}

        def pack(tensor, seen=seen, edge_index=edge_index):
            if tensor.data_ptr() != edge_index.data_ptr():
                seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            conv(x, edge_index)
        saved.append(sum(seen.values()))
    assert saved[0] == saved[1]


def test_any_number_of_copies_takes_rows_of_few_widths(monkeypatch):
    example = GRAPHS['random']()
    _, conv = made('SAGE')
    widths, summed = set(), type(conv).sums_of

    def sums_of(self, inputs, *rest):
        widths.add(inputs.x[0].shape[1])
        return summed(self, inputs, *rest)

    monkeypatch.setattr(type(conv), 'sums_of', sums_of)
    for copies in range(1, 40):
        conv(torch.randn(copies, 60, 8), example.edge_index)
    assert widths == {8, 16, 32, 64, 128, 256}


@pytest.mark.parametrize(
    'why', ['no copies', 'an aggregation of its own', 'a dimension of nodes of its own', 'float16', 'a hook']
)
def test_what_is_refused_runs_by_pyg(why):
    example = GRAPHS['random']()
    plain, conv = made('SAGE')
    x = torch.randn(0 if why == 'no copies' else 2, 60, 8)
    if why == 'an aggregation of its own':
        torch.manual_seed(0)
        plain = pyg.SAGEConv(8, 4, aggr='std')
        conv = pygfuse.fuse(copy.deepcopy(plain))
    elif why == 'a dimension of nodes of its own':
        plain.node_dim = conv.node_dim = 1
    elif why == 'float16':
        plain, conv, x = plain.half(), conv.half(), x.half()
    elif why == 'a hook':
        for layer in (plain, conv):
            layer.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    torch.testing.assert_close(conv(x, example.edge_index), plain(x, example.edge_index))


def test_errors_name_what_is_wrong():
    example = GRAPHS['random']()
    _, conv = made('GCN')
    with pytest.raises(ValueError, match='edge_index'):
        conv(torch.randn(2, 30, 8), example.edge_index)
    with pytest.raises(ValueError, match='in_channels'):
        conv(torch.randn(2, 60, 9), example.edge_index)
