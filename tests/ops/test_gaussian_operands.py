"""The operands of Gaussians, dimension by dimension, and their adjoint."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops.gaussian_operands import coordinates, factors_of, gaussians
from pygfuse.program.program import EDGE

EPSILON = 1e-15


@pytest.mark.parametrize(('kernels', 'dimensions'), [(3, 2), (1, 1), (4, 1), (1, 3)])
def test_operands_and_their_adjoint(kernels, dimensions):
    generator = torch.Generator().manual_seed(1)
    features, mu, sigma = (
        (0.5 + torch.rand(rows, dimensions, dtype=torch.float64, generator=generator)).requires_grad_()
        for rows in (5, kernels, kernels)
    )
    rows, given, operands = {EDGE: features}, (mu, sigma), {}
    for derived in (coordinates(dimensions), gaussians(dimensions)):
        operands |= dict(zip(derived.reads, derived.compute(rows, given), strict=True))
    shapes = {'pseudo': (5, 1), 'mu': (1, kernels), 'factor': (1, kernels)}
    expected = {'pseudo': features, 'mu': mu, 'factor': -0.5 / (EPSILON + sigma.square())}
    for name, operand in operands.items():
        kind, _, d = name.partition('_')
        assert operand.is_contiguous()
        assert operand.shape == shapes[kind]
        torch.testing.assert_close(operand.flatten(), expected[kind][:, int(d)])
    grads = {name: torch.randn_like(operand) for name, operand in operands.items()}
    found = {}
    with torch.no_grad():
        for derived in (coordinates(dimensions), gaussians(dimensions)):
            found |= derived.adjoint(grads, operands, rows, given)
    wanted = torch.autograd.grad([*operands.values()], (features, mu, sigma), [*grads.values()])
    for part, gradient in zip((EDGE, 0, 1), wanted, strict=True):
        torch.testing.assert_close(found[part], gradient)


def test_gradients_of_what_needs_one():
    given, rows = (torch.ones(3, 2), torch.ones(3, 2)), {EDGE: torch.ones(5, 2)}
    assert coordinates(2).needed({EDGE: False}, (True, False)) == [False, False]
    assert gaussians(2).needed({EDGE: False}, (True, False)) == [True, True, False, False]
    assert coordinates(2).adjoint({}, {}, rows, given) == {}
    assert gaussians(2).adjoint({'mu_0': torch.ones(1, 3), 'mu_1': torch.ones(1, 3)}, {}, rows, given).keys() == {0}


def test_factors_can_be_differentiated_twice():
    sigma = torch.tensor([0.5, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(factors_of(sigma), -0.5 / (EPSILON + sigma.square()))
    assert torch.autograd.gradcheck(factors_of, sigma)
    assert torch.autograd.gradgradcheck(factors_of, sigma)
