"""Layers under autocast, beside PyG's under autocast: types, and errors against float64."""

import contextlib

import pytest
import torch

from pygfuse.ops.within_torch import autocast
from tests.support.cases import LAYERS, Layer
from tests.support.parity import GRAPHS

RANDOM = GRAPHS['random']()
NARROW = torch.bfloat16
FUSED = [layer for layer in LAYERS if layer.pair()[1].spec.autocast]


def results(conv, inputs, dtype=None):
    """Output and gradients of a layer; under CPU autocast of a type if one is given."""
    leaves = {
        name: value.detach().clone().requires_grad_() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    with contextlib.nullcontext() if dtype is None else torch.autocast('cpu', dtype):
        out = conv(**leaves)
    generator = torch.Generator().manual_seed(0)
    out.backward(torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype))
    found = {'output': out.detach()}
    found |= {f'gradient of {n}': v.grad for n, v in leaves.items() if torch.is_tensor(v) and v.requires_grad}
    return found | {f'gradient of {name}': parameter.grad for name, parameter in conv.named_parameters()}


@pytest.mark.parametrize('first', [torch.float32, NARROW], ids=str)
@pytest.mark.parametrize('layer', FUSED, ids=str)
def test_types_are_pygs_and_errors_no_larger(layer: Layer, first):
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    inputs['x'] = inputs['x'].to(first)  # as it comes from another layer
    pyg, fused = layer.pair()
    plain, found = results(pyg, inputs, NARROW), results(fused, inputs, NARROW)
    assert fused.note.reason is None
    wide = {n: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for n, v in inputs.items()}
    exact = results(layer.pair()[0].double(), wide)
    for name, expected in exact.items():
        if expected is None:
            continue
        assert found[name].dtype == plain[name].dtype, name
        errors = [float((one[name].double() - expected).norm()) for one in (found, plain)]
        # as long as a single rounding of the largest entries, which either side may have where the other has none
        assert errors[0] <= 2 * errors[1] + 1e-3 * float(expected.norm()), (name, *errors)


@pytest.mark.parametrize('layer', [layer for layer in FUSED if layer.fused().spec.attention], ids=str)
def test_types_of_returned_weights_are_pygs(layer: Layer):
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index, 'return_attention_weights': True}
    with torch.autocast('cpu', NARROW):
        expected, found = (conv(**inputs)[1][1] for conv in layer.pair())
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize('layer', FUSED, ids=str)
def test_layers_in_float64_stay_in_float64(layer: Layer):
    inputs = {**layer.inputs(RANDOM, dtype=torch.float64), 'edge_index': RANDOM.edge_index}
    pyg, fused = layer.pair(torch.float64)
    for one, other in zip(results(fused, inputs, NARROW).values(), results(pyg, inputs).values(), strict=True):
        torch.testing.assert_close(one, other)


def test_float64_stays():
    x = {'x': torch.ones(2, 3, dtype=torch.float64)}
    assert autocast.operands(x, 'sum')['x'] is x['x']


def test_off():
    with torch.autocast('cpu', NARROW):
        with autocast.off(torch.device('cpu')):
            assert not autocast.is_on(torch.device('cpu'))
        assert autocast.is_on(torch.device('cpu'))
