"""EdgeConv (Wang et al., 2019), its first linear map reorganised into a part of each end.

`x` and `x_dst` are the two parts; what follows on the edge is an activation, here by name. ``EDGE_SQUARES`` are the
squares of the distance to `shift`, for the variance of batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.program.library.activations import ACTIVATIONS
from pygfuse.program.program import EdgeProgram, operands

_OPERANDS = operands(source='x', target='x_dst', parameter_scalar='first second', parameter='slope shift')


def _values(activation: Callable) -> Callable:
    return lambda x, x_dst, first, second, slope: activation(x + x_dst, first, second, slope)


def _squares(activation: Callable) -> Callable:
    def message(x, x_dst, first, second, slope, shift):
        distance = activation(x + x_dst, first, second, slope) - shift
        return distance * distance

    return message


EDGE_VALUES = {name: EdgeProgram(f'edge_conv_{name}', _OPERANDS, _values(act)) for name, act in ACTIVATIONS.items()}
EDGE_SQUARES = {
    name: EdgeProgram(f'edge_conv_{name}_squares', _OPERANDS, _squares(act)) for name, act in ACTIVATIONS.items()
}
