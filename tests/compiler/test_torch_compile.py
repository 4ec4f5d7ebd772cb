"""Compiled layers under ``torch.compile``: fused without a graph break, and guarded by what they read."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch._dynamo.testing import CompileCounter
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.compiler import test_own_convs as own
from tests.compiler import test_published_convs as published
from tests.compiler.cases import CASES
from tests.support import parity
from tests.support.parity import GRAPHS, random_edges

NODES, EDGES, FEATURES = 12, 40, 8
# of PyG's classes, those that PyG's own operators cannot be traced of
UNTRACED_IN_PYG = ('PANConv', 'SuperGATConv', 'HEATConv')
# why others run PyG's operators
_MAXIMUM = 'torch compiles no maximum of a network, whose weights decide whether edges tie'
REASONS = {
    'HANConv': 'torch compiles',
    'FiLMConv(num_relations=2)': 'torch compiles',
    'PPFConv': 'torch compiles no operators on chunks of edges',
    'PointNetConv(local_nn=Sequential)': _MAXIMUM,
    'network of maxima': _MAXIMUM,
    'interaction, max': _MAXIMUM,
}
# of the others each takes a second or two
QUICK = (
    'LEConv()',
    'ClusterGCNConv()',
    'GENConv()',
    'ARMAConv()',
    'naive attention',
    'gated',
    'embedded',
    'equivariant',
)
SCALE = 2.0


@pytest.fixture(autouse=True)
def _nothing_is_traced_yet():
    torch._dynamo.reset()


def _made(case):
    torch.manual_seed(0)
    return case.plain(**case.options), case.arguments(GRAPHS['random']())


def _own(name):
    torch.manual_seed(0)
    kind, names = own.CONVS[name]
    return kind(), own.arguments(GRAPHS['random'](), names)


LAYERS = {
    **{str(case): (lambda case=case: _made(case)) for case in CASES if case.name not in UNTRACED_IN_PYG},
    **{{'network': 'network of maxima'}.get(name, name): (lambda name=name: _own(name)) for name in own.CONVS},
    **{name: (lambda name=name: published.made(name, 'random')) for name in published.LAYERS},
}


def traced(conv):
    return torch.compile(conv, backend='aot_eager', fullgraph=True)


@pytest.mark.parametrize('name', [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in LAYERS])
def test_outputs_and_gradients_are_those_of_pyg(name):
    conv, given = LAYERS[name]()
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    pygfuse.compile(conv.double())
    eager = copy.deepcopy(conv)
    found = parity.results(traced(conv), given, torch.float64, 0)
    parity.assert_close({key.replace('_orig_mod.', ''): value for key, value in found.items()}, reference)
    reason = next((why for key, why in REASONS.items() if name.startswith(key)), None)
    if reason is None:
        parity.results(eager, given, torch.float64, 0)
        reason = eager.note.reason
    assert conv.note.reason == reason


class Weighed(MessagePassing):
    """What its messages read is set by its forward, by others, or around it.

    Attributes:
        power: A number.
        kind: A function.
    """

    def __init__(self) -> None:
        super().__init__('sum')
        self.lin = torch.nn.Linear(FEATURES, FEATURES)
        self.power, self.kind, self.shift = 1.0, torch.tanh, 0.0

    def forward(self, x, edge_index, shift=0.0):
        self.shift = shift
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.kind(self.lin(x_j) * self.power) * SCALE + self.shift * x_i


def _examples():
    torch.manual_seed(0)
    conv, given = Weighed(), {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, EDGES)}
    return conv, pygfuse.compile(copy.deepcopy(conv)), given


def _power(conv, monkeypatch):
    conv.power = 3.0


def _kind(conv, monkeypatch):
    conv.kind = torch.sigmoid


def _around(conv, monkeypatch):
    monkeypatch.setattr('tests.compiler.test_torch_compile.SCALE', 5.0)


def _submodule(conv, monkeypatch):
    conv.lin = torch.nn.Sequential(torch.nn.Tanh(), conv.lin)


def _parameter(conv, monkeypatch):
    conv.lin = copy.deepcopy(conv.lin)
    conv.lin.weight.data.neg_()


@pytest.mark.parametrize('change', [_power, _kind, _around, _submodule, _parameter], ids=lambda change: change.__name__)
def test_what_is_read_is_read_again(change, monkeypatch):
    conv, fused, given = _examples()
    compiled = traced(fused)
    torch.testing.assert_close(compiled(**given), conv(**given))
    assert fused.note.reason is None
    for one in (conv, fused):
        change(one, monkeypatch)
    before = conv(**given)
    torch.testing.assert_close(compiled(**given), before)
    assert fused.note.reason is None


def test_what_a_forward_sets_is_read_as_it_was_set():
    conv, fused, given = _examples()
    compiled = traced(fused)
    for shift in (0.0, 2.0, 3.0):
        torch.testing.assert_close(compiled(**given, shift=shift), conv(**given, shift=shift))
    torch.testing.assert_close(compiled(**given, shift=given['x'][0]), conv(**given, shift=given['x'][0]))


class Several(torch.nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return x


def test_layers_of_one_class_keep_their_own_parameters_and_numbers():
    made = [Weighed() for _ in range(3)]
    made[1].power = 2.0
    given = {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, EDGES)}
    fused = Several(*map(pygfuse.compile, copy.deepcopy(made)))
    torch.testing.assert_close(traced(fused)(**given), Several(*made)(**given))
    for layer, plain in zip(fused.layers, made, strict=True):
        torch.testing.assert_close(torch.compile(layer, backend='aot_eager')(**given), plain(**given))


def test_other_numbers_of_nodes_and_edges_compile_once_more():
    conv, fused, _ = _examples()
    counter = CompileCounter()
    compiled = torch.compile(fused, backend=counter, fullgraph=True)
    for nodes, edges in ((12, 40), (13, 50), (20, 70), (9, 31), (64, 300)):
        given = {'x': torch.randn(nodes, FEATURES), 'edge_index': random_edges(nodes, nodes, edges)}
        torch.testing.assert_close(compiled(**given), conv(**given))
    assert fused.note.reason is None
    assert counter.frame_count == 2


@pytest.mark.usefixtures('by_pyg')
def test_few_edges_run_what_torch_makes_of_operators(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_COMPILED', 60)
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_WORK', 0)
    conv, fused, _ = _examples()
    compiled = traced(fused)
    for edges, is_fused in ((40, False), (50, False), (70, True), (100, True)):
        given = {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, edges)}
        torch.testing.assert_close(compiled(**given), conv(**given))
        assert (fused.note.reason is None) == is_fused


@pytest.mark.usefixtures('by_pyg')
@pytest.mark.parametrize('kind', [pyg.SAGEConv, pyg.GATConv])
def test_written_layers_do_so_too(kind):
    conv = kind(FEATURES, FEATURES)
    fused = pygfuse.fuse(copy.deepcopy(conv))
    compiled = traced(fused)
    for edges, is_fused in ((900, False), (5000, True)):
        given = {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, edges)}
        torch.testing.assert_close(compiled(**given), conv(**given), rtol=1e-4, atol=1e-5)
        assert (fused.note.reason is None) == is_fused


@pytest.mark.parametrize('kind', [pyg.GCN2Conv, pyg.APPNP, pyg.SGConv], ids=lambda kind: kind.__name__)
def test_with_graph_breaks_beside_the_layer_of_pyg(kind):
    """Both have the code of one forward, of which torch keeps what it was compiled to."""
    options = {pyg.GCN2Conv: (FEATURES, 0.5), pyg.APPNP: (2, 0.1), pyg.SGConv: (FEATURES, FEATURES)}[kind]
    conv = kind(*options)
    x, edge_index = torch.randn(NODES, FEATURES), random_edges(NODES, NODES, EDGES)
    given = (x, x, edge_index) if kind is pyg.GCN2Conv else (x, edge_index)
    fused = pygfuse.fuse(copy.deepcopy(conv))
    expected = torch.compile(conv, backend='eager')(*given)
    for _ in range(2):
        torch.testing.assert_close(torch.compile(fused, backend='eager')(*given), expected)


def test_what_is_stored_is_there_afterwards():
    conv, given = published.made('gated', 'random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    traced(fused)(**given)
    conv(**given)
    assert fused.note.reason is None
    for stored in (name for name, value in vars(conv).items() if isinstance(value, torch.Tensor)):
        torch.testing.assert_close(getattr(fused, stored), getattr(conv, stored))


def test_autocast_runs_the_operators_of_pyg():
    conv, fused, given = _examples()
    with torch.autocast('cpu', torch.bfloat16):
        expected, found = conv(**given), traced(fused)(**given)
    assert fused.note.reason == 'autocast is on'
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


class Dropped(MessagePassing):
    def __init__(self) -> None:
        super().__init__('sum')
        self.lin = torch.nn.Linear(FEATURES, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return F.dropout(torch.sigmoid(self.lin(x_i + x_j)), 0.5, training=self.training) * x_j


def test_dropout_draws_anew_in_each_call_and_not_in_evaluation():
    conv = Dropped()
    fused = pygfuse.compile(copy.deepcopy(conv))
    given = {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, EDGES)}
    compiled = traced(fused)
    first, second = compiled(**given), compiled(**given)
    assert fused.note.reason is None
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    mean = sum(compiled(**given) for _ in range(400)) / 400
    torch.testing.assert_close(mean, conv.eval()(**given), rtol=0.3, atol=0.3)
    torch.testing.assert_close(traced(fused.eval())(**given), conv(**given))


def test_an_export_is_of_the_operators_of_pyg():
    conv, fused, given = _examples()
    exported = torch.export.export(fused, (), given)
    assert not any('pygfuse' in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(**given), conv(**given))


class Unit(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j / x_j.norm(dim=-1, keepdim=True)


def test_nodes_without_edges_have_no_part_in_gradients():
    x = torch.randn(NODES, FEATURES)
    x[0] = 0.0
    edge_index = random_edges(NODES - 1, NODES, EDGES) + torch.tensor([[1], [0]])
    found = []
    for layer in (Unit(), traced(fused := pygfuse.compile(Unit()))):
        leaf = x.clone().requires_grad_()
        out = layer(leaf, edge_index)
        found.append((out, *torch.autograd.grad(out.sum() + out.square().sum(), leaf)))
    assert fused.note.reason is None
    torch.testing.assert_close(found[1], found[0])


class Updated(MessagePassing):
    def forward(self, x, edge_index, edge_weight=None, some=None):
        if some is not None:
            edge_index, edge_weight = edge_index[:, some], edge_weight[some > 0]
        return self.propagate(edge_index, x=x, edge_weight=edge_weight, before=x)

    def message(self, x_j, edge_weight):
        return x_j.tanh() * edge_weight.view(-1, 1)

    def update(self, inputs, before):
        return inputs + before


def test_what_updates_read_compiles_nothing_anew():
    conv, counter = Updated(), CompileCounter()
    fused = pygfuse.compile(Updated())
    compiled = torch.compile(fused, backend=counter, fullgraph=True)
    for nodes, edges in ((12, 40), (13, 50), (20, 70), (9, 31)):
        given = {'x': torch.randn(nodes, FEATURES), 'edge_index': random_edges(nodes, nodes, edges)}
        given['edge_weight'] = torch.rand(edges)
        torch.testing.assert_close(compiled(**given), conv(**given))
    assert fused.note.reason is None
    assert counter.frame_count == 2


def test_edges_that_a_forward_has_chosen():
    """Nobody knows that as many weights were chosen as edges."""
    conv, fused = Updated(), pygfuse.compile(Updated())
    given = {'x': torch.randn(NODES, FEATURES), 'edge_index': random_edges(NODES, NODES, EDGES)}
    given |= {'edge_weight': torch.rand(EDGES), 'some': torch.rand(EDGES) > 0.5}
    torch.testing.assert_close(traced(fused)(**given), conv(**given))


@pytest.mark.slow
def test_all_sizes_may_change():
    conv, fused, given = _examples()
    compiled = torch.compile(fused, backend='aot_eager', fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(**given), conv(**given))
    assert fused.note.reason is None


def test_types_without_networks_run_the_operators_of_pyg():
    conv, given = LAYERS['network, mean']()
    fused = pygfuse.compile(copy.deepcopy(conv)).bfloat16()
    given['x'] = given['x'].bfloat16()
    torch.testing.assert_close(traced(fused)(**given), conv.bfloat16()(**given))
    assert fused.note.reason is not None
