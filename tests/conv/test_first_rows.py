"""Targets that are the first of the sources, ``(x, x[:n])``: a map that both share is taken once."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.overrides import TorchFunctionMode

import pygfuse
from pygfuse.conv._layer.checks import is_first_rows
from tests.support.parity import random_edges

SOURCES, TARGETS = 30, 12
LAYERS = {
    'GAT': lambda: pyg.GATConv(6, 4, heads=2),
    'GATv2': lambda: pyg.GATv2Conv(6, 4, heads=2, share_weights=True),
}


class Products(TorchFunctionMode):
    """Counts linear maps of features."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.nn.functional.linear and args[0].shape[1] == 6
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.parametrize('requires_grad', [False, True])
def test_a_shared_map_is_taken_once(name, requires_grad):
    torch.manual_seed(0)
    plain, edge_index = LAYERS[name]().double(), random_edges(SOURCES, TARGETS, 90)
    found = []
    for conv in (plain, pygfuse.fuse(copy.deepcopy(plain))):
        x = torch.linspace(-1, 1, SOURCES * 6, dtype=torch.float64).view(SOURCES, 6).clone()
        x.requires_grad_(requires_grad)
        with Products() as products:
            out = conv((x, x[:TARGETS]), edge_index)
        out.square().sum().backward()
        gradients = [x.grad] if requires_grad else []
        found.append([out, *gradients, *(parameter.grad for parameter in conv.parameters())])
    assert products.count == 1
    for ours, right in zip(*found, strict=True):
        torch.testing.assert_close(ours, right)


@pytest.mark.parametrize('requires_grad', [False, True])
def test_what_the_first_rows_are(requires_grad):
    x = torch.randn(6, 3, requires_grad=requires_grad)
    assert is_first_rows((x, x[:4]))
    others = [x[1:], x[:, :2], x[:4].clone(), x[::2], torch.randn(4, 3), x.t()[:3], x[:4].view(2, 6)]
    assert not any(is_first_rows((x, other)) for other in others)
    assert not is_first_rows((x[:4], x))


def test_a_gradient_that_somebody_waits_for_at_the_view():
    x = torch.randn(6, 3, requires_grad=True)
    for wait in (lambda view: view.retain_grad(), lambda view: view.register_hook(lambda grad: grad)):
        view = x[:4]
        wait(view)
        assert not is_first_rows((x, view))


@pytest.mark.parametrize('change', ['two maps', 'spectral norm'])
def test_maps_that_are_not_one(change):
    """Two maps in place of a shared one, and a weight that changes each time it is read."""
    torch.manual_seed(0)
    plain, edge_index, x = LAYERS['GATv2'](), random_edges(SOURCES, TARGETS, 90), torch.randn(SOURCES, 6)
    if change == 'two maps':
        plain.lin_r = torch.nn.Linear(6, 8)
    else:
        torch.nn.utils.parametrizations.spectral_norm(plain.lin_l)
    ours = pygfuse.fuse(copy.deepcopy(plain))
    torch.testing.assert_close(ours((x, x[:TARGETS]), edge_index), plain((x, x[:TARGETS]), edge_index))
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), buffer)


def test_first_rows_with_gradients_of_their_own():
    x = torch.randn(6, 3)
    alone = x[:4].requires_grad_()
    assert not is_first_rows((x, alone))
    x = torch.randn(6, 3, requires_grad=True)
    assert not is_first_rows((x, x[:4].detach()))
    assert not is_first_rows((x, x[:4].detach().requires_grad_()))
