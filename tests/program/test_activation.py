from __future__ import annotations

import pytest
import torch

from pygfuse.program.activation import Activation

ACTIVATIONS = [
    Activation('relu'),
    Activation('leaky_relu', (0.2,)),
    Activation('leaky_relu', (-0.2,)),
    Activation('elu', (0.7, 1.3)),
    Activation('silu'),
    Activation('gelu'),
    Activation('gelu_tanh'),
    Activation('tanh'),
    Activation('sigmoid'),
    Activation('softplus', (2.0, 20.0)),
]
every = pytest.mark.parametrize('activation', ACTIVATIONS, ids=str)


@every
def test_buffers_hold_what_autograd_gives(activation):
    x = torch.randn(50, 4, dtype=torch.float64).mul_(5).requires_grad_()
    expected, grad = activation(x), torch.randn(50, 4, dtype=torch.float64)
    (of_x,) = torch.autograd.grad(expected, x, grad)
    y = torch.empty_like(expected)
    activation.into(x.detach(), y)
    assert torch.equal(y, expected)
    for out in (torch.empty_like(grad), grad):  # the gradient may take the place of that of the result
        activation.adjoint(grad, x.detach(), y, out)
        torch.testing.assert_close(out, of_x)


@every
def test_what_is_said_of_it_holds(activation):
    x = torch.linspace(-9, 9, 2001, dtype=torch.float64)
    assert activation.rises == bool((activation(x).diff() >= 0).all())
    assert activation.keeps_zero == (activation(torch.zeros(1)).item() == 0)


def test_numbers_have_names():
    assert [Activation('relu').named_numbers, Activation('leaky_relu', (0.2,)).named_numbers] == [{}, {'first': 0.2}]
    assert Activation('softplus', (2.0, 20.0)).named_numbers == {'first': 2.0, 'second': 20.0}
