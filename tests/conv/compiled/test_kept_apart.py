"""Layers that write into what they hand to their messages, whose gradients are PyG's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from pygfuse.compiler.capture.writes_in_code import writes_into_given
from tests.support.parity import random_edges

WIDTH, NODES = 8, 30


class Base(MessagePassing):
    def __init__(self):
        super().__init__(aggr='sum')
        self.weight = nn.Parameter(torch.rand(WIDTH))

    def message(self, x_i, x_j):
        return torch.tanh(x_i - x_j) * x_j * self.weight


class Residual(Base):
    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        x += out
        return x


class InUpdate(Base):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def update(self, inputs, x):
        x += inputs
        return x


class ByMethods(Base):
    def forward(self, x, edge_index):
        h = x.cos()
        out = self.propagate(edge_index, x=(h, h))
        h.add_(out).relu_()
        return h


class Parts(Base):
    def forward(self, x, edge_index):
        h = x.cos()
        out = self.propagate(edge_index, x=h)
        h[:, :2] = out[:, :2]
        h[3:] = 1.0
        return h


class InSteps(Base):
    def forward(self, x, edge_index):
        for _ in range(2):
            x = self.step(x, edge_index)
        return x

    def step(self, x, edge_index):
        out = self.propagate(
            edge_index,
            x=x,
            size=None,
        )
        x.mul_(0.5)
        x -= out
        return x


class OfTheResult(Base):
    """What writes into its own result alone: nothing is copied."""

    def forward(self, x, edge_index):
        count = 0
        out = self.propagate(edge_index, x=x)
        out += x
        out *= 2
        out[:, 0] = 0
        count += 1
        return out


def results(conv, x, edge_index):
    x = x.clone().requires_grad_()
    conv.zero_grad()
    out = conv(x * 1.0, edge_index)
    out.square().sum().backward()
    return out.detach(), x.grad, conv.weight.grad.clone()


@pytest.mark.parametrize('kind', [Residual, InUpdate, ByMethods, Parts, InSteps, OfTheResult], ids=lambda k: k.__name__)
def test_gradients_are_those_of_pyg(kind):
    torch.manual_seed(0)
    conv, x, edge_index = kind(), torch.randn(NODES, WIDTH), random_edges(NODES, NODES, 200)
    fused = pygfuse.compile(copy.deepcopy(conv))
    expected = results(conv, x, edge_index)
    # a call that is the first of its kind, and one that is known
    for _ in range(2):
        torch.testing.assert_close(results(fused, x, edge_index), expected, rtol=1e-4, atol=1e-5)
        assert fused.note.reason is None
    assert writes_into_given(kind) is (kind is not OfTheResult)


def test_what_the_caller_gave_is_written_into():
    torch.manual_seed(0)
    edge_index = random_edges(NODES, NODES, 200)
    for kind in (Residual, InUpdate):
        conv = kind()
        ours = torch.randn(NODES, WIDTH)
        theirs = ours.clone()
        assert pygfuse.compile(copy.deepcopy(conv))(ours, edge_index) is ours
        torch.testing.assert_close(ours, conv(theirs, edge_index))


def test_features_of_edges_and_sparse_adjacencies(needs_torch_sparse):
    from torch_sparse import SparseTensor

    class Weighed(Base):
        def forward(self, x, adj_t):
            out = self.propagate(adj_t, x=x, edge_weight=None)
            x += out
            return x

        def message(self, x_i, x_j, edge_weight):
            return torch.tanh(x_i - x_j) * x_j * edge_weight.view(-1, 1) * self.weight

        def update(self, inputs, edge_weight):
            return inputs if edge_weight is None else inputs * edge_weight.mean()

    torch.manual_seed(0)
    edge_index = torch.unique(random_edges(NODES, NODES, 200), dim=1)
    adj_t = SparseTensor.from_edge_index(edge_index, torch.rand(edge_index.shape[1]), (NODES, NODES)).t()
    conv, x = Weighed(), torch.randn(NODES, WIDTH)
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(2):
        torch.testing.assert_close(results(fused, x, adj_t), results(conv, x, adj_t), rtol=1e-4, atol=1e-5)
