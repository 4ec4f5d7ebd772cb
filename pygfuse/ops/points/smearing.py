"""Gaussians of distances, which can be differentiated any number of times and keep nothing but what is given.

The n-th derivative of ``exp(c u^2)`` along u is that times a polynomial of degree n. The gradient of distances is a sum
over the centres of the next derivative, and the gradients of such a sum are the same two functions again.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import smearing_of
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.lazy_values import given_values


class Gaussians(NamedTuple):
    """``exp(coefficient * (distance - offset) ** 2)`` for each of some centres, or one of its derivatives.

    Attributes:
        offset: The centres.
        coefficient: A negative number.
        order: Which derivative: 0 is the function.
    """

    offset: Tensor
    coefficient: float
    order: int = 0

    @property
    def factors(self) -> tuple[float, ...]:
        """The coefficient, and the polynomial's factors from the lowest."""
        return (self.coefficient, *_polynomial(self.coefficient, self.order))

    def derivative(self) -> Gaussians:
        """The next derivative along the distance."""
        return self._replace(order=self.order + 1)

    def of(self, distance: Tensor) -> Tensor:
        """The values by PyTorch's operators, ``[distances, centres]``."""
        u = distance.unsqueeze(1) - self.offset
        rate, *factors = self.factors
        polynomial = functools.reduce(lambda value, factor: value * u + factor, reversed(factors))
        return polynomial * torch.exp(rate * u.square())


@functools.lru_cache(maxsize=64)
def _polynomial(rate: float, order: int) -> tuple[float, ...]:
    """What stands before ``exp(rate * u ** 2)`` in its derivative.

    Example:
        >>> _polynomial(-0.5, 2)
        (-1.0, 0.0, 1.0)
    """
    if order == 0:
        return (1.0,)
    before = _polynomial(rate, order - 1)
    moved = [0.0, *(2.0 * rate * factor for factor in before)]
    differentiated = [i * factor for i, factor in enumerate(before)][1:]
    return tuple(a + b for a, b in zip(moved, [*differentiated, 0.0, 0.0], strict=False))


def smeared(distance: Tensor, gaussians: Gaussians) -> Tensor:
    """Gaussians of distances.

    Args:
        distance: ``[edges]``, on a device of which `pygfuse._lib.backends.smearing_of` knows a module.
        gaussians: Which.

    Returns:
        ``[edges, centres]``.

    Example:
        >>> smeared(torch.tensor([0.0, 1.0]), Gaussians(torch.tensor([0.0, 1.0]), -1.0))
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """
    return _Smeared.apply(distance, None, gaussians)


class _Smeared(torch.autograd.Function):
    """A derivative of Gaussians, each row times a number of its distance's if there is one."""

    @staticmethod
    def forward(ctx, distance, scale, gaussians):
        ctx.gaussians = gaussians
        ctx.save_for_backward(distance, scale)
        scale = None if scale is None else scale.contiguous()
        kernels = smearing_of(distance.device)
        return kernels.smeared(distance.contiguous(), *_arrays(gaussians, distance), scale)

    @staticmethod
    @given_values
    def backward(ctx, grad):
        distance, scale = ctx.saved_tensors
        of_distance = of_scale = None
        if ctx.needs_input_grad[0]:
            of_distance = _sum_of(distance, grad, ctx.gaussians.derivative())
            of_distance = of_distance if scale is None else of_distance * scale
        if ctx.needs_input_grad[1]:
            of_scale = _sum_of(distance, grad, ctx.gaussians)
        return of_distance, of_scale, None


class _Sum(torch.autograd.Function):
    """The sum over the centres of a derivative of Gaussians times weights."""

    @staticmethod
    def forward(ctx, distance, weights, gaussians):
        ctx.gaussians = gaussians
        ctx.save_for_backward(distance, weights)
        kernels = smearing_of(distance.device)
        return kernels.sum_of_smeared(distance.contiguous(), *_arrays(gaussians, distance), weights.contiguous())

    @staticmethod
    @given_values
    def backward(ctx, grad):
        distance, weights = ctx.saved_tensors
        of_distance = of_weights = None
        if ctx.needs_input_grad[0]:
            of_distance = grad * _sum_of(distance, weights, ctx.gaussians.derivative())
        if ctx.needs_input_grad[1]:
            of_weights = _scaled(distance, grad, ctx.gaussians)
        return of_distance, of_weights, None


def _arrays(gaussians: Gaussians, like: Tensor) -> tuple[Tensor, Tensor]:
    return gaussians.offset.contiguous(), torch.tensor(gaussians.factors, dtype=like.dtype)


def _sum_of(distance: Tensor, weights: Tensor, gaussians: Gaussians) -> Tensor:
    if is_batched(distance) or is_batched(weights):
        return (gaussians.of(distance) * weights).sum(dim=1)
    return _Sum.apply(distance, weights, gaussians)


def _scaled(distance: Tensor, scale: Tensor, gaussians: Gaussians) -> Tensor:
    if is_batched(distance) or is_batched(scale):
        return gaussians.of(distance) * scale.unsqueeze(1)
    return _Smeared.apply(distance, scale, gaussians)
