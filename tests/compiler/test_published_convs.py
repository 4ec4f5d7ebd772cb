"""Layers as published code writes them: the same numbers, what they store included, and as little in memory."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch_geometric
import torch_geometric.nn as pyg
from torch.nn import Embedding, Linear, Sequential, Tanh
from torch_geometric.utils import scatter, softmax

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.published_convs import (
    EDGES,
    LAYERS,
    NODES,
    RELATIONS,
    Embedded,
    GatedGCN,
    Interaction,
    Published,
    StoredAttention,
)
from tests.support.parity import GRAPHS, random_edges


def made(name, graph):
    torch.manual_seed(0)
    kind, arguments = LAYERS[name]
    example = GRAPHS[graph]()
    return kind(), {**arguments(example), 'edge_index': example.edge_index}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges', 'path', 'self-loops'])
@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    conv, given = made(name, graph)
    assert_as_pyg(conv, given)
    assert conv.plans()
    assert not any(plan.chunked_reductions for plan in conv.plans())


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('name', LAYERS)
def test_few_edges(name):
    conv, given = made(name, 'random')
    assert_as_pyg(conv, given)


@pytest.mark.parametrize('name', LAYERS)
def test_calls_like_the_one_before(name):
    conv, _ = made(name, 'random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    for graph in ('random', 'path', 'random', 'no edges', 'repeated edges'):
        _, given = made(name, graph)
        expected, found = conv(**given), fused(**given)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


# numbers of an edge that are kept for backward: what networks give, what is returned, rows of tables, and copies
KEPT = {
    'gated': NODES,
    'stored attention': 2,
    'difference of a relation': 4,
    'vector attention': 2 * 12,
    'gated by itself': 11,
}


@pytest.mark.parametrize('name', KEPT)
def test_so_many_numbers_of_an_edge_are_kept(name):
    kind, arguments = LAYERS[name]
    conv = pygfuse.compile(kind())

    def kept(num_edges):
        example = GRAPHS['random']()
        given = arguments(type(example)(random_edges(60, 60, num_edges), 60, 60))
        given['edge_index'] = random_edges(60, 60, num_edges)
        given['x'].requires_grad_()
        conv(**given)  # sorts the edges
        # what a module outside of the messages computes of edges is kept by it
        exclude = [*given.values(), *conv.parameters()]
        return saved_bytes(lambda: conv(**given), exclude=exclude)

    growth = (kept(40_000) - kept(20_000)) / 20_000
    # features of edges are mapped before
    assert growth <= 4 * (KEPT[name] + (NODES if name == 'gated' else 0))


# What is stored


def test_what_is_stored_is_that_call_s():
    conv, given = made('interaction', 'random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    for scale in (1.0, 2.0):
        given['edge_attr'] = given['edge_attr'] * scale
        conv(**given), fused(**given)
        torch.testing.assert_close(fused.state, conv.state)
        assert fused.note.reason is None


def test_what_is_stored_has_a_gradient():
    conv, given = made('stored attention', 'random')
    fused, chosen = pygfuse.compile(copy.deepcopy(conv)), torch.randn(given['edge_index'].shape[1], 2)
    gradients = []
    for layer in (conv, fused):
        layer(**given)
        gradients.append(torch.autograd.grad((layer.attention * chosen).sum(), [*layer.parameters()][:2]))
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize('name', ['stored attention', 'interaction'])
def test_what_is_stored_is_let_go(name):
    conv, given = made(name, 'random')
    pygfuse.compile(conv)
    attribute = {'stored attention': 'attention', 'interaction': 'state'}[name]
    conv(**given)
    first = weakref.ref(getattr(conv, attribute))
    conv(**given)
    gc.collect()
    assert first() is None


def test_a_copy_stores_in_itself():
    conv, given = made('interaction', 'random')
    pygfuse.compile(conv)
    conv(**given)
    conv.state = None
    other = copy.deepcopy(conv)
    other(**given)
    assert conv.state is None
    assert other.state is not None


class ReadAgain(Published):
    """What the message stored is read by ``aggregate``, and deleted."""

    def message(self, x_i, x_j):
        self.gate = torch.sigmoid(x_i * x_j)
        return x_j

    def aggregate(self, inputs, index, dim_size=None):
        gate = self.gate
        del self.gate
        return scatter(gate * inputs, index, 0, dim_size, reduce='sum')


def test_what_is_stored_may_be_read_and_deleted():
    conv, given = ReadAgain(), {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)}
    assert_as_pyg(conv, given)
    assert not hasattr(conv, 'gate')


class StoresAParameter(Published):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(NODES))

    def message(self, x_j):
        self.weight = x_j
        return x_j


class StoresANumberOfEdges(Published):
    def message(self, x_j):
        self.count = x_j.shape[0]
        return x_j


REFUSED = {
    StoresANumberOfEdges: 'it stores a value in count',
    StoresAParameter: 'it stores a value in weight',
}


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_cannot_be_stored_says_why(kind):
    conv = pygfuse.compile(kind())
    if kind is StoresAParameter:
        with pytest.raises(TypeError, match='weight'):
            conv(random_edges(20, 20, 90), x=torch.randn(20, NODES))
    else:
        conv(random_edges(20, 20, 90), x=torch.randn(20, NODES))
    assert conv.note.reason == REFUSED[kind]


# Tables


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
def test_numbers_of_rows(dtype):
    conv, given = made('embedded', 'random')
    given['edge_type'] = given['edge_type'].to(dtype)
    assert_as_pyg(conv, given)


def test_a_number_that_is_no_row_s():
    conv, given = made('embedded', 'random')
    pygfuse.compile(conv)
    given['edge_type'] = given['edge_type'] + RELATIONS
    with pytest.raises(IndexError):
        conv(**given)


def test_an_embedding_with_a_row_of_padding_runs_pyg_s_path():
    conv, given = made('embedded', 'random')
    conv.table = Embedding(RELATIONS, NODES, padding_idx=0)
    pygfuse.compile(conv)(**given)
    assert conv.note.reason == 'an embedding with these arguments'


class OfLogarithms(Published):
    def __init__(self, rows):
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(rows, NODES) + 0.5)
        self.table.data[-1] = 0

    def message(self, x_j, edge_type):
        return x_j * self.table[edge_type].log()


@pytest.mark.parametrize('rows', [5, 1000])
def test_rows_that_no_edge_reads_have_no_gradient(rows):
    """The logarithm of zeros that are not read."""
    given = {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES), 'edge_type': torch.arange(90) % 4}
    assert_as_pyg(OfLogarithms(rows), given)


class OfLargeTables(OfLogarithms):
    def message(self, x_j, edge_type):
        return x_j * self.table[edge_type].tanh()


@pytest.mark.parametrize(('rows', 'is_first'), [(5, True), (1000, False)])
def test_of_a_large_table_only_what_is_read_is_computed(rows, is_first):
    given = {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES), 'edge_type': torch.arange(90) % 4}
    conv = OfLargeTables(rows)
    assert_as_pyg(conv, given)
    assert ('after tables_first' in str(pygfuse.explain(conv))) == is_first


class Property(Published):
    @property
    def seen(self):
        return None

    @seen.setter
    def seen(self, found):
        raise AssertionError('never')


class StoresInAProperty(Property):
    def message(self, x_i, x_j):
        self.seen = x_i * x_j
        return x_j


class StoresNodes(Published):
    """Values of nodes, as they are given and computed, with a row for each edge; and what is no tensor."""

    def message(self, x_i, x_j):
        self.seen, self.mapped = x_j, x_i.tanh() * 2
        self.score, self.kind, self.count = None, 'nodes', 3
        return x_i * x_j


def test_what_is_stored_of_nodes_has_a_row_for_each_edge():
    torch.manual_seed(0)
    conv, edge_index = StoresNodes().double(), random_edges(20, 20, 90)
    fused, found = pygfuse.compile(copy.deepcopy(conv)), []
    for layer in (conv, fused):
        x = torch.randn(20, NODES, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        for _ in range(3):
            layer.score = 1
            out = layer(edge_index, x=x)
        parts = out, layer.seen, layer.mapped
        found.append([*parts, *torch.autograd.grad(sum(part.sin().sum() for part in parts), [x])])
        assert (layer.score, layer.kind, layer.count) == (None, 'nodes', 3)
    torch.testing.assert_close(found[1], found[0])
    assert fused.note.reason is None


class SharesOfTargets(Published):
    """A softmax of what is the same on all edges of a target."""

    def message(self, x_i, x_j, index):
        self.seen = softmax(x_i, index) + 1
        return x_j * self.seen


def test_a_softmax_of_targets_has_a_row_for_each_edge():
    torch.manual_seed(0)
    conv, edge_index, x = SharesOfTargets(), random_edges(20, 20, 90), torch.randn(20, NODES)
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(edge_index, x=x), conv(edge_index, x=x))
    torch.testing.assert_close(fused.seen, conv.seen)
    assert fused.note.reason is None


def test_what_is_returned_of_nodes_has_a_row_for_each_edge():
    class Returns(Published):
        def message(self, x_j):
            return x_j.tanh()

        def aggregate(self, inputs, index, dim_size=None):
            return scatter(inputs, index, 0, dim_size), inputs

        def update(self, inputs):
            return inputs

    torch.manual_seed(0)
    conv, edge_index, x = Returns(), random_edges(20, 20, 90), torch.randn(20, NODES)
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(edge_index, x=x), conv(edge_index, x=x))
    assert fused.note.reason is None


def test_what_is_stored_in_a_property_is_refused():
    conv = pygfuse.compile(StoresInAProperty())
    with pytest.raises(AssertionError, match='never'):
        conv(random_edges(20, 20, 90), x=torch.randn(20, NODES))
    assert conv.note.reason == 'it stores a value in seen'


# Functions of torch_scatter


def test_reductions_of_torch_scatter_are_those_of_pyg(needs_torch_sparse):
    import torch_scatter

    class Scattered(Published):
        def message(self, x_i, x_j, index, size_i):
            return torch_scatter.scatter_softmax((x_i - x_j).tanh(), index, dim=0, dim_size=size_i) * x_j

        def aggregate(self, inputs, index, dim_size=None):
            mean = torch_scatter.scatter(inputs, index, dim=0, dim_size=dim_size, reduce='mean')
            return mean + torch_scatter.scatter_add(inputs, index, 0, dim_size=dim_size)

    conv, given = Scattered(), {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)}
    assert_as_pyg(conv, given)


class ByTheModule(Published):
    """PyG's functions, read of its modules."""

    def message(self, x_i, x_j, index, size_i):
        return torch_geometric.utils.softmax(x_i - x_j, index, num_nodes=size_i) * x_j

    def aggregate(self, inputs, index, dim_size=None):
        return torch_geometric.utils.scatter(inputs, index, 0, dim_size, reduce='mean')


def test_functions_that_are_read_of_a_module():
    assert_as_pyg(ByTheModule(), {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)})


# Whole features of nodes beside those of an end


def test_a_call_with_fewer_targets_than_rows():
    """Then a tensor of nodes says nothing of targets."""

    class Scaled(Published):
        def message(self, x_j):
            return x_j.tanh()

        def aggregate(self, inputs, index, x, dim_size=None):
            return scatter(inputs, index, 0, dim_size, reduce='sum') * x.sum()

    conv, given = Scaled(), {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)}
    expected = conv(**given)
    torch.testing.assert_close(pygfuse.compile(conv)(**given), expected)


class OfNetworks(Published):
    """A softmax that is no weight, of what a network gives: its sums read what is kept for the network."""

    def __init__(self):
        super().__init__()
        self.score, self.values = (Sequential(Linear(12, 12), Tanh()) for _ in range(2))

    def message(self, x_i, x_j, index, ptr, size_i):
        weight = softmax(self.score(x_i * x_j.tanh()), index, ptr, size_i)
        return torch.maximum(weight, self.values(x_i * x_j)) * x_j


def test_what_is_kept_is_read_by_reductions_within_a_message():
    conv = OfNetworks()
    assert_as_pyg(conv, {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, 12)})
    assert conv.plans()[0].cost.held == 24


class Kernels(Published):
    """Weights of kernels, of some numbers each, for more channels."""

    def __init__(self):
        super().__init__()
        self.centres = torch.nn.Parameter(torch.randn(3, 2))

    def message(self, x_j, edge_attr):
        weight = torch.exp(-(edge_attr.unsqueeze(1) - self.centres).square().sum(dim=-1))
        return (x_j.view(-1, 3, NODES) * weight.unsqueeze(-1)).sum(dim=1)


def test_what_is_a_number_a_head_is_computed_once_a_head():
    conv = Kernels()
    given = {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, 3 * NODES), 'edge_attr': torch.randn(90, 2)}
    assert_as_pyg(conv, given)
    (walk,) = conv.plans()[0].walks.values()
    assert walk.title == f'walk: sum, heads=3, channels={NODES}'


# Dropout is drawn once


class DroppedTwice(Published):
    """Two messages of one weight that is dropped."""

    def message(self, x_j, index, ptr, size_i):
        weight = F.dropout(softmax(x_j.sum(dim=-1, keepdim=True), index, ptr, size_i), 0.5, self.training)
        return weight * x_j, weight * x_j * 2

    def aggregate(self, inputs, index, dim_size=None):
        return tuple(scatter(part, index, 0, dim_size) for part in inputs)

    def update(self, inputs):
        return inputs


def test_what_several_reductions_read_is_dropped_once():
    given = {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)}
    conv = pygfuse.compile(DroppedTwice())
    first, second = conv(**given)
    torch.testing.assert_close(second, 2 * first)
    assert conv.note.reason == 'dropout of values that several reductions read'


def test_several_aggregations_drop_once():
    layer = pyg.TransformerConv(NODES, 4, heads=2, dropout=0.5, aggr=['sum', 'mean'], root_weight=False)
    edge_index = random_edges(20, 20, 90)
    count = torch.bincount(edge_index[1], minlength=20).clamp(min=1).view(-1, 1, 1)
    total, mean = pygfuse.fuse(layer)(torch.randn(20, NODES), edge_index).view(20, 2, 8).split(4, dim=-1)
    torch.testing.assert_close(total / count, mean)


class StoredDropped(StoredAttention):
    def message(self, x_j, alpha_j, alpha_i, index, ptr, size_i):
        self.attention = F.dropout(softmax(alpha_j + alpha_i, index, ptr, size_i), 0.5, self.training)
        return x_j * self.attention.unsqueeze(-1)


def test_what_is_stored_is_what_was_dropped():
    conv, edge_index = pygfuse.compile(StoredDropped()), random_edges(20, 20, 90)
    x = torch.randn(20, NODES)
    out, attention = conv(x, edge_index)
    rows = conv.lin(x).view(20, 2, -1)[edge_index[0]] * attention.unsqueeze(-1)
    torch.testing.assert_close(out, scatter(rows, edge_index[1], 0, 20).flatten(1))
    assert conv.note.reason is None


# Many edges


@pytest.mark.parametrize('name', ['vector attention', 'gated by itself', 'largest'])
def test_of_many_edges_nothing_wide_is_kept(name, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.MOST_KEPT_BYTES', 0)
    conv, given = made(name, 'random')
    assert_as_pyg(conv, given)
    (plan,) = conv.plans()
    assert plan.of_so_many(1).cost.held < plan.cost.held
    assert plan.of_so_many(0) is plan


# What is left to PyG


@pytest.mark.usefixtures('by_pyg')
@pytest.mark.parametrize(('name', 'limit'), [('gated', 2048), ('interaction', 5461), ('modulated', 436)])
def test_what_is_returned_of_few_edges_is_left_to_pyg(name, limit):
    conv, given = made(name, 'random')
    pygfuse.compile(conv)(**given)
    (plan,) = conv.plans()
    assert plan.fewest_edges == limit + 1
    assert conv.note.reason is not None


LIMITED = True


class Limited(Published):
    """Refused as long as a number of its module says so."""

    def message(self, x_j):
        return x_j.cummax(dim=1).values if LIMITED else x_j.relu()


def test_a_refusal_is_known_as_long_as_what_was_read_is_the_same(monkeypatch):
    given = {'edge_index': random_edges(20, 20, 90), 'x': torch.randn(20, NODES)}
    conv = pygfuse.compile(Limited())
    for _ in range(3):
        conv(**given)
        assert conv.note.reason == 'cummax has no fused form on edges'
        assert [type(known).__name__ for known in conv.note.calls] == ['KnownRefusal']
    monkeypatch.setattr('tests.compiler.test_published_convs.LIMITED', False)
    torch.testing.assert_close(
        conv(**given), scatter(given['x'].relu()[given['edge_index'][0]], given['edge_index'][1], 0, 20)
    )
    assert conv.note.reason is None


# Trained


def test_models_train_as_pyg_s():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.table = GatedGCN(), Embedded()
            self.attention, self.last = StoredAttention(), Interaction()

        def forward(self, x, edge_index, edge_attr, edge_type):
            x, gates = self.first(x, edge_index, edge_attr)
            x = torch.cat([x[:, :4], self.table(x, edge_index, edge_type)], dim=1)
            x, weights = self.attention(x, edge_index)
            out, state = self.last(x, edge_index, edge_attr)
            return out.square().mean() + gates.mean() + weights.var() + state.mean()

    torch.manual_seed(0)
    plain = Model()
    fused = pygfuse.fuse(copy.deepcopy(plain))
    given = torch.randn(60, NODES), random_edges(60, 60, 400), torch.randn(400, EDGES), torch.randint(RELATIONS, (400,))
    losses = []
    for model in (plain, fused):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        found = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(*given)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    assert [row.why_not for row in pygfuse.report(fused).rows] == [None] * 4
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-4, atol=1e-5)
