"""The operands of Gaussians, dimension by dimension, and their adjoint."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops.points.gaussian_operands import factors_of, gaussians
from pygfuse.program.program import EDGE

EPSILON = 1e-15


@pytest.mark.parametrize(('kernels', 'dimensions'), [(3, 2), (1, 1), (4, 1), (1, 3)])
def test_operands_and_their_adjoint(kernels, dimensions):
    generator = torch.Generator().manual_seed(1)
    features, mu, sigma = (
        (0.5 + torch.rand(rows, dimensions, dtype=torch.float64, generator=generator)).requires_grad_()
        for rows in (5, kernels, kernels)
    )
    rows, given, derived = {EDGE: features}, (mu, sigma), gaussians(dimensions)
    operands = dict(zip(derived.reads, derived.compute(rows, given), strict=True))
    with torch.no_grad():
        by_kernel = derived.compute(rows, given)
    shapes = {'pseudo': (5, 1), 'mu': (1, kernels), 'factor': (1, kernels)}
    expected = {'pseudo': features, 'mu': mu, 'factor': -0.5 / (EPSILON + sigma.square())}
    for (name, operand), of_kernel in zip(operands.items(), by_kernel, strict=True):
        kind, _, d = name.partition('_')
        for found in (operand, of_kernel):
            assert found.is_contiguous()
            assert found.shape == shapes[kind]
            torch.testing.assert_close(found.flatten(), expected[kind][:, int(d)])
    grads = {name: torch.randn_like(operand) for name, operand in operands.items()}
    with torch.no_grad():
        found = derived.adjoint(grads, operands, rows, given)
    wanted = torch.autograd.grad([*operands.values()], (features, mu, sigma), [*grads.values()])
    for part, gradient in zip((EDGE, 0, 1), wanted, strict=True):
        torch.testing.assert_close(found[part], gradient)


def test_what_is_not_contiguous():
    features, mu, sigma = (torch.rand(3, rows).t() for rows in (5, 2, 2))
    rows, derived = {EDGE: features}, gaussians(3)
    with torch.no_grad():
        found = dict(zip(derived.reads, derived.compute(rows, (mu, sigma)), strict=True))
    torch.testing.assert_close(found['pseudo_1'], features[:, 1:2])
    torch.testing.assert_close(found['mu_2'], mu[:, 2].unsqueeze(0))


@pytest.mark.parametrize(('names', 'place'), [('mu', 0), ('factor', 1)])
def test_gradients_of_what_needs_one(names, place):
    given, rows, derived = (torch.ones(3, 2), torch.full((3, 2), 0.5)), {EDGE: torch.ones(5, 2)}, gaussians(2)
    assert derived.needed({EDGE: False}, (True, False)) == [False, False, True, True, False, False]
    assert derived.adjoint({}, {}, rows, given) == {}
    found = derived.adjoint({f'{names}_0': torch.ones(1, 3), f'{names}_1': torch.full((1, 3), 2.0)}, {}, rows, given)
    # the derivative of -1 / (2 * deviation ** 2) is 8 at 1 / 2
    expected = torch.tensor([1.0, 2.0]).expand(3, 2) * (8.0 if place else 1.0)
    assert found.keys() == {place}
    torch.testing.assert_close(found[place], expected)


def test_factors_can_be_differentiated_twice():
    sigma = torch.tensor([0.5, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(factors_of(sigma), -0.5 / (EPSILON + sigma.square()))
    assert torch.autograd.gradcheck(factors_of, sigma)
    assert torch.autograd.gradgradcheck(factors_of, sigma)
