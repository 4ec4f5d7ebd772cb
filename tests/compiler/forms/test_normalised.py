"""Batch normalisation over all edges before more work on them, and normalisations that nobody reads."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

import pygfuse
from pygfuse.mapping import few_edges
from tests.conv.modules.arguments import assert_same, assert_same_in_traces
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 20, 150, 6


def add_up(x, index, values):
    return torch.zeros_like(x).index_add(0, index, values)


class Normalising(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_edges, self.other, self.of_nodes = nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(WIDTH), pyg.BatchNorm(WIDTH)
        self.lin, self.begin, self.end = (nn.Linear(WIDTH, WIDTH) for _ in range(3))


class Gated(Normalising):
    """A map behind the normalisation, and the normalised values beside it."""

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.of_edges(self.begin(x)[row] - x[col]).relu()
        return add_up(x, col, self.lin(h).sigmoid() * (x[row] + h))


class States(Normalising):
    """States of edges that two layers normalise, with residuals."""

    def forward(self, x, edge_index):
        row, col = edge_index
        state = F.silu(self.begin(x[row] * x[col]))
        for norm, lin in ((self.of_edges, self.lin), (self.other, self.end)):
            x = x + self.of_nodes(add_up(x, col, state.sigmoid() * x[row])).relu()
            state = state + F.silu(norm(lin(state) + x[row] + self.begin(x)[col]))
        return x, state


class Pooled(MessagePassing):
    """Attention over channels, by a map of normalised values joined with those of sources."""

    def __init__(self):
        super().__init__(aggr='add')
        self.encoder = pyg.MLP([WIDTH, WIDTH], plain_last=False)
        self.attention = nn.Linear(2 * WIDTH, 2 * WIDTH, bias=False)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j, index):
        features = torch.cat([x_j, self.encoder(x_i - x_j)], dim=1)
        return softmax(self.attention(features), index) * features


class OfEnds(Normalising):
    """What sources alone decide, and what a call brings, normalised over edges."""

    def forward(self, x, edge_index):
        row, col = edge_index
        sent = self.of_edges(self.begin(x)[row].tanh())
        got = self.other(x.square()[col])
        return add_up(x, col, self.lin(sent * got).sigmoid() * sent)


class Twice(Normalising):
    """One module that is called twice, of equal values."""

    def forward(self, x, edge_index):
        row, col = edge_index
        first, second = self.of_edges(x[row] - x[col]), self.of_edges(x[row] - x[col])
        return add_up(x, col, self.lin(first).relu() * second)


class TwiceOfNodes(Normalising):
    def forward(self, x, edge_index):
        row, col = edge_index
        first, second = self.of_nodes(x), self.of_nodes(x)
        return add_up(x, col, self.lin(first[row]).relu() * second[col])


class Following(Normalising):
    """One module that is called twice, the second time on what follows from the first."""

    def forward(self, x, edge_index):
        row, col = edge_index
        for _ in range(2):
            x = self.of_nodes(x + add_up(x, col, self.of_edges(x[row] - x[col]).relu()))
        return x


class Unread(Normalising):
    """Normalisations whose values nobody reads, one of which is of what another gives."""

    def forward(self, x, edge_index):
        row, col = edge_index
        self.of_nodes(self.of_nodes(x))
        self.of_edges(x[row] - x[col]).relu()
        return add_up(x, col, self.lin(x[row] * x[col]).relu())


class UnreadInLayers(MessagePassing):
    def __init__(self):
        super().__init__(aggr='max')
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        self.norm(x_i * x_j)
        return x_j


class UnreadBesidePairs(UnreadInLayers):
    def message(self, x_i, x_j):
        return x_i * x_j

    def aggregate(self, inputs, index, dim_size=None):
        out = scatter(inputs, index, 0, dim_size)
        self.norm(out)
        return out, out.exp()


KINDS = [Gated, States, Pooled, OfEnds, Following, Unread, UnreadInLayers, UnreadBesidePairs]


def some(seed=0):
    torch.manual_seed(seed)
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES - 2, EDGES)}


@pytest.mark.parametrize('kind', KINDS)
def test_numbers(kind):
    assert_same(kind(), some())


@pytest.mark.parametrize('kind', KINDS)
def test_statistics_move_as_often(kind):
    plain = kind().double()
    compiled = pygfuse.compile(copy.deepcopy(plain))
    for seed in range(3):
        given = some(seed)
        given['x'] = given['x'].double()
        torch.testing.assert_close(compiled(**given), plain(**given))
        torch.testing.assert_close(dict(compiled.named_buffers()), dict(plain.named_buffers()))
    assert all(number == 0 for _, number in _differences(compiled.eval(), plain.eval(), given))
    assert compiled.note.reason is None


def _differences(compiled, plain, given):
    """What is left of buffers after a call that moves none."""
    torch.testing.assert_close(compiled(**given), plain(**given))
    others = dict(plain.named_buffers())
    return [(name, (one - others[name]).abs().max().item()) for name, one in compiled.named_buffers() if 'num' in name]


@pytest.mark.parametrize('kind', [Gated, Unread])
def test_between_traces(kind):
    assert_same_in_traces(kind(), some())


@pytest.mark.parametrize('kind', [Twice, TwiceOfNodes])
def test_calls_of_which_none_follows_from_the_other(kind):
    plain = kind()
    compiled = pygfuse.compile(copy.deepcopy(plain))
    torch.testing.assert_close(compiled(**some()), plain(**some()))
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(plain.named_buffers()))
    assert (
        compiled.note.reason == 'a normalisation that is called twice, on values of which none follows from the other'
    )


class OfFeatures(Normalising):
    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        normed = self.of_edges(edge_attr)
        return add_up(x, col, self.lin(normed * x[row]).sigmoid() * normed)


def test_features_that_a_call_brings():
    torch.manual_seed(0)
    assert_same(OfFeatures(), {**some(), 'edge_attr': torch.randn(EDGES, WIDTH)})


def test_gradients_of_gradients():
    given = some()
    module = Gated().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    results = []
    for one in (module, compiled):
        (first,) = torch.autograd.grad(one(x, given['edge_index']).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*results)
    assert compiled.note.reason is None


def test_what_is_kept():
    """For each layer its state, a map of it, and what is normalised before and after."""
    compiled = pygfuse.compile(States())
    compiled(**some())
    plan = compiled.plans()[0]
    assert plan.cost.held == 8 * WIDTH
    assert sum(node.op == 'batch_norm' for node in plan.steps) == 2


@pytest.mark.parametrize(('edges', 'reason'), [(4096, few_edges.SO_FEW_EDGES), (4097, None)])
def test_few_edges(edges, reason, monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_SEVERAL_NORMALISED', 2**12)
    compiled, x = pygfuse.compile(Gated()), torch.randn(NODES, WIDTH)
    compiled(x, random_edges(NODES, NODES, edges))
    assert compiled.note.reason == reason


def test_one_edge_is_an_error_as_in_torch():
    compiled, given = pygfuse.compile(Gated()), some()
    with pytest.raises(ValueError, match='Expected more than 1 value per channel'):
        compiled(given['x'], given['edge_index'][:, :1])


class Message(MessagePassing):
    def __init__(self):
        super().__init__()
        self.mlp = pyg.MLP([2 * WIDTH, WIDTH, WIDTH], norm='batch_norm')

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))


def graph(edges):
    return torch.randn(NODES, WIDTH, dtype=torch.float64), random_edges(NODES, NODES, edges)


def gradients(loss, module):
    return dict(zip(dict(module.named_parameters()), torch.autograd.grad(loss, module.parameters()), strict=True))


@pytest.mark.parametrize('order', ['before', 'behind', 'between'])
def test_one_module_that_torch_and_a_plan_call_before_one_backward(order, monkeypatch):
    # so few edges that the own code runs, and so many that a plan does
    torch.manual_seed(0)
    few, many = graph(20), graph(400)
    monkeypatch.setattr(few_edges, 'MOST_OF_NORMALISED', 100)
    graphs = {'before': [few, many], 'behind': [many, few], 'between': [few, many, few]}[order]
    module = Message().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for one in (module, compiled):
        norm = one.mlp.norms[0].module
        # torch calls it on nodes, too
        one.loss = norm(graphs[0][0]).square().sum() + sum(one(*given).square().sum() for given in graphs)
    assert compiled.note.reason == (few_edges.SO_FEW_EDGES if graphs[-1] is few else None)
    torch.testing.assert_close(gradients(compiled.loss, compiled), gradients(module.loss, module))
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(module.named_buffers()))


def test_statistics_that_move_before_backward_reads_them():
    torch.manual_seed(0)
    first, second = graph(400), graph(400)
    compiled = pygfuse.compile(Message().double())
    # its statistics are no longer those that it began with
    compiled(*second)
    alone = copy.deepcopy(compiled).eval()
    expected = gradients(alone(*first).square().sum(), alone)
    loss = compiled.eval()(*first).square().sum()
    compiled.train()(*second)
    assert compiled.note.reason is None
    torch.testing.assert_close(gradients(loss, compiled), expected)


class Returning(Normalising):
    """New states of edges by a network with two normalisations, one of them in its middle, which are summed, too."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(2 * WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
        )

    def forward(self, x, edge_index):
        row, col = edge_index
        states = self.network(torch.cat([x[row], x[col]], dim=1))
        return add_up(x, col, states.relu()), states


def test_normalisations_of_returned_values_are_torchs():
    """A network would compute them twice for their moments, and in backward again."""
    module, arguments = Returning(), some()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        for one, other in zip(compiled(**arguments), module(**arguments), strict=True):
            torch.testing.assert_close(one, other)
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(module.named_buffers()))
    plan = compiled.plans()[0].of_so_many(len(arguments['edge_index'][0]))
    assert sum(node.op == 'batch_norm' and id(node) not in plan.walks for node in plan.steps) == 2
    assert compiled.note.reason is None


def test_where_memory_is_short_normalisations_are_computed_again(monkeypatch):
    for limit in ('MOST_KEPT_BYTES', 'MOST_NORMALISED_BYTES'):
        monkeypatch.setattr(f'pygfuse.mapping.edge_chunks.{limit}', 0)
    module, arguments = Returning(), some()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for one, other in zip(compiled(**arguments), module(**arguments), strict=True):
        torch.testing.assert_close(one, other)
    plan = compiled.plans()[0].of_so_many(len(arguments['edge_index'][0]))
    assert not any(node.op == 'batch_norm' and id(node) not in plan.walks for node in plan.steps)


class Summed(Returning):
    def forward(self, x, edge_index):
        row, col = edge_index
        return add_up(x, col, self.network(torch.cat([x[row], x[col]], dim=1)).relu())


@pytest.mark.parametrize(('is_training', 'count'), [(True, 2), (False, 0)])
def test_of_few_edges_what_is_normalised_for_sums_is_in_memory(is_training, count):
    module, arguments = Summed().train(is_training), some()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    plan = compiled.plans()[0]
    for edges, expected in ((arguments['edge_index'].shape[1], count), (2_000_000, 0)):
        steps = plan.of_so_many(edges).steps
        assert sum(node.op == 'batch_norm' and id(node) not in plan.walks for node in steps) == expected
