"""Dropouts of values of edges in messages: fused, with the numbers of the own code that drops the same."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, LayerNorm, Linear, ReLU, Sequential
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import MLP, MessagePassing, MetaLayer
from torch_geometric.utils import scatter, softmax

import pygfuse
from pygfuse.compiler.plan.called import device_of
from pygfuse.memory import saved_bytes
from pygfuse.ops import Edges
from tests.support.drawn_dropouts import assert_same_numbers, recorded

WIDTH, HEADS = 8, 2


class Dropping(MessagePassing):
    """A layer that hands its features on."""

    def __init__(self, aggr: str = 'sum', **options) -> None:
        super().__init__(aggr=aggr, **options)
        self.lin = Linear(WIDTH, WIDTH)
        self.net = self.network()

    def network(self) -> Sequential:
        return Sequential()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x), edge_attr=edge_attr)


class OfSources(Dropping):
    def message(self, x_j):
        return F.dropout(x_j, 0.3, self.training)


class OfBothEnds(Dropping):
    def message(self, x_i, x_j, edge_attr):
        return F.dropout((x_i + x_j).relu() * edge_attr, 0.3, self.training)


class OfHeads(Dropping):
    def message(self, x_i, x_j):
        x_i, x_j = x_i.view(-1, HEADS, WIDTH // HEADS), x_j.view(-1, HEADS, WIDTH // HEADS)
        return F.dropout(torch.tanh(x_i * x_j), 0.3, self.training).view(-1, WIDTH)


class OfWeightsAndValues(Dropping):
    """A softmax and values that it weighs, both dropped: walks draw for the weights in their own way."""

    def message(self, x_i, x_j, index, size_i):
        weights = softmax((x_i * x_j).sum(dim=-1), index, num_nodes=size_i)
        return weights.unsqueeze(-1) * F.dropout(x_j, 0.3, self.training)


class OfScores(Dropping):
    """A number for each edge, dropped before and after what is computed of it."""

    def message(self, x_i, x_j):
        score = F.dropout((x_i * x_j).sum(dim=-1, keepdim=True), 0.2, self.training).sigmoid()
        return score * F.dropout(x_j, 0.3, self.training)


class Twice(Dropping):
    def message(self, x_i, x_j):
        return F.dropout(x_j, 0.3, self.training) - F.dropout(x_i, 0.2, self.training)


class Shallow(Dropping):
    def network(self):
        return Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Dropout(0.3), Linear(WIDTH, WIDTH))

    def message(self, x_i, x_j):
        return self.net(torch.cat([x_i, x_j], dim=-1))


class Deep(Shallow):
    def network(self):
        hidden = Linear(WIDTH, WIDTH), *self.norms(), ReLU()
        return Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Dropout(0.2), *hidden, Dropout(0.3), Linear(WIDTH, WIDTH))

    def norms(self):
        return ()


class Normalising(Deep):
    def norms(self):
        return (LayerNorm(WIDTH),)


class NormalisingEdges(Deep):
    def norms(self):
        return (BatchNorm1d(WIDTH),)


class WithResidual(Deep):
    def message(self, x_i, x_j, edge_attr):
        return F.dropout(self.net(torch.cat([x_i, x_j], dim=-1)), 0.1, self.training) + edge_attr


class Gated(Deep):
    def message(self, x_i, x_j):
        gate = self.net(torch.cat([x_i, x_j], dim=-1)).sigmoid()
        return gate * F.dropout(x_j, 0.1, self.training)


class OfFeatures(Deep):
    """Features of edges, dropped as they come."""

    def message(self, x_j, edge_attr):
        return self.net(torch.cat([x_j, F.dropout(edge_attr, 0.1, self.training)], dim=-1))


MESSAGES = {kind.__name__: kind for kind in (OfSources, OfBothEnds, OfHeads, OfWeightsAndValues, OfScores, Twice)}
NETWORKS = {
    kind.__name__: kind for kind in (Shallow, Deep, Normalising, NormalisingEdges, WithResidual, Gated, OfFeatures)
}


class OfEdges(torch.nn.Module):
    """What a `MetaLayer` makes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.net = MLP([3 * WIDTH, WIDTH, WIDTH], dropout=0.2, norm=None)

    def forward(self, source, target, edge_attr, u, batch):
        return self.net(torch.cat([source, target, edge_attr], dim=1))


class OfNodes(torch.nn.Module):
    """And of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Dropout(0.3), Linear(WIDTH, WIDTH))

    def forward(self, x, edge_index, edge_attr, u, batch):
        messages = self.net(torch.cat([x[edge_index[0]], edge_attr], dim=1))
        return scatter(messages, edge_index[1], 0, x.shape[0], reduce='mean')


class Whole(torch.nn.Module):
    """A module that gathers and adds up itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Deep().net

    def forward(self, x, edge_index, edge_attr):
        values = self.net(torch.cat([x[edge_index[0]], x[edge_index[1]]], dim=1))
        return torch.zeros_like(x).index_add(0, edge_index[1], F.dropout(values, 0.1, self.training))


class OfAMetaLayer(torch.nn.Module):
    """Values of edges and of nodes, side by side."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    @property
    def note(self):
        return self.layer.note

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr, _ = self.layer(x, edge_index, edge_attr)
        return torch.cat([x, edge_attr])


def inputs(num_edges: int, dtype: torch.dtype = torch.float64, num_nodes: int = 300) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_nodes, WIDTH, dtype=dtype, generator=generator)
    edge_index = torch.randint(num_nodes - 3, (2, num_edges), generator=generator)
    return x, edge_index, torch.randn(num_edges, WIDTH, dtype=dtype, generator=generator)


def pair(kind: type, aggr: str = 'sum', dtype: torch.dtype = torch.float64):
    """A layer and a function that compiles it."""
    torch.manual_seed(0)
    own = kind(aggr).to(dtype)
    torch.manual_seed(1)
    return own, lambda: pygfuse.compile(copy.deepcopy(own))


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
@pytest.mark.parametrize('name', MESSAGES)
def test_messages(name, aggr, monkeypatch):
    if name == 'OfWeightsAndValues' and aggr == 'max':
        pytest.skip('no program has an extreme of what a softmax weighs')
    own, fused = pair(MESSAGES[name], aggr)
    assert_same_numbers(monkeypatch, own, fused, *inputs(9000))


@pytest.mark.parametrize('aggr', ['sum', 'max'])
@pytest.mark.parametrize('name', NETWORKS)
def test_networks(name, aggr, monkeypatch):
    own, fused = pair(NETWORKS[name], aggr)
    assert_same_numbers(monkeypatch, own, fused, *inputs(20_000))


def test_a_module(monkeypatch):
    torch.manual_seed(0)
    own = Whole().double()
    assert_same_numbers(monkeypatch, own, lambda: pygfuse.compile(copy.deepcopy(own)), *inputs(20_000))


def test_values_of_edges_that_are_returned(monkeypatch):
    torch.manual_seed(0)
    own = MetaLayer(OfEdges(), OfNodes()).double()

    def fused() -> torch.nn.Module:
        return OfAMetaLayer(pygfuse.compile(copy.deepcopy(own)))

    assert_same_numbers(monkeypatch, OfAMetaLayer(own), fused, *inputs(20_000))


@pytest.mark.parametrize('kind', [OfSources, OfBothEnds, Deep])
def test_many_edges_in_float32(kind, monkeypatch):
    own, fused = pair(kind, dtype=torch.float32)
    assert_same_numbers(monkeypatch, own, fused, *inputs(400_000, torch.float32, 20_000))


@pytest.mark.parametrize('kind', [OfBothEnds, OfScores, Deep])
def test_the_flow_may_be_the_other_one(kind, monkeypatch):
    own, fused = pair(lambda aggr: kind(aggr, flow='target_to_source'))
    assert_same_numbers(monkeypatch, own, fused, *inputs(9000))


@pytest.mark.parametrize('kind', [OfBothEnds, OfScores, Shallow, Deep, Gated])
def test_gradients_are_differentiated(kind):
    layer = pygfuse.compile(kind().double())
    x, edge_index, edge_attr = inputs(5000, num_nodes=40)

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return layer(x, edge_index, edge_attr)

    x = x.requires_grad_()
    run(x)
    assert layer.note.reason is None
    assert torch.autograd.gradgradcheck(run, x, fast_mode=True)


def test_the_seed_decides():
    layer, given = pygfuse.compile(Deep()), inputs(9000, torch.float32)
    torch.manual_seed(0)
    first, second = layer(*given), layer(*given)
    torch.manual_seed(0)
    assert torch.equal(layer(*given), first)
    assert not torch.equal(first, second)
    assert layer.note.reason is None


def test_a_checkpoint_drops_the_same():
    layer, given = pygfuse.compile(Deep()), inputs(9000, torch.float32)
    found = []
    for run in (layer, lambda *given: checkpoint(layer, *given, use_reentrant=False)):
        torch.manual_seed(0)
        x = given[0].clone().requires_grad_()
        run(x, *given[1:]).square().sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_shares_and_scales_are_those_of_a_dropout():
    layer = pygfuse.compile(OfSources())
    num_nodes = 20_000
    edge_index = torch.arange(num_nodes).expand(2, -1)
    with torch.no_grad():
        out = layer(torch.ones(num_nodes, WIDTH), edge_index, torch.ones(num_nodes, WIDTH))
        value = layer.lin(torch.ones(WIDTH))
    factors = out / value
    is_kept = factors.abs() > 0.5
    torch.testing.assert_close(factors, is_kept / 0.7)
    count = is_kept.numel()
    assert abs(int(is_kept.sum()) - 0.7 * count) < 5 * (count * 0.21) ** 0.5
    kept = (is_kept.double() - 0.7) / 0.21**0.5
    between = (kept.t() @ kept / num_nodes).fill_diagonal_(0.0)
    assert float(between.abs().max()) < 5 / num_nodes**0.5
    for distance in (1, 2, 64):
        assert abs(float((kept[distance:] * kept[:-distance]).mean())) < 5 / count**0.5


def test_two_dropouts_of_one_probability_drop_apart():
    class Same(Dropping):
        def message(self, x_j):
            return F.dropout(x_j, 0.5, self.training) - F.dropout(x_j, 0.5, self.training)

    layer = pygfuse.compile(Same())
    out = layer(*inputs(9000, torch.float32))
    assert layer.note.reason is None
    assert float(out.detach().abs().max()) > 0.1


def test_nothing_drops_in_evaluation(monkeypatch):
    layer, given = pygfuse.compile(Deep()).eval(), inputs(9000, torch.float32)
    with recorded(monkeypatch) as draws:
        layer(*given)
    assert not draws
    assert layer.note.reason is None


@pytest.mark.parametrize(('p', 'scale'), [(1.0, 0.0), (0.0, 1.0)])
def test_all_or_nothing(p, scale):
    class Some(Dropping):
        def message(self, x_i, x_j):
            return F.dropout(x_i + x_j, p, self.training)

    layer, given = pygfuse.compile(Some()), inputs(9000, torch.float32)
    found = layer(*given)
    assert layer.note.reason is None
    torch.testing.assert_close(found, scale * layer.eval()(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('kind', [OfBothEnds, Shallow, Deep])
def test_of_edges_a_number_is_kept_for_each(kind):
    layer = pygfuse.compile(kind())

    def saved(num_edges: int) -> int:
        given = inputs(num_edges, torch.float32)
        layer(*given)
        return saved_bytes(lambda: layer(*given), exclude=[*given, *layer.parameters()])

    # a mark, which all dropouts of a call share
    assert saved(20_000) - saved(10_000) <= 10_000 * 4


@pytest.mark.parametrize('kind', [OfSources, OfScores, Shallow, Deep])
def test_torch_compiles_them(kind):
    layer, given = pygfuse.compile(kind()), inputs(9000, torch.float32)
    compiled = torch.compile(layer, backend='aot_eager', fullgraph=True)
    found = []
    for run in (layer, compiled, compiled):
        torch.manual_seed(0)
        x = given[0].clone().requires_grad_()
        out = run(x, *given[1:])
        found.append((out.detach(), *torch.autograd.grad(out.square().sum(), x)))
    for results in found[1:]:
        torch.testing.assert_close(results, found[0], rtol=1e-4, atol=1e-3)
    assert not torch.equal(compiled(*given), found[0][0])


def test_under_autocast_as_many_are_dropped_as_should():
    """Marks of a narrow type would be few."""
    layer, num_nodes = pygfuse.compile(OfSources()), 20_000
    x, edge_index = torch.ones(num_nodes, WIDTH), torch.arange(num_nodes).expand(2, -1)
    with torch.autocast('cpu', dtype=torch.bfloat16), torch.no_grad():
        out = layer(x, edge_index, x).float()
        value = layer.lin(x[:1]).float()
    is_kept = (out / value).abs() > 0.5
    torch.testing.assert_close(out / value, is_kept / 0.7, rtol=0.02, atol=0)
    assert abs(int(is_kept.sum()) - 0.7 * is_kept.numel()) < 5 * (is_kept.numel() * 0.21) ** 0.5
    # rows of different edges are not alike
    assert int(is_kept.unique(dim=0).shape[0]) > 200


@pytest.mark.parametrize('kind', [OfSources, OfBothEnds, Deep])
def test_several_reductions_read_what_was_dropped_once(kind, monkeypatch):
    own, fused = pair(kind, ['sum', 'mean', 'std'])
    assert_same_numbers(monkeypatch, own, fused, *inputs(20_000))


def test_what_is_drawn_is_where_the_values_are():
    """Of a sparse matrix a token on a CPU stands for the edges, wherever these are."""
    edges = Edges(torch.zeros(2, 4, dtype=torch.int64), 3, 3)
    assert device_of({'x': torch.empty(3, 2, device='meta')}, edges).type == 'meta'
    assert device_of({}, edges).type == 'cpu'
