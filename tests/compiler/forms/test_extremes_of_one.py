"""Maxima and minima of `torch_scatter`, whose gradient goes to the first of the edges that tie."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from pygfuse.compiler.forms.extremes_of_one import extremes_as_sums
from pygfuse.compiler.ir.values import leaf, value
from pygfuse.compiler.refusal import Refused
from pygfuse.mapping import few_edges
from pygfuse.ops import numbers_of_edges
from tests.conv.modules.arguments import assert_same, assert_same_in_traces
from tests.support.parity import random_edges

torch_scatter = pytest.importorskip('torch_scatter')
NODES, EDGES, WIDTH = 20, 150, 6


class Extreme(nn.Module):
    """Of sources alone."""

    def __init__(self, reduce='max'):
        super().__init__()
        self.reduce = reduce

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch_scatter.scatter(self.message(x, row, col), col, dim=0, dim_size=x.size(0), reduce=self.reduce)

    def message(self, x, row, col):
        return x[row]


class OfBoth(Extreme):
    def message(self, x, row, col):
        return x[row] * x[col].relu() - x[col]


class OfHeads(Extreme):
    def message(self, x, row, col):
        query, value = x[col].view(-1, 2, 3), x[row].view(-1, 2, 3)
        return ((query * value).sum(-1, keepdim=True) * value).view(-1, 6)


class WithNumbers(Extreme):
    """The numbers of the edges are given, and left."""

    def forward(self, x, edge_index):
        row, col = edge_index
        highest, _ = torch_scatter.scatter_max(x[row], col, dim=0, dim_size=x.size(0))
        return highest + torch_scatter.scatter_min(x[row] - x[col], col, dim=0, dim_size=x.size(0))[0]


class OfNetwork(Extreme):
    def __init__(self, reduce='max'):
        super().__init__(reduce)
        self.nn = nn.Sequential(nn.Linear(2 * WIDTH, 8), nn.ReLU(), nn.Linear(8, WIDTH))

    def message(self, x, row, col):
        return self.nn(torch.cat([x[col], x[row] - x[col]], dim=1))


class OfActivation(OfNetwork):
    def message(self, x, row, col):
        return super().message(x, row, col).relu()


class OfNorm(Extreme):
    """What programs have no words for is kept."""

    def message(self, x, row, col):
        return torch.nn.functional.layer_norm(x[row] * x[col], (WIDTH,)).round()


class ToOthers(Extreme):
    """To other rows than there are targets."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch_scatter.scatter_max(x[row], col, dim=0, dim_size=NODES + 5)[0]


class ToBoth(Extreme):
    """To both ends of the edges."""

    def forward(self, x, edge_index):
        row, col = edge_index
        sent = torch_scatter.scatter_max(x[row] - 0.5 * x[col], row, dim=0, dim_size=x.size(0))[0]
        return torch_scatter.scatter_min(x[row], col, dim=0, dim_size=x.size(0))[0] - sent


class BetweenSets(Extreme):
    """To targets and to sources, which are others."""

    def forward(self, x, y, edge_index):
        row, col = edge_index
        found = torch_scatter.scatter_max(x[row], col, dim=0, dim_size=y.size(0))[0] + y
        return found, torch_scatter.scatter_max(y[col] * x[row], row, dim=0, dim_size=x.size(0))[0]


class NetworksBack(OfNetwork):
    def forward(self, x, edge_index):
        row, col = edge_index
        message = self.message(x, row, col).relu()
        back = torch_scatter.scatter(message, row, dim=0, dim_size=x.size(0), reduce='max')
        return torch.zeros_like(x).index_add(0, col, message) + back


class Detached(Extreme):
    def message(self, x, row, col):
        return (x[row] * 2).detach()


class Layer(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return x_j - x_i

    def aggregate(self, inputs, index, dim_size=None):
        return torch_scatter.scatter(inputs, index, 0, dim_size=dim_size, reduce='max')


class OfTwoSums(Layer):
    def aggregate(self, inputs, index, dim_size=None):
        several = [
            torch_scatter.scatter(inputs, index, 0, dim_size=dim_size, reduce=how) for how in ('max', 'min', 'sum')
        ]
        return torch.cat(several, dim=1)


KINDS = [
    *(Extreme, OfBoth, OfHeads, WithNumbers, OfNetwork, OfActivation, OfNorm, ToOthers, Layer, OfTwoSums),
    *(ToBoth, NetworksBack),
]


def whole_numbers(seed=0):
    """Features of which many are equal."""
    torch.manual_seed(seed)
    return {'x': torch.randn(NODES, WIDTH).round(), 'edge_index': random_edges(NODES, NODES - 3, EDGES)}


@pytest.mark.parametrize('kind', KINDS)
def test_gradients_go_to_the_first_edge(kind):
    given = whole_numbers()
    assert_same(kind(), given)


@pytest.mark.parametrize('kind', [Extreme, OfBoth, OfNetwork, OfActivation])
def test_minima(kind):
    assert_same(kind('min'), whole_numbers())


class WithinWhatIsKept(OfNorm):
    """A reduction to sources, of which a message is computed that is kept."""

    def forward(self, x, edge_index):
        row, col = edge_index
        x = torch.zeros_like(x).index_add(0, row, x[col] * 2)
        return super().forward(x, edge_index)


def test_reductions_within_what_is_kept():
    assert_same(WithinWhatIsKept(), whole_numbers())


def test_two_sets_of_nodes():
    given = whole_numbers()
    assert_same(BetweenSets(), {**given, 'y': torch.randn(NODES - 3, WIDTH).round()})


def test_ties_are_divided_by_pyg_alone():
    """The test's features have ties."""
    given = whole_numbers()
    x = given['x'].requires_grad_()
    out = Extreme()(x, given['edge_index'])
    (of_one,) = torch.autograd.grad(out.sum(), x)
    row, col = given['edge_index']
    divided = torch.zeros_like(x).scatter_reduce(
        0, col.unsqueeze(1).expand(-1, WIDTH), x[row], 'amax', include_self=False
    )
    torch.testing.assert_close(divided, out)
    assert (torch.autograd.grad(divided.sum(), x)[0] - of_one).abs().max() > 0.1


def test_what_is_detached_is_a_maximum():
    compiled = pygfuse.compile(Detached())
    given = whole_numbers()
    torch.testing.assert_close(compiled(**given), Detached()(**given))
    assert [walk.reduce for walk in compiled.plans()[0].walks.values()] == ['max']


@pytest.mark.parametrize('kind', [Extreme, WithNumbers, OfNetwork, OfNorm, Layer])
def test_one_walk_where_there_are_no_gradients(kind):
    given = whole_numbers()
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given), module(**given))
        (plan,) = compiled.plans()
        steps = plan.of_so_many(EDGES).steps
        assert {node.attributes['reduce'] for node in steps if node.op == 'reduce'} <= {'max', 'min'}
    assert_same(compiled, given)


def test_kernels_of_networks_keep_the_first_edge():
    compiled = assert_same(OfNetwork(), whole_numbers())
    assert [form.title for form in compiled.plans()[0].walks.values()] == ['network on chunks of edges: max']


def test_networks_whose_weights_are_zero():
    """All edges tie."""
    module = OfNetwork()
    nn.init.zeros_(module.nn[2].weight)
    assert_same(module, whole_numbers())


def test_networks_along_few_edges(monkeypatch):
    """These have a row each at once, of which ties share the gradient."""
    monkeypatch.setattr(few_edges, 'MOST_AT_ONCE_BYTES', 2**19)
    module = OfNetwork()
    nn.init.zeros_(module.nn[2].weight)
    assert_same(module, whole_numbers(), few_edges.SO_FEW_EDGES)


@pytest.mark.parametrize('kind', [Extreme, OfBoth, ToBoth])
def test_edges_that_a_type_cannot_count(kind, monkeypatch):
    """They are numbered within the rows of their targets."""
    monkeypatch.setattr(numbers_of_edges, '_EXACT', {torch.float32: 10, torch.float64: 10})
    assert_same(kind(), whole_numbers())
    assert_same_in_traces(kind(), whole_numbers())


@pytest.mark.parametrize('kind', [Extreme, OfBoth, Layer])
def test_in_traces(kind):
    assert_same_in_traces(kind(), whole_numbers(), fullgraph=True)


@pytest.mark.parametrize('kind', [Extreme, OfBoth])
def test_gradients_of_gradients(kind):
    given = whole_numbers()
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    compiled = pygfuse.compile(kind())
    assert torch.autograd.gradcheck(lambda x: compiled(x, given['edge_index']), x)
    assert torch.autograd.gradgradcheck(lambda x: compiled(x, given['edge_index']), x)
    assert compiled.note.reason is None


@pytest.mark.parametrize('reduce', ['max', 'min'])
def test_what_is_not_finite(reduce):
    inf = torch.inf if reduce == 'min' else -torch.inf
    x = torch.tensor([[inf, 1.0, inf], [inf, inf, 2.0], [-inf, 0.0, 1.0]], requires_grad=True)
    edge_index = torch.tensor([[0, 1, 2, 1, 0], [0, 0, 1, 1, 2]])
    compiled, results = pygfuse.compile(Extreme(reduce)), []
    for module in (Extreme(reduce), compiled):
        out = module(x, edge_index)
        results.append((out, torch.autograd.grad(out.sum(), x)[0]))
    torch.testing.assert_close(*results)
    assert compiled.note.reason is None
    # torch_scatter hides a NaN
    x = torch.tensor([[1.0], [torch.nan], [2.0]])
    assert compiled(x, edge_index).isnan().flatten().tolist() == [True, True, False]


def test_half_precision_counts_too_few_edges():
    extreme = value('reduce', leaf('x_j', 'source', (4,), torch.bfloat16), reduce='max', of_one=True)
    with pytest.raises(Refused, match=r'a maximum of torch_scatter in torch\.bfloat16'):
        extremes_as_sums(extreme)


@settings(max_examples=40, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30),
    values=st.lists(st.integers(-1, 1), min_size=14, max_size=14),
    reduce=st.sampled_from(['max', 'min']),
    kind=st.sampled_from([Extreme, OfBoth]),
)
def test_odd_graphs(edges, values, reduce, kind):
    x = torch.tensor(values, dtype=torch.float64).view(7, 2).requires_grad_()
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t().contiguous()
    module, weight = kind(reduce), torch.arange(14.0, dtype=torch.float64).view(7, 2)
    results = []
    for one in (module, pygfuse.compile(copy.deepcopy(module))):
        out = one(x, edge_index)
        results.append((out, torch.autograd.grad((out * weight).sum(), x)[0]))
    torch.testing.assert_close(*results)
