"""Means and factors of Gaussians as one node of autograd."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops.gaussian_parameters import gaussian_parameters

EPSILON = 1e-15


@pytest.mark.parametrize(('kernels', 'dimensions'), [(3, 2), (1, 1), (4, 1), (1, 3)])
def test_parameters_and_their_derivatives(kernels, dimensions):
    generator = torch.Generator().manual_seed(1)
    shape = kernels, dimensions
    mu = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    sigma = (0.5 + torch.rand(shape, dtype=torch.float64, generator=generator)).requires_grad_()
    means, factors = gaussian_parameters(mu, sigma, EPSILON)
    assert all(part.is_contiguous() and part.shape == (1, kernels) for part in (*means, *factors))
    torch.testing.assert_close(torch.cat(means).t(), mu)
    torch.testing.assert_close(torch.cat(factors).t(), -0.5 / (EPSILON + sigma.square()))

    def parts(mu: torch.Tensor, sigma: torch.Tensor) -> tuple[torch.Tensor, ...]:
        means, factors = gaussian_parameters(mu, sigma, EPSILON)
        return *means, *factors

    assert torch.autograd.gradcheck(parts, (mu, sigma), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(parts, (mu, sigma))


def test_means_are_no_views_of_the_parameter():
    mu, sigma = torch.ones(1, 1), torch.ones(1, 1)
    (mean,), _ = gaussian_parameters(mu, sigma, EPSILON)
    mu.add_(1.0)
    assert mean.item() == 1.0
