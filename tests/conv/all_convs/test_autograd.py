"""Gradients of every convolution, of the first and the second order."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn
from torch.autograd import gradcheck

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import RANDOM, SMALL, every, some
from tests.support.cases import FA, GATV2, GCN_WEIGHTS, LAYERS, TRANSFORMER, TRANSFORMER_EDGES, Layer

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@every
def test_gradients(layer):
    check_gradients(layer)


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_gradients_under_dropout(layer):
    check_gradients(layer, dropout=0.5)


def check_gradients(layer: Layer, **options) -> None:
    conv = layer.fused(**options).double()
    inputs = layer.inputs(SMALL, dtype=torch.float64)
    leaves = [value.requires_grad_() for value in inputs.values()]
    names = [name for name, _ in conv.named_parameters()]

    def run(*values):
        torch.manual_seed(5)  # the same edges drop in every evaluation
        given = dict(zip(inputs, values[: len(inputs)], strict=True))
        parameters = dict(zip(names, values[len(inputs) :], strict=True))
        return torch.func.functional_call(conv, parameters, (), {**given, 'edge_index': SMALL.edge_index})

    assert gradcheck(run, (*leaves, *conv.parameters()))
    assert conv.note.reason is None


@some(LAYERS, fast=[TRANSFORMER_EDGES, GCN_WEIGHTS])
def test_a_gradient_of_one_input_alone(layer):
    """Only the walks that this gradient needs run."""
    pyg, fused = layer.pair(torch.float64)
    pyg.requires_grad_(False)
    fused.requires_grad_(False)
    for wanted in layer.inputs(RANDOM):
        found = []
        for conv in (pyg, fused):
            inputs = layer.inputs(RANDOM, dtype=torch.float64)
            inputs[wanted].requires_grad_()
            conv(edge_index=RANDOM.edge_index, **inputs).square().sum().backward()
            found.append(inputs[wanted].grad)
        torch.testing.assert_close(found[1], found[0])


@every
def test_without_gradients(layer):
    conv = layer.fused().double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    expected = conv(edge_index=RANDOM.edge_index, **inputs).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = conv(edge_index=RANDOM.edge_index, **inputs)
            assert not out.requires_grad
            assert torch.equal(out, expected)
            assert torch.equal(conv(edge_index=RANDOM.edge_index.clone(), **inputs), expected)


@every
def test_training_on_edges_that_were_met_in_inference_mode(layer):
    conv, edge_index = layer.fused().double(), RANDOM.edge_index.clone()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    with torch.inference_mode():
        expected = conv(edge_index=edge_index, **inputs)
    out = conv(edge_index=edge_index, **{name: value.requires_grad_() for name, value in inputs.items()})
    assert torch.equal(out, expected.clone())
    out.sum().backward()
    assert inputs['x'].grad is not None


@pytest.mark.parametrize('is_forward_within', [True, False])
@every
def test_a_backward_pass_within_autocast(layer, is_forward_within):
    """It computes in the types of the forward pass, whatever is on where it is called; PyG's does in narrow ones."""
    conv, found = layer.fused(), []
    leaves = {name: value.requires_grad_() for name, value in layer.inputs(RANDOM).items()}
    for is_backward_within in (False, True):
        with torch.autocast('cpu', torch.bfloat16, enabled=is_forward_within):
            loss = conv(edge_index=RANDOM.edge_index, **leaves).float().square().sum()
        with torch.autocast('cpu', torch.bfloat16, enabled=is_backward_within):
            found.append(torch.autograd.grad(loss, [*leaves.values(), *conv.parameters()], allow_unused=True))
    largest = max(float(one.abs().max()) for one in found[0] if one is not None)
    for got, expected in zip(found[1], found[0], strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            assert got.dtype is expected.dtype
            # maps before and behind the walk are torch's
            torch.testing.assert_close(got, expected, rtol=0.05, atol=0.02 * largest)


@pytest.mark.slow
@every
def test_a_double_backward(layer):
    pyg, fused = layer.pair(torch.float64)
    found = []
    for conv in (pyg, fused):
        inputs = {name: value.requires_grad_() for name, value in layer.inputs(SMALL, dtype=torch.float64).items()}
        out = conv(edge_index=SMALL.edge_index, **inputs)
        (first,) = torch.autograd.grad(out.square().sum(), inputs['x'], create_graph=True)
        found.append(
            torch.autograd.grad(first.square().sum(), [*inputs.values(), *conv.parameters()], allow_unused=True)
        )
    for got, expected in zip(found[1], found[0], strict=True):
        if expected is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, expected)


@every
def test_a_batch_of_gradients(layer):
    found = []
    for conv in layer.pair(torch.float64):
        inputs = {name: value.requires_grad_() for name, value in layer.inputs(SMALL, dtype=torch.float64).items()}
        out = conv(edge_index=SMALL.edge_index, **inputs)
        grads = torch.randn(3, *out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        given = [*inputs.values(), *conv.parameters()]
        found.append(torch.autograd.grad(out, given, grads, is_grads_batched=True))
    assert conv.note.reason is None
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_the_sum_of_a_layer_without_bias_may_be_written_to():
    found = []
    for module in (torch_geometric.nn, pygfuse.conv):
        torch.manual_seed(0)
        conv = module.GCNConv(8, 8, bias=False).double()
        x = torch.randn(60, 8, dtype=torch.float64, requires_grad=True)
        conv(x, RANDOM.edge_index).relu_().square().sum().backward()
        found.append((x.grad, conv.lin.weight.grad))
    torch.testing.assert_close(found[1], found[0])
