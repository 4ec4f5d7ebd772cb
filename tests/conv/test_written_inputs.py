"""Callers may write into what they gave a layer wherever PyG's layer saves nothing of it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from pygfuse.memory import saved_bytes
from tests.support.parity import random_edges

NODES, WIDTH = 30, 8


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


class Own(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr='mean')
        self.nn = network()

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1))


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.nn = network()

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add(0, col, self.nn(torch.cat([x[row], x[col]], dim=-1)))


LAYERS = {
    'GINConv': lambda: pyg.GINConv(nn.Linear(WIDTH, WIDTH)),
    'GINEConv': lambda: pyg.GINEConv(nn.Linear(WIDTH, WIDTH)),
    'EdgeConv': lambda: pyg.EdgeConv(network()),
    'CGConv': lambda: pyg.CGConv(WIDTH),
    'NNConv': lambda: pyg.NNConv(WIDTH, WIDTH, nn.Linear(WIDTH, WIDTH * WIDTH), root_weight=False),
    'FeaStConv': lambda: pyg.FeaStConv(WIDTH, WIDTH, heads=2),
    'a layer': Own,
    'a module': Module,
}


class Residual(nn.Module):
    """By an operator, to all nodes."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, *given):
        x = x * 1.0
        x += self.conv(x, *given)
        return x


class Masked(Residual):
    """By another name, to some, as geometric vector perceptrons with a mask of nodes do."""

    def forward(self, x, *given):
        x = x * 1.0
        change, mask = self.conv(x, *given), x[:, 0] > 0
        before = x
        x = x[mask] + change[mask]
        before[mask] = x
        return before


class Results(Residual):
    """Into what the layer returned alone."""

    def forward(self, x, *given):
        out = self.conv(x, *given)
        out += x
        return out


@pytest.mark.parametrize('edges', [100, 3000])
@pytest.mark.parametrize('around', [Residual, Masked], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize('name', LAYERS)
def test_gradients_are_those_of_pyg(name, around, edges):
    torch.manual_seed(0)
    plain = LAYERS[name]()
    given = random_edges(NODES, NODES, edges), *([torch.randn(edges, WIDTH)] if name in ('GINEConv', 'NNConv') else [])
    fused, x, found = pygfuse.compile(copy.deepcopy(plain)), torch.randn(NODES, WIDTH).requires_grad_(), []
    for conv in (plain, fused, fused):
        out = around(conv)(x, *given)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])])
    for ours in found[1:]:
        for one, other in zip(ours, found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert fused.note.reason is None


def test_nothing_is_copied_of_what_nobody_writes_into():
    conv, x = pygfuse.fuse(LAYERS['EdgeConv']()), torch.randn(NODES, WIDTH).requires_grad_()
    edge_index, kept = random_edges(NODES, NODES, 3000), []
    for around in (Results, Masked):
        model = around(conv)
        model(x, edge_index)
        kept.append(saved_bytes(lambda model=model: model(x, edge_index), exclude=[x, *conv.parameters()]))
    assert kept[1] - kept[0] >= x.nbytes
