from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.models import dimenet

import pygfuse
from pygfuse.conv import GATConv
from tests.compiler import own_modules
from tests.support.parity import GRAPHS, random_edges
from tests.support.reports import OwnConv, report_of

FEATURES = 6
GRAPH = GRAPHS['random']()


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = pyg.GATConv(FEATURES, 8, heads=4, dropout=dropout)
        self.blocks = nn.ModuleList([nn.ModuleDict({'conv': pyg.GATConv(32, 8, heads=4)})])
        self.other = pyg.GCNConv(32, 3)

    def forward(self, x, edge_index):
        x = F.elu(self.first(x, edge_index))
        x = F.elu(self.blocks[0]['conv'](x, edge_index))
        return self.other(x, edge_index)


def test_fuse_swaps_nested_layers_in_place():
    model = Net()
    layers = (model.first, model.blocks[0]['conv'])
    assert pygfuse.fuse(model) is model
    assert (model.first, model.blocks[0]['conv']) == layers
    assert [type(layer) for layer in layers] == [GATConv, GATConv]
    assert type(model.other) is pyg.GCNConv or type(model.other).__module__.startswith('pygfuse')


def test_fuse_keeps_parameters_and_results():
    model = Net()
    parameters = dict(model.named_parameters())
    keys, text = list(model.state_dict()), repr(model)
    expected = model(GRAPH.x(FEATURES), GRAPH.edge_index)
    pygfuse.fuse(model)
    found = dict(model.named_parameters())
    assert list(found) == list(parameters)
    assert all(found[name] is parameter for name, parameter in parameters.items())
    assert list(model.state_dict()) == keys
    assert repr(model) == text
    torch.testing.assert_close(model(GRAPH.x(FEATURES), GRAPH.edge_index), expected)


def test_fuse_keeps_hooks_and_modes():
    model = Net()
    called = []
    model.first.register_forward_hook(lambda *arguments: called.append('forward'))
    model.first.register_forward_pre_hook(lambda *arguments: called.append('before'))
    model.eval()
    pygfuse.fuse(model)
    assert not model.first.training
    model(GRAPH.x(FEATURES), GRAPH.edge_index)
    assert called == ['before', 'forward']
    assert model.first.note.reason is None


def test_fuse_keeps_what_an_optimizer_holds():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pygfuse.fuse(model)
    before = model.first.lin.weight.detach().clone()
    model(GRAPH.x(FEATURES), GRAPH.edge_index).sum().backward()
    optimizer.step()
    assert not torch.equal(model.first.lin.weight, before)


def test_fuse_and_unfuse_may_be_repeated():
    model = Net()
    kinds = [type(module) for module in model.modules()]
    for _ in range(2):
        pygfuse.fuse(pygfuse.fuse(model))
        assert type(model.first) is GATConv
        pygfuse.unfuse(pygfuse.unfuse(model))
        assert [type(module) for module in model.modules()] == kinds
    model(GRAPH.x(FEATURES), GRAPH.edge_index)


def test_fuse_of_a_single_layer():
    conv = pyg.GATConv(FEATURES, 8)
    assert type(pygfuse.fuse(conv)) is GATConv
    assert type(pygfuse.unfuse(conv)) is pyg.GATConv


@pytest.mark.parametrize('function', [pygfuse.fuse, pygfuse.unfuse])
def test_what_is_no_module(function):
    with pytest.raises(TypeError, match=r"'model'.*int"):
        function(3)


def test_a_subclass_is_compiled_as_it_is():
    model = nn.ModuleList([OwnConv(FEATURES, 8)])
    expected = model[0](GRAPH.x(FEATURES), GRAPH.edge_index)
    pygfuse.fuse(model)
    assert isinstance(model[0], OwnConv)
    torch.testing.assert_close(model[0](GRAPH.x(FEATURES), GRAPH.edge_index), expected)
    assert [row.why_not for row in report_of(model)[1]] == [None]


def test_a_subclass_is_left_alone_if_asked():
    model = nn.ModuleList([OwnConv(FEATURES, 8)])
    pygfuse.fuse(model, compile=False)
    assert type(model[0]) is OwnConv
    assert [row.why_not for row in report_of(model)[1]] == ['call pygfuse.compile(conv)']


def test_a_layer_used_twice_stays_one():
    conv = pyg.GATConv(8, 8)
    model = nn.ModuleList([conv, conv])
    pygfuse.fuse(model)
    assert model[0] is model[1] is conv


def test_a_sequential_of_pyg_runs_fused():
    torch.manual_seed(0)
    model = pyg.Sequential(
        'x, edge_index',
        [(pyg.GATConv(FEATURES, 8, heads=4), 'x, edge_index -> x'), nn.ReLU(), (nn.Linear(32, 2), 'x -> x')],
    )
    twin = pygfuse.fuse(copy.deepcopy(model))
    x = GRAPH.x(FEATURES)
    torch.testing.assert_close(twin(x, GRAPH.edge_index), model(x, GRAPH.edge_index))
    _, rows = report_of(twin)
    assert [row.why_not for row in rows] == [None]


def hetero() -> tuple[nn.Module, dict, dict]:
    node_types, edge_types = ['a', 'b'], [('a', 'to', 'b'), ('b', 'back', 'a'), ('a', 'self', 'a')]

    class Homogeneous(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv((-1, -1), 8, heads=4, add_self_loops=False)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).relu()

    model = pyg.to_hetero(Homogeneous(), (node_types, edge_types))
    sizes = {'a': 20, 'b': 30}
    x = {name: torch.randn(size, FEATURES) for name, size in sizes.items()}
    edges = {kind: random_edges(sizes[kind[0]], sizes[kind[2]], 80) for kind in edge_types}
    return model, x, edges


def test_a_model_made_heterogeneous_runs_fused():
    torch.manual_seed(0)
    model, x, edges = hetero()
    expected = model(x, edges)
    pygfuse.fuse(model)
    found = model(x, edges)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])
    _, rows = report_of(model)
    assert len(rows) == 3
    assert all(row.why_not is None for row in rows)


def test_a_hetero_conv_runs_fused():
    torch.manual_seed(0)
    edges = {('a', 'to', 'b'): random_edges(20, 30, 80), ('b', 'to', 'a'): random_edges(30, 20, 80)}
    x = {'a': torch.randn(20, FEATURES), 'b': torch.randn(30, FEATURES)}
    kinds = {kind: pyg.GATConv((FEATURES, FEATURES), 8, heads=4, add_self_loops=False) for kind in edges}
    model = pyg.HeteroConv(kinds)
    expected = model(x, edges)
    found = pygfuse.fuse(model)(x, edges)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


# Training


def losses(model, x, edge_index, y, steps: int = 20) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_model_trains_as_with_pyg():
    torch.manual_seed(0)
    model = Net().double()
    x, y = GRAPH.x(FEATURES).double(), torch.randint(3, (60,))
    twin = pygfuse.fuse(copy.deepcopy(model))
    expected = losses(model, x, GRAPH.edge_index, y)
    found = losses(twin, x, GRAPH.edge_index, y)
    assert expected[-1] < 0.9 * expected[0]
    assert found == pytest.approx(expected, rel=1e-8)


def test_a_model_trains_as_with_pyg_in_single_precision():
    torch.manual_seed(0)
    model = Net()
    x, y = GRAPH.x(FEATURES), torch.randint(3, (60,))
    twin = pygfuse.fuse(copy.deepcopy(model))
    expected = losses(model, x, GRAPH.edge_index, y)
    assert losses(twin, x, GRAPH.edge_index, y) == pytest.approx(expected, abs=1e-5)


# Which layers


def fused_of(model) -> list[str]:
    return [name for name, layer in model.named_modules() if type(layer).__module__.startswith('pygfuse')]


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({'include': pyg.GATConv}, ['first', 'blocks.0.conv']),
        ({'include': 'blocks.*'}, ['blocks.0.conv']),
        ({'include': ['first', pyg.GCNConv]}, ['first', 'other']),
        ({'exclude': 'first'}, ['blocks.0.conv', 'other']),
        ({'exclude': (pyg.GATConv,)}, ['other']),
        ({'include': pyg.GATConv, 'exclude': 'first'}, ['blocks.0.conv']),
        ({'include': 'first', 'exclude': pyg.GCNConv}, ['first']),
        ({'include': pyg.MessagePassing, 'exclude': pyg.MessagePassing}, []),
    ],
)
def test_chosen_layers_are_fused(options, expected):
    assert fused_of(pygfuse.fuse(Net(), **options)) == expected


@pytest.mark.parametrize(
    ('options', 'error', 'message'),
    [
        (
            {'include': 'frist'},
            ValueError,
            r"'include' to choose layers of the model \(got 'frist'; its layers are",
        ),
        (
            {'exclude': pyg.GINConv},
            ValueError,
            r"'exclude' to choose .* \(got GINConv; its layers are: first \(GATConv",
        ),
        ({'exclude': 3}, TypeError, r"'exclude' to hold classes and names of layers \(got 3, a int\)"),
        ({'include': ['first', None]}, TypeError, r"'include' to hold classes and names of layers \(got None"),
    ],
)
def test_a_choice_of_nothing_is_an_error(options, error, message):
    model = Net()
    with pytest.raises(error, match=message):
        pygfuse.fuse(model, **options)
    assert fused_of(model) == []


def test_strict_names_what_has_no_fused_form_and_changes_nothing():
    model = nn.ModuleDict({'a': pyg.GATConv(4, 4), 'own': OwnConv(4, 4)})
    with pytest.raises(ValueError, match=r'under .strict. \(got own \(OwnConv\): call pygfuse.compile\(conv\)\)'):
        pygfuse.fuse(model, compile=False, strict=True)
    assert fused_of(model) == []
    assert fused_of(pygfuse.fuse(model, compile=False, strict=True, exclude='own')) == ['a']


@pytest.mark.parametrize(
    ('model', 'level', 'text'),
    [
        (Net(), 'INFO', '3 of 3 convolutions fused; see pygfuse.report(model)'),
        (nn.Linear(2, 2), 'WARNING', 'nothing was fused: the model has no message passing layers'),
        (
            own_modules.WithinOthers(),
            'WARNING',
            'nothing was fused: the model has no message passing layers; pygfuse.fuse(model, include=...) compiles '
            'modules that take edges (Mean)',
        ),
    ],
)
def test_what_was_fused_is_logged(model, level, text, caplog):
    with caplog.at_level('INFO', logger='pygfuse'):
        pygfuse.fuse(model)
    assert [(record.levelname, record.message) for record in caplog.records] == [(level, text)]


def test_modules_of_pyg_that_gather_themselves():
    torch.manual_seed(0)
    sizes = {'num_spherical': 3, 'num_radial': 2, 'num_before_skip': 1, 'num_after_skip': 1, 'act': F.silu}
    rows, of_kj, of_ji = torch.randn(40, 8), torch.randint(40, (200,)), torch.randint(40, (200,))
    arguments = rows, torch.randn(40, 2), torch.randn(200, 6), of_kj, of_ji
    model = nn.ModuleDict({
        'first': dimenet.InteractionBlock(8, 4, **sizes),
        'second': dimenet.InteractionPPBlock(8, 4, 2, **sizes),
        'links': pyg.InnerProductDecoder(),
    })  # fmt: skip
    model['first'].W.data.normal_()
    expected = [model[name](*arguments) for name in ('first', 'second')]
    links = model['links'](rows, torch.stack([of_kj, of_ji]), sigmoid=False)
    pygfuse.fuse(model)
    for name, wanted in zip(('first', 'second'), expected, strict=True):
        torch.testing.assert_close(model[name](*arguments), wanted)
    torch.testing.assert_close(model['links'](rows, torch.stack([of_kj, of_ji]), sigmoid=False), links)
    assert [row.why_not for row in pygfuse.report(model).rows] == [None] * 3
    unfused = pygfuse.unfuse(model)
    assert type(unfused['links']) is pyg.InnerProductDecoder
    pygfuse.fuse(model, compile=False)
    assert {row.why_not for row in pygfuse.report(model).rows} == {'call pygfuse.compile(conv)'}
