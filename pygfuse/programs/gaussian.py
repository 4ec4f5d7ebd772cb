"""MoNet (Monti et al., 2017): weights are Gaussians of pseudo-coordinates, a head for each."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from pygfuse.program import EdgeProgram, Operand
from pygfuse.vocabulary import exp


@functools.cache
def gaussian(dimensions: int) -> EdgeProgram:
    """The program for pseudo-coordinates of so many dimensions.

    Operands are the coordinates ``pseudo_d`` of edges, and for each head (Gaussian) the means ``mu_d`` and the
    factors ``factor_d``, which are -1/2 over the variance.
    """
    names = [f'{name}_{d}' for d in range(dimensions) for name in ('pseudo', 'mu', 'factor')]

    def score(**values: Any) -> Any:
        exponent = 0.0
        for d in range(dimensions):
            difference = values[f'pseudo_{d}'] - values[f'mu_{d}']
            exponent = exponent + values[f'factor_{d}'] * (difference * difference)
        return exp(exponent)

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    score.__signature__ = inspect.Signature(parameters)
    of_edge, of_head = Operand('edge', 'scalar'), Operand('parameter', 'heads')
    operands = {name: of_edge if name.startswith('pseudo') else of_head for name in names}
    return EdgeProgram(
        f'gaussian_{dimensions}',
        operands={'x': Operand('source', 'channels'), **operands},
        score=score,
        message=lambda weight, x: weight * x,
    )
