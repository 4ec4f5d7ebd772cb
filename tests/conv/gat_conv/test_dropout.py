"""Dropout of attention weights."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import scatter

from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, CHANNELS, EDGE_DIM, FEATURES, HEADS, MANY_EDGES, MANY_X, RANDOM

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def dropped(conv, x, edge_index, edge_attr=None, seed: int = 0):
    """Output, adjacency and attention weights of a layer in training with this seed."""
    torch.manual_seed(seed)
    out, (adjacency, weights) = conv(x, edge_index, edge_attr, return_attention_weights=True)
    return out, adjacency, weights


def test_dropout_is_decided_by_the_seed():
    conv = GATConv(**BASE, dropout=0.5)
    first, _, _ = dropped(conv, MANY_X, MANY_EDGES, seed=0)
    assert torch.equal(dropped(conv, MANY_X, MANY_EDGES, seed=0)[0], first)
    assert not torch.equal(dropped(conv, MANY_X, MANY_EDGES, seed=1)[0], first)
    torch.manual_seed(0)
    assert torch.equal(conv(MANY_X, MANY_EDGES), first)
    assert not torch.equal(conv(MANY_X, MANY_EDGES), first)


@pytest.mark.parametrize('edge_dim', [None, EDGE_DIM])
@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('p', [0.1, 0.6])
def test_dropout_zeroes_weights_and_scales_the_rest(p, loops, edge_dim):
    conv = GATConv(**BASE, dropout=p, add_self_loops=loops, edge_dim=edge_dim, bias=False).double()
    x = MANY_X.double()
    edge_attr = None if edge_dim is None else torch.randn(MANY_EDGES.shape[1], edge_dim, dtype=torch.float64)
    out, (source, target), weights = dropped(conv, x, MANY_EDGES, edge_attr)
    _, _, alpha = dropped(conv.eval(), x, MANY_EDGES, edge_attr)
    is_zero = weights == 0
    torch.testing.assert_close(weights[~is_zero], (alpha / (1 - p))[~is_zero], rtol=1e-12, atol=0)
    count = weights.numel()
    assert abs(int(is_zero.sum()) - p * count) < 5 * (count * p * (1 - p)) ** 0.5
    # every head draws for itself
    assert 0.5 * p < float(is_zero[:, 0].double().mean()) < 1.5 * p
    assert not torch.equal(is_zero[:, 0], is_zero[:, 1])
    messages = weights.unsqueeze(-1) * conv.lin(x).view(-1, HEADS, CHANNELS)[source]
    torch.testing.assert_close(out, scatter(messages, target, 0, len(x)).flatten(1), rtol=1e-10, atol=1e-12)


def test_dropout_keeps_the_expectation():
    conv = GATConv(**BASE, dropout=0.4)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    runs = 200
    mean = sum(dropped(conv, x, edge_index, seed=seed)[2] for seed in range(runs)) / runs
    _, _, alpha = dropped(conv.eval(), x, edge_index)
    deviation = alpha * (0.4 / 0.6 / runs) ** 0.5
    assert bool(((mean - alpha).abs() < 5 * deviation).all())


@pytest.mark.parametrize('training', [True, False])
def test_dropout_of_nothing(training):
    conv = GATConv(**BASE, dropout=0.0 if training else 0.9).train(training)
    plain = GATConv(**BASE)
    plain.load_state_dict(conv.state_dict())
    assert torch.equal(conv(MANY_X, MANY_EDGES), plain(MANY_X, MANY_EDGES))


def test_dropout_of_everything():
    conv = GATConv(**BASE, dropout=1.0)
    x = MANY_X.clone().requires_grad_()
    out, _, weights = dropped(conv, x, MANY_EDGES)
    assert not weights.any()
    assert torch.equal(out, conv.bias.expand_as(out))
    out.sum().backward()
    assert not x.grad.any()
    assert not conv.lin.weight.grad.any()


def test_dropout_goes_with_the_edge_not_with_the_order_of_the_walk():
    conv = GATConv(**BASE, dropout=0.5, add_self_loops=False)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    _, _, weights = dropped(conv, MANY_X, MANY_EDGES)
    x = torch.empty_like(MANY_X)
    x[order] = MANY_X
    _, _, renamed = dropped(conv, x, order[MANY_EDGES])
    assert torch.equal(weights == 0, renamed == 0)


def test_gradients_of_returned_weights_with_dropout():
    conv, x = GATConv(**BASE, dropout=0.5).double(), RANDOM.x(FEATURES).double()

    def weights_of(x):
        torch.manual_seed(0)
        return conv(x, RANDOM.edge_index, return_attention_weights=True)[1][1]

    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).double()
    factors = torch.randn(weights_of(x).shape, generator=torch.Generator().manual_seed(2)).double()
    given = x.clone().requires_grad_()
    (found,) = torch.autograd.grad((weights_of(given) * factors).sum(), given)
    step = 1e-6 * direction
    expected = ((weights_of(x + step) - weights_of(x - step)) * factors).sum() / 2e-6
    torch.testing.assert_close((found * direction).sum(), expected, rtol=1e-6, atol=1e-8)


def test_returned_weights_with_dropout_under_autocast():
    conv, x, found = GATConv(**BASE, dropout=0.5), RANDOM.x(FEATURES), []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        with torch.autocast('cpu', torch.bfloat16, enabled=dtype is torch.bfloat16):
            found.append(conv.to(dtype)(x.to(dtype), RANDOM.edge_index, return_attention_weights=True)[1][1])
    assert found[1].dtype is torch.bfloat16
    assert torch.equal(found[1] == 0, found[0] == 0)
    torch.testing.assert_close(found[1].float(), found[0], rtol=0.05, atol=0.02)
