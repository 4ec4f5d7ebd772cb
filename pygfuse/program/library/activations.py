"""Activations of a value on an edge, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.program.vocabulary import expm1, leaky_relu, normal_cdf, positive, relu, sigmoid, softplus, tanh


def _elu(z: Any, alpha: Any, scale: Any, slope: Any) -> Any:
    # min(z, 0) keeps the exponential from overflowing where it is not used
    return scale * positive(z, z, alpha * expm1(positive(z, 0.0, z)))


def _gelu_tanh(z: Any, first: Any, second: Any, slope: Any) -> Any:
    # 0.5 (1 + tanh(u)) is sigmoid(2 u), which keeps its digits where the tangent is near -1
    return z * sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))


# each of z, the activation's numbers (see `pygfuse.program.activation`) and a slope for each channel
ACTIVATIONS: dict[str, Callable] = {
    'none': lambda z, first, second, slope: z,
    'relu': lambda z, first, second, slope: relu(z),
    'leaky_relu': lambda z, first, second, slope: leaky_relu(z, first),
    # a positive z, infinite perhaps, has nothing to do with the slope
    'prelu': lambda z, first, second, slope: positive(z, z, positive(z, 0.0, z) * slope),
    'elu': _elu,
    'silu': lambda z, first, second, slope: z * sigmoid(z),
    'gelu': lambda z, first, second, slope: z * normal_cdf(z),
    'gelu_tanh': _gelu_tanh,
    'tanh': lambda z, first, second, slope: tanh(z),
    'sigmoid': lambda z, first, second, slope: sigmoid(z),
    'softplus': lambda z, first, second, slope: positive(z * first - second, z, softplus(z * first) / first),
}
