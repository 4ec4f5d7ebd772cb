"""Maxima and minima of messages that are computed: backward finds the edges that attain them by their bits."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
import pygfuse.conv


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('aggr', ['max', 'min'])
def test_gradients_go_to_the_edges_that_attain(aggr, dtype):
    torch.manual_seed(0)
    edge_index, x, edge_attr = torch.randint(20, (2, 100)), torch.randn(20, 8), torch.randn(100, 3)
    layer = pyg.CGConv(8, dim=3, aggr=aggr)
    fused = pygfuse.conv.CGConv(8, dim=3, aggr=aggr)
    fused.load_state_dict(layer.state_dict())
    found = []
    for conv in (layer, fused):
        conv, leaves = conv.to(dtype), [x.to(dtype).requires_grad_(), edge_attr.to(dtype).requires_grad_()]
        out = conv(leaves[0], edge_index, leaves[1])
        found.append(torch.autograd.grad(out.sin().sum(), [*leaves, *conv.parameters()]))
    assert fused.note.reason is None
    for expected, gradient in zip(*found, strict=True):
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize('aggr', ['max', 'min'])
def test_extremes_of_what_a_softmax_weighs(aggr):
    """No walk keeps the statistics of both."""
    torch.manual_seed(0)
    edge_index, x = torch.randint(20, (2, 100)), torch.randn(20, 8)
    layer, found = pyg.AGNNConv(aggr=aggr), []
    fused = pygfuse.fuse(copy.deepcopy(layer))
    for conv in (layer, fused):
        leaf = x.clone().requires_grad_()
        out = conv(leaf, edge_index)
        found.append((out, *torch.autograd.grad(out.sin().sum(), [leaf, *conv.parameters()])))
    for expected, gradient in zip(*found, strict=True):
        torch.testing.assert_close(gradient, expected)
