"""The derivative of each word, as the adjoint takes it: ``rule(grad, out, *arguments)`` gives one for each argument.

None stands for an argument that has none.
"""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.program.recording import Value, record

# of a normal distribution, where it is greatest
_NORMAL_DENSITY = 0.3989422804014327


def _reverse_add(grad, out, x, y):
    return grad, grad


def _reverse_sub(grad, out, x, y):
    return grad, -grad if isinstance(y, Value) else None


def _reverse_mul(grad, out, x, y):
    return grad * y, grad * x


def _reverse_div(grad, out, x, y):
    scaled = grad / y
    return scaled, -(scaled * out) if isinstance(y, Value) else None


def _reverse_neg(grad, out, x):
    return (-grad,)


def _reverse_exp(grad, out, x):
    return (grad * out,)


def _reverse_expm1(grad, out, x):
    return (grad * record('exp', (x,)),)


def _reverse_log(grad, out, x):
    return (grad / x,)


def _reverse_sqrt(grad, out, x):
    return (grad * 0.5 / out,)


def _reverse_sigmoid(grad, out, x):
    return (grad * record('sigmoid_slope', (x,)),)


def _reverse_sigmoid_slope(grad, out, x):
    return (-(grad * (record('tanh', (x * 0.5,)) * out)),)


def _reverse_normal_cdf(grad, out, x):
    return (grad * (record('exp', (x * x * -0.5,)) * _NORMAL_DENSITY),)


def _reverse_tanh(grad, out, x):
    return (grad * record('sech_squared', (x,)),)


def _reverse_sech_squared(grad, out, x):
    return (grad * (-2.0 * record('tanh', (x,)) * out),)


def _reverse_softplus(grad, out, x):
    return (grad * record('sigmoid', (x,)),)


def _reverse_relu(grad, out, x):
    return (record('positive', (x, grad, 0.0)),)


def _reverse_positive(grad, out, x, then, otherwise):
    return None, record('positive', (x, grad, 0.0)), record('positive', (x, 0.0, grad))


def _reverse_equal(grad, out, x, y, then, otherwise):
    return None, None, record('equal', (x, y, grad, 0.0)), record('equal', (x, y, 0.0, grad))


def _reverse_maximum(grad, out, x, y):
    difference = record('sub', (x, y))
    return record('positive', (difference, grad, 0.0)), record('positive', (difference, 0.0, grad))


def _reverse_leaky_relu(grad, out, x, negative_slope):
    return record('positive', (x, grad, grad * negative_slope)), None


def _reverse_dropout_factor(grad, out, mark, key, probability):
    return None, None, None


def _reverse_sum_channels(grad, out, x):
    return (grad,)


REVERSE: dict[str, Callable] = {
    name.removeprefix('_reverse_'): rule for name, rule in list(globals().items()) if name.startswith('_reverse_')
}
