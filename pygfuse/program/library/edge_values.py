"""EdgeConv (Wang et al., 2019), its first linear map reorganised into a part of each end.

`x` and `x_dst` are the two parts; what follows on the edge is an activation, here by name. ``EDGE_SQUARES`` are the
squares of the distance to `shift`, for the variance of batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import expm1, leaky_relu, positive, relu, sigmoid, softplus, tanh

_OPERANDS = operands(source='x', target='x_dst', parameter_scalar='first second', parameter='slope shift')


def _elu(z: Any, alpha: Any, scale: Any, slope: Any) -> Any:
    # min(z, 0) keeps the exponential from overflowing where it is not used
    return scale * positive(z, z, alpha * expm1(positive(z, 0.0, z)))


def _gelu_tanh(z: Any, first: Any, second: Any, slope: Any) -> Any:
    # 0.5 (1 + tanh(u)) is sigmoid(2 u), which keeps its digits where the tangent is near -1
    return z * sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))


# each of z, the activation's numbers (see `pygfuse.program.activation`) and a slope for each channel
_ACTIVATIONS: dict[str, Callable] = {
    'none': lambda z, first, second, slope: z,
    'relu': lambda z, first, second, slope: relu(z),
    'leaky_relu': lambda z, first, second, slope: leaky_relu(z, first),
    # a positive z, infinite perhaps, has nothing to do with the slope
    'prelu': lambda z, first, second, slope: positive(z, z, positive(z, 0.0, z) * slope),
    'elu': _elu,
    'silu': lambda z, first, second, slope: z * sigmoid(z),
    'gelu_tanh': _gelu_tanh,
    'tanh': lambda z, first, second, slope: tanh(z),
    'sigmoid': lambda z, first, second, slope: sigmoid(z),
    'softplus': lambda z, first, second, slope: positive(z * first - second, z, softplus(z * first) / first),
}


def _values(activation: Callable) -> Callable:
    return lambda x, x_dst, first, second, slope: activation(x + x_dst, first, second, slope)


def _squares(activation: Callable) -> Callable:
    def message(x, x_dst, first, second, slope, shift):
        distance = activation(x + x_dst, first, second, slope) - shift
        return distance * distance

    return message


EDGE_VALUES = {name: EdgeProgram(f'edge_conv_{name}', _OPERANDS, _values(act)) for name, act in _ACTIVATIONS.items()}
EDGE_SQUARES = {
    name: EdgeProgram(f'edge_conv_{name}_squares', _OPERANDS, _squares(act)) for name, act in _ACTIVATIONS.items()
}
