"""MoNet (Monti et al., 2017): weights are Gaussians of pseudo-coordinates, a head for each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import exp


@functools.cache
def gaussian(dimensions: int) -> EdgeProgram:
    """The program for pseudo-coordinates of so many dimensions.

    Operands are the coordinates ``pseudo_d`` of edges, and for each head (Gaussian) the means ``mu_d`` and the
    factors ``factor_d``, which are -1/2 over the variance.
    """
    names = [f'{name}_{d}' for d in range(dimensions) for name in ('pseudo', 'mu', 'factor')]

    def score(**values: Any) -> Any:
        return exp(_exponent(values, dimensions))

    of_edge, of_head = Operand('edge', 'scalar'), Operand('parameter', 'heads')
    operands = {name: of_edge if name.startswith('pseudo') else of_head for name in names}
    return EdgeProgram(
        f'gaussian_{dimensions}',
        operands={'x': Operand('source', 'channels'), **operands},
        score=_with_parameters(score, names),
        message=lambda weight, x: weight * x,
    )


@functools.cache
def separate_gaussians(kernels: int, dimensions: int) -> EdgeProgram:
    """The program with Gaussians of their own for each pair of an input (a head) and an output (a channel).

    Operands are the inputs ``x`` of sources, a value a head; the coordinates ``pseudo_d`` of edges, spread over
    channels; and for each kernel k the means ``mu_k_d``, the factors ``factor_k_d`` and the coefficients ``g_k``.
    """
    pseudo = [f'pseudo_{d}' for d in range(dimensions)]
    of_kernels = [
        [f'g_{k}', *(f'{name}_{k}_{d}' for d in range(dimensions) for name in ('mu', 'factor'))] for k in range(kernels)
    ]
    names = [*pseudo, *(name for kernel in of_kernels for name in kernel)]

    def message(weight: Any, **values: Any) -> Any:
        total = 0.0
        for k in range(kernels):
            total = total + values[f'g_{k}'] * exp(_exponent(values, dimensions, f'_{k}'))
        return weight * total

    operands = {name: Operand('edge' if name in pseudo else 'parameter', 'channels') for name in names}
    return EdgeProgram(
        f'separate_gaussians_{kernels}_{dimensions}',
        operands={'x': Operand('source', 'heads'), **operands},
        score=lambda x: x,
        message=_with_parameters(message, ['weight', *names]),
    )


def _exponent(values: Mapping[str, Any], dimensions: int, kernel: str = '') -> Any:
    exponent = 0.0
    for d in range(dimensions):
        difference = values[f'pseudo_{d}'] - values[f'mu{kernel}_{d}']
        exponent = exponent + values[f'factor{kernel}_{d}'] * (difference * difference)
    return exponent


def _with_parameters(function: Callable, names: Sequence[str]) -> Callable:
    """The function with a signature that names its arguments, which programs read."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    function.__signature__ = inspect.Signature(parameters)
    return function
