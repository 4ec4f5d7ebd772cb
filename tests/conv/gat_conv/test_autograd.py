"""Gradients of GATConv, of any order, and where none is wanted."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric.nn import GATConv as PyGATConv

from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, EDGE_DIM, FEATURES, RANDOM, layers
from tests.support.parity import random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.mark.parametrize('p', [0.0, 0.5])
@pytest.mark.parametrize('edge_dim', [None, 2])
@pytest.mark.parametrize('second', [False, True])
def test_derivatives(second, edge_dim, p):
    torch.manual_seed(0)
    conv = GATConv(3, 2, heads=2, dropout=p, edge_dim=edge_dim).double()
    edge_index = random_edges(4, 4, 8)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    edge_attr = None if edge_dim is None else torch.randn(8, edge_dim, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in conv.named_parameters()]

    def run(x, edge_attr, *parameters):
        torch.manual_seed(5)  # the same edges drop in every evaluation
        return torch.func.functional_call(conv, dict(zip(names, parameters, strict=True)), (x, edge_index, edge_attr))

    check_gradients = gradgradcheck if second else gradcheck
    assert check_gradients(run, (x, edge_attr, *conv.parameters()))
    assert conv.note.reason is None


def test_gradients_only_where_required():
    conv = GATConv(**BASE, edge_dim=EDGE_DIM)
    conv.lin.weight.requires_grad_(False)
    conv.att_dst.requires_grad_(False)
    x, edge_attr = RANDOM.x(FEATURES), RANDOM.edge_attr(EDGE_DIM).requires_grad_()
    conv(x, RANDOM.edge_index, edge_attr).sum().backward()
    assert x.grad is None
    assert conv.lin.weight.grad is None
    assert conv.att_dst.grad is None
    pyg = PyGATConv(**BASE, edge_dim=EDGE_DIM)
    pyg.load_state_dict(conv.state_dict())
    pyg_attr = edge_attr.detach().clone().requires_grad_()
    pyg(x, RANDOM.edge_index, pyg_attr).sum().backward()
    torch.testing.assert_close(edge_attr.grad, pyg_attr.grad)
    torch.testing.assert_close(conv.att_edge.grad, pyg.att_edge.grad)
    torch.testing.assert_close(conv.att_src.grad, pyg.att_src.grad)


def test_only_the_bias_trains():
    conv = GATConv(**BASE)
    for name, parameter in conv.named_parameters():
        parameter.requires_grad_(name == 'bias')
    conv(RANDOM.x(FEATURES), RANDOM.edge_index).sum().backward()
    assert [name for name, parameter in conv.named_parameters() if parameter.grad is not None] == ['bias']


def test_an_unused_attention_vector_gets_no_gradient():
    conv = GATConv(**BASE, add_self_loops=False)
    conv((RANDOM.x(FEATURES), None), RANDOM.edge_index).sum().backward()
    assert conv.att_dst.grad is None
    assert conv.att_src.grad is not None


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index).detach()
    with mode():
        out = conv(x, edge_index)
        assert not out.requires_grad
        assert torch.equal(out, expected)
        # an edge_index made here has no version counter
        assert torch.equal(conv(x, edge_index.clone()), expected)
    assert torch.equal(conv(x, edge_index), expected)


def test_backward_twice_gives_the_same():
    conv = GATConv(**BASE, dropout=0.5)
    x = RANDOM.x(FEATURES).requires_grad_()
    out = conv(x, RANDOM.edge_index).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (second,) = torch.autograd.grad(out, x)
    assert torch.equal(first, second)


def test_an_expanded_gradient_reaches_the_layer():
    pyg, fused = layers()
    x = RANDOM.x(FEATURES)
    found = []
    for layer in (pyg, fused):
        leaf = x.clone().requires_grad_()
        layer(leaf, RANDOM.edge_index)[:, ::3].mean(0, keepdim=True).expand(5, -1).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0])
