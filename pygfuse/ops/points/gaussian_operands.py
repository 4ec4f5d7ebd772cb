"""The operands of Gaussians of edges (`pygfuse.program.library.gaussian.gaussian`): coordinates, means and factors,
dimension by dimension."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import gaussians_of
from pygfuse.ops.nodes.derived import Derived, Source
from pygfuse.program.program import EDGE

# added to variances, as PyG does
_EPSILON = 1e-15
# of what is given
_MU, _SIGMA = 0, 1
Found = Mapping[str, Tensor]


def factors_of(sigma: Tensor) -> Tensor:
    """-1/2 over the variances of Gaussians, as PyG's layer has them.

    Args:
        sigma: The deviations, of any shape, which is that of the result.

    Example:
        >>> factors_of(torch.tensor([0.5, 1.0]))
        tensor([-2.0000, -0.5000])
    """
    return torch.addcmul(sigma.new_full((), -2.0 * _EPSILON), sigma, sigma, value=-2.0).reciprocal_()


@functools.cache
def gaussians(dimensions: int) -> Derived:
    """The coordinates of edges, ``[edges, 1]`` each, and the means and factors of Gaussians, ``[1, Gaussians]`` each.

    They are functions of features, ``[edges, dimensions]``, means and deviations, ``[Gaussians, dimensions]``.

    Args:
        dimensions: Of the features.

    Example:
        >>> mu, sigma = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.5], [1.0]])
        >>> gaussians(1).compute({'edge': torch.tensor([[3.0]])}, (mu, sigma))
        (tensor([[3.]]), tensor([[1., 2.]]), tensor([[-2.0000, -0.5000]]))
    """
    coordinates, means, factors = ([f'{name}_{d}' for d in range(dimensions)] for name in ('pseudo', 'mu', 'factor'))

    def compute(rows: Found, given: Sequence[Tensor]) -> Sequence[Tensor]:
        features, mu, sigma = rows[EDGE], given[_MU], given[_SIGMA]
        if not torch.is_grad_enabled():
            given = features.contiguous(), mu.contiguous(), sigma.contiguous()
            return gaussians_of(features.device).operands(*given, _EPSILON)
        both = torch.stack((mu, factors_of(sigma))).mT.contiguous()
        return *features.t().contiguous().unsqueeze(2).unbind(), *both.view(2 * dimensions, 1, -1).unbind()

    def adjoint(found: Found, operands: Found, rows: Found, given: Sequence[Tensor]) -> dict[Source, Tensor]:
        gradients: dict[Source, Tensor] = {}
        if coordinates[0] in found:
            gradients[EDGE] = torch.cat([found[name] for name in coordinates], dim=1)
        needs_mu, needs_sigma = means[0] in found, factors[0] in found
        if needs_mu or needs_sigma:
            names = *(means if needs_mu else ()), *(factors if needs_sigma else ())
            sigma, grads = given[_SIGMA], torch.cat([found[name] for name in names])
            adjoint = gaussians_of(sigma.device).operands_adjoint
            of_mu, of_sigma = adjoint(grads, sigma.contiguous(), _EPSILON, needs_mu, needs_sigma)
            gradients |= {_MU: of_mu} if needs_mu else {}
            gradients |= {_SIGMA: of_sigma} if needs_sigma else {}
        return gradients

    reads = dict.fromkeys(coordinates, (EDGE,)) | dict.fromkeys(means, (_MU,)) | dict.fromkeys(factors, (_SIGMA,))
    return Derived(reads, compute, adjoint)
