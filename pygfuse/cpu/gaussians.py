"""The operands of Gaussians of few edges, and their adjoint, by a launch each: by operators of torch, of which each is
a few numbers' work, they take longer than the walk."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch


def _operands(part, features, mu, sigma, edges, dimensions, kernels, least, coordinates, gaussians):
    factors = dimensions * kernels
    for d in range(dimensions):
        for e in range(edges):
            coordinates[d * edges + e] = features[e * dimensions + d]
        for k in range(kernels):
            deviation = sigma[k * dimensions + d]
            gaussians[d * kernels + k] = mu[k * dimensions + d]
            gaussians[factors + d * kernels + k] = -0.5 / (deviation * deviation + least)


def _adjoint(part, grads, sigma, dimensions, kernels, least, of_mu, of_sigma):
    factors = 0 if of_mu is None else dimensions * kernels
    for k in range(kernels):
        for d in range(dimensions):
            if of_mu is not None:
                of_mu[k * dimensions + d] = grads[d * kernels + k]
            if of_sigma is not None:
                deviation = sigma[k * dimensions + d]
                variance = deviation * deviation + least
                found = grads[factors + d * kernels + k]
                of_sigma[k * dimensions + d] = found * deviation / (variance * variance)


_OPERANDS, _ADJOINT = Kernel(_operands, 'operands of Gaussians'), Kernel(_adjoint, 'operands of Gaussians backward')


@functools.cache
def _launch_of_operands(dtype: torch.dtype) -> Launch:
    like = torch.empty(0, dtype=dtype, device='cpu')
    return _OPERANDS.untested((like, like, like, 0, 0, 0, 0.0, like, like))


@functools.cache
def _launch_of_adjoint(dtype: torch.dtype, needs_mu: bool, needs_sigma: bool) -> Launch:
    like = torch.empty(0, dtype=dtype, device='cpu')
    return _ADJOINT.untested((like, like, 0, 0, 0.0, like if needs_mu else None, like if needs_sigma else None))


def operands(features: Tensor, mu: Tensor, sigma: Tensor, least: float) -> tuple[Tensor, ...]:
    """Coordinates of edges, ``[edges, 1]`` each, then means, then factors of Gaussians, ``[1, Gaussians]`` each.

    Args:
        features: ``[edges, dimensions]``, contiguous.
        mu, sigma: Means and deviations, ``[Gaussians, dimensions]``, contiguous.
        least: What is added to variances.
    """
    (edges, dimensions), kernels = features.shape, len(mu)
    coordinates, gaussians = features.new_empty(dimensions, edges, 1), mu.new_empty(2 * dimensions, 1, kernels)
    launch = _launch_of_operands(features.dtype)
    launch.run(launch.pack(1, features, mu, sigma, edges, dimensions, kernels, least, coordinates, gaussians), 1)
    return *coordinates.unbind(), *gaussians.unbind()


def operands_adjoint(
    grads: Tensor, sigma: Tensor, least: float, needs_mu: bool, needs_sigma: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of means and deviations, ``[Gaussians, dimensions]``; None for one that is not needed.

    Args:
        grads: The gradients of the means and those of the factors, as far as they are needed, dimension by dimension,
            ``[.., Gaussians]``, contiguous.
        sigma, least: As of `operands`.
        needs_mu, needs_sigma: Which are needed.
    """
    kernels, dimensions = sigma.shape
    of_mu, of_sigma = (torch.empty_like(sigma) if is_needed else None for is_needed in (needs_mu, needs_sigma))
    launch = _launch_of_adjoint(sigma.dtype, needs_mu, needs_sigma)
    launch.run(launch.pack(1, grads, sigma, dimensions, kernels, least, of_mu, of_sigma), 1)
    return of_mu, of_sigma
