"""Edges that are written to, or gone, between calls."""

from __future__ import annotations

import pytest
import torch

from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, FEATURES, RANDOM, layers

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def test_an_edge_index_of_inference_mode_may_change_in_place():
    conv = GATConv(**BASE)
    x = RANDOM.x(FEATURES)
    with torch.inference_mode():
        edge_index = RANDOM.edge_index.clone()
        conv(x, edge_index)
        edge_index.copy_(RANDOM.edge_index.flip(0))
        assert torch.equal(conv(x, edge_index), conv(x, RANDOM.edge_index.flip(0)))


def test_an_edge_index_changed_in_place_is_noticed():
    pyg, fused = layers()
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index.clone()
    for change in (lambda: None, lambda: edge_index.copy_(edge_index.flip(0)), lambda: edge_index[0].fill_(3)):
        change()
        torch.testing.assert_close(fused(x, edge_index), pyg(x, edge_index))


@pytest.mark.parametrize('change', [lambda index: index.fill_(0), lambda index: index.add_(10**9)])
def test_an_edge_index_changed_between_forward_and_backward_raises(change):
    conv = GATConv(**BASE)
    edge_index = RANDOM.edge_index.clone()
    out = conv(RANDOM.x(FEATURES), edge_index)
    change(edge_index)
    with pytest.raises(RuntimeError):
        out.sum().backward()


def test_a_model_trains_after_its_edge_index_is_gone():
    conv = GATConv(**BASE)
    x = RANDOM.x(FEATURES)
    out = conv(x, RANDOM.edge_index.clone())
    expected = conv(x, RANDOM.edge_index)
    out.sum().backward()
    gradient = conv.lin.weight.grad.clone()
    conv.zero_grad()
    expected.sum().backward()
    assert torch.equal(conv.lin.weight.grad, gradient)
