"""Values of edges that are stored and that a program computes, of all shapes."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch.nn import Linear
from torch_geometric.utils import scatter, softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS

WIDTH = 6


def _rejected(x, e):
    """Vectors without what they have in the direction of an edge, as equivariant networks take them."""
    x, d = x.view(-1, 3, 2), e[:, :3].unsqueeze(-1)
    return x - (x * d).sum(dim=1, keepdim=True) * d


VALUES = {
    'a row': (lambda x_i, x_j, e: (x_i - x_j + e).tanh(), True),
    'heads': (lambda x_i, x_j, e: (x_i * x_j).view(-1, 2, 3) - e.view(-1, 2, 3), True),
    'three numbers': (lambda x_i, x_j, e: x_i[:, :3] - x_j[:, 3:], True),
    'one number': (lambda x_i, x_j, e: (x_i[:, :1] - x_j[:, :1]).sigmoid(), None),
    'a number': (lambda x_i, x_j, e: (x_i[:, 0] - x_j[:, 1]).exp() * e[:, 2], None),
    'a scaled row': (lambda x_i, x_j, e: e[:, :1] * (x_i + x_j), True),
    'a sum over directions': (lambda x_i, x_j, e: _rejected(x_i, e).mul(_rejected(x_j, e)).sum(dim=1), True),
    'a cut-off': (lambda x_i, x_j, e: x_i * x_j * e[:, :1].cos(), True),
    'a cosine of a row': (lambda x_i, x_j, e: (x_i * x_j + e).cos() * x_j, False),
    'a sum': (lambda x_i, x_j, e: (x_i * x_j).sum(dim=-1), True),
}


class Stored(Own):
    def __init__(self, values, **options):
        super().__init__(node_dim=0, **options)
        self.values = values

    def forward(self, edge_index, x, edge_attr):
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr, size=(len(x), len(x)))
        return out, self.stored

    def message(self, x_i, x_j, edge_attr):
        self.stored = self.values(x_i, x_j, edge_attr)
        return x_j * edge_attr


def results(conv, given):
    out, stored = conv(**given)
    wanted = [given['x'], given['edge_attr']]
    grads = torch.autograd.grad((out.square().sum() + stored.square().sum()), wanted, create_graph=True)
    again = torch.autograd.grad(sum(grad.square().sum() for grad in grads), wanted)
    return out, stored, *grads, *again


def check(values, is_walk, edge_index, width):
    """Values of edges that are stored, their gradients and those of these; whether a walk writes them, or None."""
    nodes, edges = int(edge_index.max()) + 1, edge_index.shape[1]
    x, edge_attr = torch.randn(nodes, width).double() / 4, torch.randn(edges, width).double()
    given = {'edge_index': edge_index, 'x': x.requires_grad_(), 'edge_attr': edge_attr.requires_grad_()}
    conv = Stored(values)
    fused = pygfuse.compile(copy.deepcopy(conv))
    for found, expected in zip(results(fused, given), results(conv, given), strict=True):
        torch.testing.assert_close(found, expected)
    assert fused.note.reason is None
    (plan,) = fused.plans()
    titles = [form.title for form in plan.walks.values()]
    assert is_walk in (None, any('values of edges, heads' in title for title in titles))


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'hub', 'repeated edges'])
@pytest.mark.parametrize('name', VALUES)
def test_values_gradients_and_those_of_gradients(name, graph):
    check(*VALUES[name], GRAPHS[graph]().edge_index, WIDTH)


SCORES = {
    'a score': (lambda x_i, x_j, e: (x_i * x_j).sum(dim=-1).sigmoid(), True),
    'scaled heads': (lambda x_i, x_j, e: ((x_i * x_j).view(-1, 2, 16) * e[:, :2].unsqueeze(-1)).sum(-1), True),
    'heads with features': (lambda x_i, x_j, e: (x_i.view(-1, 2, 16) * x_j.view(-1, 2, 16)).sum(-1, True) + 1, True),
    'heads in another order': (lambda x_i, x_j, e: (x_i * x_j).view(-1, 16, 2).sum(dim=1).exp(), False),
    'factors that differ': (lambda x_i, x_j, e: ((x_i * x_j).view(-1, 2, 16) * e.view(-1, 2, 16)).sum(-1).tanh(), True),
    'narrow sums': (lambda x_i, x_j, e: (x_i - x_j)[:, :3].square().sum(dim=-1, keepdim=True).sqrt(), None),
}


@pytest.mark.parametrize('name', SCORES)
def test_sums_over_channels_in_another_order_or_not(name):
    """A walk gives them where they are those of heads, one after the other."""
    check(*SCORES[name], GRAPHS['random']().edge_index, 32)


class Scored(Own):
    """The sum of scores, and what they weigh: a softmax that is written out and clamped."""

    def message(self, x_i, x_j):
        score = ((x_i * x_j).view(-1, 2, 16).sum(-1) / 4).clamp(-5, 5).exp()
        return score, x_j.view(-1, 2, 16) * score.unsqueeze(-1)

    def aggregate(self, inputs, index, dim_size=None):
        total, out = (scatter(part, index, 0, dim_size) for part in inputs)
        return (out / (total.unsqueeze(-1) + 1e-6)).flatten(1)


def test_sums_of_scores():
    torch.manual_seed(0)
    conv = Scored()
    edge_index = GRAPHS['random']().edge_index
    assert_as_pyg(conv, {'edge_index': edge_index, 'x': torch.randn(int(edge_index.max()) + 1, 32)})
    titles = [form.title for plan in conv.plans() for form in plan.walks.values()]
    assert not any('operators on chunks' in title for title in titles)


class Mapped(Stored):
    """Linear maps of nodes, which are deferred within `pygfuse.active`."""

    def __init__(self, weighs):
        super().__init__(None)
        self.maps, self.weighs = torch.nn.ModuleList([Linear(WIDTH, WIDTH) for _ in range(2)]), weighs

    def message(self, x_i, x_j, index, size_i):
        a, b = self.maps[0](x_i), self.maps[1](x_j)
        self.stored = softmax((a * b).sum(dim=-1, keepdim=True), index, num_nodes=size_i) if self.weighs else a - b
        return b * self.stored


@pytest.mark.parametrize('weighs', [True, False], ids=['weights', 'values'])
def test_within_active(weighs):
    torch.manual_seed(0)
    example, found = GRAPHS['random'](), []
    conv = pygfuse.compile(Mapped(weighs))
    x, edge_attr = example.x(WIDTH), torch.zeros(example.edge_index.shape[1], WIDTH)
    mask = torch.arange(len(x)) % 3 == 0
    for block in (contextlib.nullcontext(), pygfuse.active(mask)):
        conv.forget_plans()
        with block:
            out, stored = conv(example.edge_index, x.requires_grad_(), edge_attr)
            loss = out[mask].square().sum() + stored.square().sum()
        found.append([out[mask], *torch.autograd.grad(loss, (x, *conv.parameters()))])
        assert conv.note.reason is None
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want)
