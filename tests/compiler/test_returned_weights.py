"""Attention whose weights are returned or stored: a walk gives them beside its sum."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Linear, Parameter
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, HEADS, NODES, EDGES = 8, 2, 12, 60


class Attention(Own):
    """Scores that are sums over channels, weights that are stored as they are or in another shape."""

    def __init__(self, dropout=0.0, shape=(HEADS,), aggr='sum'):
        super().__init__(aggr=aggr, node_dim=0)
        self.lin, self.att = Linear(WIDTH, WIDTH), Parameter(torch.randn(1, HEADS, WIDTH // HEADS))
        self.dropout, self.shape, self._alpha = dropout, shape, None

    def forward(self, edge_index, x):
        out = self.propagate(edge_index, x=self.lin(x))
        alpha, self._alpha = self._alpha, None
        return out, alpha

    def message(self, x_i, x_j, index, ptr, size_i):
        a, b = x_i.view(-1, HEADS, WIDTH // HEADS), x_j.view(-1, HEADS, WIDTH // HEADS)
        alpha = softmax((F.leaky_relu(a + b, 0.2) * self.att).sum(dim=-1), index, ptr, size_i)
        self._alpha = alpha.view(-1, *self.shape)
        alpha = F.dropout(alpha, self.dropout, self.training)
        return (b * alpha.unsqueeze(-1)).flatten(1)


class AndScores(Attention):
    """The scores are returned beside."""

    def message(self, x_i, x_j, index, ptr, size_i):
        out = super().message(x_i, x_j, index, ptr, size_i)
        self.scores = x_i - x_j
        return out


class Dropped(Attention):
    """The weights are stored behind dropout."""

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = softmax((x_i * x_j).sum(dim=-1, keepdim=True), index, ptr, size_i)
        self._alpha = F.dropout(alpha, self.dropout, self.training)
        return x_j * self._alpha


def given():
    torch.manual_seed(0)
    return random_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH, requires_grad=True)


def results(conv, edge_index, x, of_weights):
    out, alpha = conv(edge_index, x)
    loss = out.square().sum() + (alpha * torch.linspace(0, 1, alpha.numel()).view_as(alpha)).sum() * of_weights
    read = [x, *(conv.lin.parameters() if isinstance(conv, Dropped) else conv.parameters())]
    return out, alpha, *torch.autograd.grad(loss, read)


@pytest.mark.parametrize('of_weights', [0, 1], ids=['weights unused', 'weights in the loss'])
@pytest.mark.parametrize('options', [{}, {'shape': (HEADS, 1)}, {'aggr': 'mean'}], ids=str)
@pytest.mark.parametrize('kind', [Attention, AndScores, Dropped])
def test_outputs_weights_and_gradients(kind, options, of_weights):
    conv, arguments = kind(**options), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(3):
        for found, expected in zip(
            results(fused, *arguments, of_weights), results(conv, *arguments, of_weights), strict=True
        ):
            torch.testing.assert_close(found, expected)
    assert fused.note.reason is None
    is_one_walk = kind is not AndScores
    (plan,) = fused.plans()
    assert any('which are returned' in form.title for form in plan.walks.values()) == is_one_walk


def test_weights_are_those_before_dropout():
    conv, arguments = Attention(dropout=0.5), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    conv.eval()
    torch.testing.assert_close(fused(*arguments)[1], conv(*arguments)[1])
    fused.eval()
    torch.testing.assert_close(fused(*arguments), conv(*arguments))
    assert fused.note.reason is None


def test_nothing_of_edges_times_channels_is_kept():
    torch.manual_seed(0)
    edge_index, x = random_edges(50, 50, 6000), torch.randn(50, WIDTH, requires_grad=True)
    conv = pygfuse.compile(Attention())
    conv(edge_index, x)
    kept = saved_bytes(lambda: conv(edge_index, x), exclude=[edge_index, x, *conv.parameters()])
    assert kept < 6000 * WIDTH * 4


def test_torch_compile():
    conv, arguments = Attention(), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    traced = torch.compile(fused, backend='eager')
    for found, expected in zip(traced(*arguments), conv(*arguments), strict=True):
        torch.testing.assert_close(found, expected)
