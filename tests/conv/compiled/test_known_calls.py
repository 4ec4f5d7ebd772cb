"""A call of a compiled layer like an earlier one is looked at less: what changes in between is noticed all the same."""

import copy
import gc
import types
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.conv._compiled import compiled_conv
from pygfuse.conv._compiled.compiled_conv import CompiledConv
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.compiler.own_convs import HeadedAttention, Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 30, 120
EDGE_INDEX = random_edges(NODES, NODES, EDGES)


class Weighed(Own):
    """A message that reads something of every kind."""

    def __init__(self):
        super().__init__()
        self.lin, self.by = torch.nn.Linear(WIDTH, WIDTH), 2.0
        self.weight = torch.nn.Parameter(torch.randn(WIDTH))

    def message(self, x_i, x_j, edge_attr, scale, power):
        found = (self.lin(x_j) - x_i) * edge_attr * self.weight * scale * self.by * power
        return found if self.training else found + 1.0

    def update(self, inputs, shift):
        return inputs + shift


class Storing(Own):
    """A layer that keeps what it gave for somebody who asks."""

    def forward(self, x, edge_index):
        self.stored = self.propagate(edge_index, x=x)
        return self.stored * 1.0

    def message(self, x_i, x_j):
        return x_j * x_i


class StoringSum(pyg.SAGEConv):
    def forward(self, x, edge_index, size=None):
        self.stored = super().forward(x, edge_index, size)
        return self.stored * 1.0


def features(rows=NODES, width=WIDTH, seed=5, dtype=torch.float32):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def given():
    return {
        'edge_index': EDGE_INDEX,
        'x': features(),
        'edge_attr': features(EDGES, 1),
        'scale': features(WIDTH, 1)[:, 0],
        'shift': 0.0,
        'power': 1,
    }


def known(kind=Weighed, arguments=given):
    """A layer whose next call, if nothing changes, is like those before."""
    torch.manual_seed(3)
    conv = pygfuse.compile(kind())
    for _ in range(2):
        conv(**arguments())
    return conv


def check(conv, arguments):
    """The layer's numbers are those of its own class, gradients too."""
    plain = pygfuse.unfuse(copy.deepcopy(conv))
    edge_attr = arguments['edge_attr'].clone().requires_grad_()
    found = []
    for module in (conv, plain):
        inputs = [edge_attr, *module.parameters()]
        out = module(**arguments | {'edge_attr': edge_attr})
        # a change may leave out some, or all
        loss = out.square().sum() + 0 * edge_attr.sum()
        found.append([out, *torch.autograd.grad(loss, inputs, materialize_grads=True)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)


@pytest.fixture
def looks(monkeypatch):
    """The calls that are looked at, since the last time it was cleared."""
    found, planned = [], CompiledConv._planned
    monkeypatch.setattr(CompiledConv, '_planned', lambda *arguments: found.append(arguments) or planned(*arguments))
    return found


def headed():
    return {'edge_index': EDGE_INDEX, 'x': features(), 'edge_attr': features(EDGES, 3)}


@pytest.mark.parametrize(('kind', 'arguments'), [(Weighed, given), (HeadedAttention, headed)])
def test_a_call_like_an_earlier_one_is_not_looked_at(kind, arguments, looks):
    conv = known(kind, arguments)
    looks.clear()
    check(conv, arguments())
    assert not looks
    assert conv.note.reason is None


def test_numbers_of_nodes_and_edges_may_change(looks):
    conv = known()
    looks.clear()
    others = {'edge_index': random_edges(50, 50, 90, seed=4), 'x': features(50), 'edge_attr': features(90, 1)}
    check(conv, given() | others)
    assert not looks


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


CHANGES = {
    'flag': lambda conv: conv.eval(),
    'number': lambda conv: setattr(conv, 'by', 3.0),
    'parameter': lambda conv: setattr(conv, 'weight', torch.nn.Parameter(torch.ones(1))),
    'hook on a part': lambda conv: conv.lin.register_forward_hook(lambda module, args, out: out + 1),
    'hook on messages': lambda conv: conv.register_message_forward_hook(lambda module, args, out: out + 1),
    'forward of a part': lambda conv: setattr(conv.lin, 'forward', lambda x: x + 1),
    'part': lambda conv: setattr(conv, 'lin', Doubled(WIDTH, WIDTH)),
    'message': lambda conv: setattr(conv, 'message', lambda x_j, **others: x_j + 1),
    'aggregation': lambda conv: setattr(conv, 'aggr_module', pyg.aggr.MaxAggregation()),
    'flow': lambda conv: setattr(conv, 'flow', 'target_to_source'),
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_layer_is_noticed(change):
    conv = known()
    change(conv)
    check(conv, given())


@pytest.mark.parametrize('name', ['message', 'aggregate', 'update', '_collect', '_lift'])
def test_a_change_of_the_class_behind_it_is_noticed(name, monkeypatch, looks):
    kind = type('Kind', (Weighed,), {})
    conv = known(kind)
    monkeypatch.setattr(kind, name, copied(getattr(kind, name)))
    looks.clear()
    check(conv, given())
    assert looks


def copied(function):
    """The same function as another object."""
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)


ARGUMENTS = {
    'pair': lambda: {'x': (features(), features(seed=7))},
    'wider features': lambda: {'x': features(seed=7), 'scale': features(1)[0]},
    'one number for all': lambda: {'scale': torch.tensor(3.0)},
    'shared number': lambda: {'scale': features(1, 1)[0]},
    'as many as edges': lambda: {'scale': features(EDGES, 1)},
    'number in place of a tensor': lambda: {'scale': 2.0},
    'another number': lambda: {'power': 3},
    'argument of update': lambda: {'shift': 2.0},
    'one row for all edges': lambda: {'edge_attr': features(1, 1)},
    'shared edge feature': lambda: {'edge_attr': features(1)[0]},
}


@pytest.mark.parametrize('change', ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_change_of_the_arguments_is_noticed(change):
    check(known(), given() | change())


def test_both_tensors_of_a_pair_are_told_apart():
    x = features()
    conv = known(arguments=lambda: given() | {'x': (x, x)})
    check(conv, given() | {'x': (features(), features(seed=7))})


def test_a_write_to_the_edges_is_noticed():
    conv, edge_index = known(), EDGE_INDEX.clone()
    for _ in range(2):
        check(conv, given() | {'edge_index': edge_index})
        edge_index[1, 0] = (edge_index[1, 0] + 1) % NODES


class Plain(Own):
    def message(self, x_j, y_j):
        return 2 * x_j


def pair_of_features():
    return {'edge_index': EDGE_INDEX, 'x': features(), 'y': features()}


def test_sizes_and_edges_are_looked_at():
    conv = known(Plain, pair_of_features)
    assert conv(**pair_of_features(), size=(NODES, NODES + 5)).shape == (NODES + 5, WIDTH)
    with pytest.raises(ValueError, match='Encountered tensor with size 5'):
        conv(**pair_of_features() | {'y': features(5)})
    conv(**pair_of_features() | {'edge_index': EDGE_INDEX[:, :0]})
    assert conv.note.reason == 'there are no edges'


@pytest.mark.parametrize('options', [{'flow': 'target_to_source'}, {'node_dim': -2}], ids=['reversed', 'stacked'])
def test_other_kinds_of_layers_stay_right(options):
    def arguments():
        x = features()
        x = x.view(2, -1, WIDTH) if 'node_dim' in options else x
        return {'edge_index': EDGE_INDEX % x.shape[-2], 'x': x, 'y': x}

    conv = known(lambda: Plain(**options), arguments)
    torch.testing.assert_close(conv(**arguments()), pygfuse.unfuse(copy.deepcopy(conv))(**arguments()))


@pytest.mark.parametrize('within', [lambda: torch.autocast('cpu', torch.bfloat16), pygfuse.used_once])
def test_what_is_said_around_a_call_is_noticed(within, looks):
    conv = known()
    looks.clear()
    with within():
        conv(**given())
    assert looks


@pytest.mark.parametrize('kind', [pyg.LGConv, pyg.SimpleConv, lambda: pyg.ARMAConv(WIDTH, 4, num_stacks=2)])
@pytest.mark.parametrize('calls_before', [0, 1, 2])
def test_a_checkpoint_of_a_first_call_saves_what_a_known_call_saves(kind, calls_before):
    conv, x = pygfuse.compile(kind()), features().requires_grad_()
    for _ in range(calls_before):
        conv(x, EDGE_INDEX)
    checkpoint(conv, x, EDGE_INDEX, use_reentrant=False).sum().backward()
    assert conv.note.reason is None


def test_sizes_that_are_given(looks):
    plain = pyg.HypergraphConv(WIDTH, 4)
    conv = pygfuse.compile(copy.deepcopy(plain))
    for seed in range(4):
        looks.clear()
        edges = random_edges(NODES + seed, 7, EDGES, seed)
        x = features(NODES + seed)
        torch.testing.assert_close(conv(x, edges), plain(x, edges))
    assert looks == []
    with pytest.raises(ValueError, match='size'):
        conv.propagate(EDGE_INDEX, x=features(), norm=torch.ones(NODES), alpha=None, size=(NODES + 1, NODES))


class Sized(Own):
    """A layer whose arguments do not tell the number of targets."""

    def forward(self, x, edge_index, num_targets):
        return self.propagate(edge_index, x=(x, None), size=(x.shape[0], num_targets))

    def message(self, x_j):
        return 2 * x_j


def test_sizes_that_nothing_else_tells(looks):
    conv = pygfuse.compile(Sized())
    for num_targets in (9, 12, 9, 7):
        looks.clear()
        edges, x = random_edges(NODES, 7, EDGES), features()
        torch.testing.assert_close(conv(x, edges, num_targets), Sized()(x, edges, num_targets))
    assert looks == []


def test_stacked_features(looks):
    plain = pyg.ARMAConv(WIDTH, 4, num_stacks=3)
    conv = pygfuse.compile(copy.deepcopy(plain))
    for seed in range(4):
        looks.clear()
        edges, x = random_edges(NODES + seed, NODES + seed, EDGES, seed), features(NODES + seed).requires_grad_()
        found, expected = conv(x, edges), plain(x, edges)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), x) for out in (found, expected)))
    assert looks == []


@pytest.mark.parametrize('make', [lambda: Storing(), lambda: pyg.SuperGATConv(WIDTH, WIDTH, heads=2)])
def test_tensors_that_a_layer_stores_in_each_call_do_not_matter(make, looks):
    torch.manual_seed(3)
    conv, arguments = pygfuse.compile(make()), {'x': features().requires_grad_(), 'edge_index': EDGE_INDEX}
    for _ in range(2):
        conv(**arguments)
    looks.clear()
    for _ in range(2):
        conv(**arguments)
    assert not looks


@pytest.mark.parametrize('make', [lambda: pygfuse.compile(Storing()), lambda: pygfuse.fuse(StoringSum(WIDTH, WIDTH))])
def test_what_is_stored_does_not_live_on(make):
    conv, x = make(), features().requires_grad_()
    conv(x, EDGE_INDEX)
    stored = weakref.ref(conv.stored)
    conv(x, EDGE_INDEX)
    gc.collect()
    assert stored() is None


class OfPairs(Own):
    """With pairs, triples and dicts of features, as equivariant layers hand them over."""

    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(3 * WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
        )

    def message(self, x_i, x_j, of_edges):
        first, second = (of_edges['a'], of_edges['b']) if isinstance(of_edges, dict) else of_edges[:2]
        return x_j * self.network(torch.cat([x_i, first, second], dim=-1))


def _in_a_pair(first, second):
    return first, second


def _in_a_triple(first, second):
    return first, second, None


@pytest.mark.usefixtures('by_pyg')
@pytest.mark.parametrize('held', [_in_a_pair, _in_a_triple])
def test_few_edges_run_pygs_operators_whatever_holds_the_arguments(held):
    torch.manual_seed(0)
    layer = OfPairs()
    fused = pygfuse.compile(copy.deepcopy(layer))
    for edges, reason in (
        (100, SO_FEW_EDGES),
        (100, SO_FEW_EDGES),
        (10_000, None),
        (10_000, None),
        (100, SO_FEW_EDGES),
    ):
        edge_index, of_edges = random_edges(NODES, NODES, edges), held(*torch.randn(2, edges, WIDTH))
        found, wanted = (one(edge_index, x=features(), of_edges=of_edges) for one in (fused, layer))
        torch.testing.assert_close(found, wanted)
        assert fused.note.reason == reason


@pytest.mark.usefixtures('by_pyg')
def test_few_edges_run_pygs_operators_whatever_the_flow():
    torch.manual_seed(0)
    layer = OfPairs()
    layer.flow = 'target_to_source'
    fused, of_edges = pygfuse.compile(copy.deepcopy(layer)), torch.randn(2, EDGES, WIDTH)
    for _ in range(2):
        found, wanted = (one(EDGE_INDEX, x=features(), of_edges=(*of_edges, None)) for one in (fused, layer))
        torch.testing.assert_close(found, wanted)
        assert fused.note.reason == SO_FEW_EDGES


class OfEnds(Own):
    """With two kinds of calls by turns, whose values have other widths."""

    def forward(self, x, edge_index):
        wide = self.propagate(edge_index, x=x)
        return wide + self.propagate(edge_index.flip(0), x=x[:, :2]).sum(dim=1, keepdim=True)

    def message(self, x_i, x_j):
        return torch.tanh(x_i - x_j)


@pytest.fixture
def kinds(monkeypatch):
    """The calls whose kind is asked for, since the last time it was cleared."""
    found = []
    asked = compiled_conv.kind_of_call
    monkeypatch.setattr(compiled_conv, 'kind_of_call', lambda *arguments: found.append(arguments) or asked(*arguments))
    return found


@pytest.mark.usefixtures('by_pyg')
def test_calls_with_few_edges_are_told_by_their_number(kinds):
    conv, plain, x = pygfuse.compile(OfEnds()), OfEnds(), features()
    for _ in range(3):
        conv(x, EDGE_INDEX)
    kinds.clear()
    for edges in (EDGES, EDGES - 20):
        torch.testing.assert_close(conv(x, EDGE_INDEX[:, :edges]), plain(x, EDGE_INDEX[:, :edges]))
        assert conv.note.reason == SO_FEW_EDGES
    assert not kinds


@pytest.mark.usefixtures('by_pyg')
def test_other_calls_are_looked_at_again(kinds):
    conv = pygfuse.compile(OfEnds())
    for _ in range(3):
        conv(features(), EDGE_INDEX)
    many = random_edges(NODES, NODES, 5000)
    asked = [
        lambda: conv(features(), many),
        lambda: conv(features(width=2 * WIDTH), EDGE_INDEX),
        lambda: conv.eval()(features(), EDGE_INDEX),
        lambda: torch.no_grad()(conv.train())(features(), EDGE_INDEX),
    ]
    for call in asked:
        kinds.clear()
        call()
        assert kinds
    conv(features(), many)
    assert conv.note.reason is None


@pytest.mark.usefixtures('by_pyg')
def test_few_edges_are_not_asked_for_what_changes(kinds):
    conv, heard = pygfuse.compile(OfEnds()), []
    for _ in range(3):
        conv(features(), EDGE_INDEX)
    kinds.clear()
    conv.register_message_forward_hook(lambda module, args, out: heard.append(out) or 2 * out)
    plain = pygfuse.unfuse(copy.deepcopy(conv))
    torch.testing.assert_close(conv(features(), EDGE_INDEX), plain(features(), EDGE_INDEX))
    assert len(heard) == 4
    assert not kinds
