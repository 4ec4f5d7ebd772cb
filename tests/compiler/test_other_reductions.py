"""Layers with a written form for sums, compiled where they reduce otherwise."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse

KINDS = {
    'GATConv': lambda aggr: pyg.GATConv(8, 4, heads=2, aggr=aggr),
    'GATv2Conv': lambda aggr: pyg.GATv2Conv(8, 4, heads=2, aggr=aggr),
    'AGNNConv': lambda aggr: pyg.AGNNConv(aggr=aggr),
}


@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('kind', KINDS)
def test_extremes_of_attention(kind, aggr):
    found = []
    for fused in (False, True):
        torch.manual_seed(0)
        conv = KINDS[kind](aggr).double()
        conv = pygfuse.fuse(conv) if fused else conv
        x = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
        out = conv(x, torch.randint(40, (2, 300)))
        out.square().sum().backward()
        found.append([out, x.grad, *(parameter.grad for parameter in conv.parameters())])
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_the_only_edge_of_a_softmax_has_no_gradient():
    """The sum of exponentials is 1 but for a rounding, to either side: it has a gradient on both."""
    conv = pygfuse.fuse(pyg.AGNNConv(aggr='max').double())
    for seed in range(8):
        torch.manual_seed(seed)
        x = torch.randn(20, 8, dtype=torch.float64)
        out = conv(x, torch.empty(2, 0, dtype=torch.int64))
        (found,) = torch.autograd.grad(out, conv.beta, torch.randn_like(out))
        torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)
