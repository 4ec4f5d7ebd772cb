"""The operands of Gaussians of edges (`pygfuse.program.library.gaussian.gaussian`): coordinates, means and factors,
dimension by dimension."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse.ops.mapped_walk.derived import Derived, Source
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
def coordinates(dimensions: int) -> Derived:
    """The coordinates of edges, ``[edges, 1]`` each, from their features, ``[edges, dimensions]``.

    Args:
        dimensions: Of the features.

    Example:
        >>> coordinates(2).compute({'edge': torch.tensor([[3.0, 5.0]])}, ())
        (tensor([[3.]]), tensor([[5.]]))
    """
    names = [f'pseudo_{d}' for d in range(dimensions)]

    def compute(rows: Found, given: Sequence[Tensor]) -> Sequence[Tensor]:
        return rows[EDGE].t().contiguous().unsqueeze(2).unbind()

    def adjoint(found: Found, operands: Found, rows: Found, given: Sequence[Tensor]) -> dict[Source, Tensor]:
        return {EDGE: torch.cat([found[name] for name in names], dim=1)} if names[0] in found else {}

    return Derived(dict.fromkeys(names, (EDGE,)), compute, adjoint)


@functools.cache
def gaussians(dimensions: int) -> Derived:
    """The means and factors of Gaussians, ``[1, Gaussians]`` each, from means and deviations.

    Args:
        dimensions: Of the features; means and deviations are ``[Gaussians, dimensions]``.

    Example:
        >>> mu, sigma = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.5], [1.0]])
        >>> gaussians(1).compute({}, (mu, sigma))
        (tensor([[1., 2.]]), tensor([[-2.0000, -0.5000]]))
    """
    means, factors = ([f'{name}_{d}' for d in range(dimensions)] for name in ('mu', 'factor'))

    def compute(rows: Found, given: Sequence[Tensor]) -> Sequence[Tensor]:
        both = torch.stack((given[_MU], factors_of(given[_SIGMA]))).mT.contiguous()
        return both.view(2 * dimensions, 1, -1).unbind()

    def adjoint(found: Found, operands: Found, rows: Found, given: Sequence[Tensor]) -> dict[Source, Tensor]:
        gradients: dict[Source, Tensor] = {}
        if means[0] in found:
            gradients[_MU] = torch.cat([found[name] for name in means]).t()
        if factors[0] in found:
            of_factors = torch.cat([found[name] for name in factors]).t()
            # four times the square of a factor is one over that of the variance
            gradients[_SIGMA] = (of_factors * given[_SIGMA]).mul_(factors_of(given[_SIGMA]).square_().mul_(4.0))
        return gradients

    return Derived(dict.fromkeys(means, (_MU,)) | dict.fromkeys(factors, (_SIGMA,)), compute, adjoint)
