from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch.utils.checkpoint import checkpoint

from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.conv import GATConv, GCNConv, SAGEConv
from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes import linear
from pygfuse.ops.nodes.linear import apply_linear, apply_weight, linear_of_rows, weight_gradient
from pygfuse.partial.paths.policy import execution_paths

ROWS = torch.tensor([1, 4, 5, 70])


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('count', [0, 3, 500])
def test_a_linear_map_of_rows_and_its_gradients(count, with_bias, monkeypatch):
    monkeypatch.setattr(linear, 'BLOCK_BYTES', 1)  # blocks of 64 rows
    rows = torch.randperm(700)[:count].sort().values
    given = [torch.randn(700, 5, dtype=torch.double), torch.randn(4, 5, dtype=torch.double)]
    given += [torch.randn(4, dtype=torch.double)] if with_bias else []
    found = [tensor.clone().requires_grad_() for tensor in given]
    expected = [tensor.clone().requires_grad_() for tensor in given]
    out, reference = linear_of_rows(found[0], rows, *found[1:]), F.linear(expected[0][rows], *expected[1:])
    torch.testing.assert_close(out, reference)
    out.square().sum().backward()
    reference.square().sum().backward()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_it_can_be_differentiated_twice():
    x, weight, rows = torch.randn(9, 3).double(), torch.randn(2, 3).double(), torch.tensor([1, 4, 5])
    x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, weight: linear_of_rows(x, rows, weight).tanh(), (x, weight))


@pytest.fixture(params=['by torch', 'by lists'])
def every_map(monkeypatch, request):
    monkeypatch.setattr(linear, 'LEAST_BYTES', 0)
    monkeypatch.setattr(linear, 'SHARE_PER_BYTE', 1.0)
    monkeypatch.setattr(product_list, 'is_faster', lambda *_: request.param == 'by lists')


@pytest.mark.parametrize('active', [0, 1, 30, 69, 100])
@pytest.mark.parametrize('kind', [torch.nn.Linear, torch_geometric.nn.Linear])
def test_rows_without_a_gradient_are_left_out(every_map, active, kind, monkeypatch):
    module, x, mask = kind(5, 3).double(), torch.randn(100, 5).double(), torch.randperm(100) < active
    seen = []
    monkeypatch.setattr(linear, 'weight_gradient', lambda *given: seen.append(given[1]) or weight_gradient(*given))
    found = []
    for function in (module, lambda x: apply_linear(module, x)):
        module.zero_grad()
        given = x.clone().requires_grad_()
        function(given)[mask].square().sum().backward()
        found.append([given.grad, *(parameter.grad for parameter in module.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    assert [rows.tolist() for rows in seen] == ([mask.nonzero().flatten().tolist()] if active <= 50 else [])


@pytest.mark.parametrize('map_of_rows', [apply_linear, lambda module, x: linear_of_rows(x, ROWS, *module.parameters())])
def test_a_batch_of_gradients(every_map, map_of_rows):
    module, x = torch.nn.Linear(5, 3).double(), torch.randn(100, 5).double().requires_grad_()
    given, grads = (x, *module.parameters()), torch.randn(2, len(ROWS), 3).double()
    out = map_of_rows(module, x)
    out = out if len(out) == len(ROWS) else out[ROWS]
    found = torch.autograd.grad(out, given, grads, is_grads_batched=True)
    expected = torch.autograd.grad(module(x)[ROWS], given, grads, is_grads_batched=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_hooks_and_twice_differentiated_maps(every_map):
    module, x = torch.nn.Linear(3, 2).double(), torch.randn(9, 3).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: apply_linear(module, x)[:2].tanh(), (x,))
    seen = []
    module.register_forward_hook(lambda *_: seen.append(1))
    apply_linear(module, x)
    assert seen == [1]
    module.forward = lambda x: x
    assert apply_linear(module, x) is x


@pytest.mark.parametrize('kind', [GCNConv, GATConv, SAGEConv])
def test_layers_leave_them_out(every_map, kind, monkeypatch):
    edge_index, x = torch.randint(40, (2, 60)), torch.randn(40, 8)
    conv, seen = kind(8, 8), []
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    monkeypatch.setattr(linear, 'weight_gradient', lambda *given: seen.append(given[1]) or weight_gradient(*given))
    found = []
    for on in (False, None):
        conv.zero_grad()
        with contextlib.nullcontext() if on is None else execution_paths(on):
            conv(x, edge_index)[:3].square().sum().backward()
        found.append([parameter.grad for parameter in conv.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert len(seen) == (2 if kind is SAGEConv else 1)


class Own(torch.Tensor):
    """A class of tensors that sees every call, but for those of a backward pass."""


def test_a_checkpoint_of_a_class_of_its_own():
    x = torch.randn(2 * ROWS_AT_ONCE, 3, dtype=torch.float64)
    found = []
    for kind in (torch.Tensor, Own):
        weight = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        given = x.clone().as_subclass(kind).requires_grad_()
        checkpoint(apply_weight, given, weight, use_reentrant=False).square().sum().backward()
        found.append((torch.Tensor(given.grad), weight.grad))
    torch.testing.assert_close(*found)
