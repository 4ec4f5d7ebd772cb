"""Means and factors of Gaussians, dimension by dimension, as one node of autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.functions import untransformed


def gaussian_parameters(mu: Tensor, sigma: Tensor, epsilon: float) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The means and the factors, -1/2 over the variance, of Gaussians; for where nothing traces or transforms.

    Args:
        mu: The means, ``[kernels, dimensions]``.
        sigma: The deviations, the same shape.
        epsilon: What is added to variances.

    Returns:
        Of each dimension the means, and of each dimension the factors, ``[1, kernels]`` each.

    Example:
        >>> mu, sigma = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 1.0]])
        >>> gaussian_parameters(mu, sigma, 0.0)
        ((tensor([[1.]]), tensor([[2.]])), (tensor([[-2.]]), tensor([[-0.5000]])))
    """
    found = _apply(mu, sigma, epsilon)
    return found[: mu.shape[1]], found[mu.shape[1] :]


class _Parameters(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mu, sigma, epsilon):
        ctx.save_for_backward(sigma)
        ctx.epsilon = epsilon
        # walks read contiguous rows; a copy of one column may be no copy
        means, factors = mu.t().clone(memory_format=torch.contiguous_format), sigma.t().square().contiguous()
        factors.add_(epsilon).reciprocal_().mul_(-0.5)
        return *means.unsqueeze(1).unbind(), *factors.unsqueeze(1).unbind()

    @staticmethod
    def backward(ctx, *grads):
        (sigma,), num_dims = ctx.saved_tensors, len(grads) // 2
        of_mu, of_factors = torch.cat(grads[:num_dims]).t(), torch.cat(grads[num_dims:]).t()
        return of_mu, of_factors * (sigma / (sigma.square() + ctx.epsilon).square()), None


_apply = untransformed(_Parameters)
