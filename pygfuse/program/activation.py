"""Activations by name: as functions of tensors, into buffers, and their adjoints into buffers.

Layers that apply an activation to edges name it by an `Activation`, which travels as text through an operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

_aten = torch.ops.aten
# the numbers of an elu that is a selu
SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@dataclasses.dataclass(frozen=True)
class _Definition:
    """What is known of an activation.

    Attributes:
        function: ``function(x, *numbers)``, differentiable.
        into: ``into(x, *numbers, out)``.
        adjoint: ``adjoint(grad, x, y, *numbers, out)`` with ``y = function(x)``; `out` may be `grad`.
        rises: Whether it never falls, given its numbers.
        keeps_zero: Whether it takes 0 to 0.
    """

    function: Callable[..., Tensor]
    into: Callable[..., Tensor]
    adjoint: Callable[..., Tensor]
    rises: Callable[..., bool] = lambda *numbers: True
    keeps_zero: bool = True


def _elu(x: Tensor, alpha: float, scale: float) -> Tensor:
    return _aten.elu(x, alpha, scale)


def _shifted_softplus_into(x: Tensor, shift: float, out: Tensor) -> Tensor:
    return _aten.softplus.out(x, 1.0, 20.0, out=out).sub_(shift)


def _softplus_into(x: Tensor, beta: float, threshold: float, out: Tensor) -> Tensor:
    return _aten.softplus.out(x, beta, threshold, out=out)


_DEFINITIONS = {
    'relu': _Definition(
        F.relu,
        lambda x, out: torch.clamp_min(x, 0.0, out=out),
        lambda grad, x, y, out: _aten.threshold_backward.grad_input(grad, y, 0.0, grad_input=out),
    ),
    'leaky_relu': _Definition(
        F.leaky_relu,
        lambda x, slope, out: _aten.leaky_relu.out(x, slope, out=out),
        lambda grad, x, y, slope, out: _aten.leaky_relu_backward.grad_input(grad, x, slope, False, grad_input=out),
        lambda slope: slope >= 0.0,
    ),
    'elu': _Definition(
        _elu,
        lambda x, alpha, scale, out: _aten.elu.out(x, alpha, scale, out=out),
        lambda grad, x, y, alpha, scale, out: _aten.elu_backward.grad_input(
            grad, alpha, scale, 1.0, False, x, grad_input=out
        ),
        lambda alpha, scale: alpha >= 0.0 and scale >= 0.0,
    ),
    'silu': _Definition(
        F.silu,
        lambda x, out: _aten.silu.out(x, out=out),
        lambda grad, x, y, out: _aten.silu_backward.grad_input(grad, x, grad_input=out),
        lambda: False,
    ),
    'gelu': _Definition(
        F.gelu,
        lambda x, out: _aten.gelu.out(x, out=out),
        lambda grad, x, y, out: _aten.gelu_backward.grad_input(grad, x, grad_input=out),
        lambda: False,
    ),
    'gelu_tanh': _Definition(
        lambda x: F.gelu(x, approximate='tanh'),
        lambda x, out: _aten.gelu.out(x, approximate='tanh', out=out),
        lambda grad, x, y, out: _aten.gelu_backward.grad_input(grad, x, approximate='tanh', grad_input=out),
        lambda: False,
    ),
    'tanh': _Definition(
        torch.tanh,
        lambda x, out: torch.tanh(x, out=out),
        lambda grad, x, y, out: _aten.tanh_backward.grad_input(grad, y, grad_input=out),
    ),
    'sigmoid': _Definition(
        torch.sigmoid,
        lambda x, out: torch.sigmoid(x, out=out),
        lambda grad, x, y, out: _aten.sigmoid_backward.grad_input(grad, y, grad_input=out),
        keeps_zero=False,
    ),
    'shifted_softplus': _Definition(
        lambda x, shift: F.softplus(x) - shift,
        _shifted_softplus_into,
        lambda grad, x, y, shift, out: _aten.softplus_backward.grad_input(grad, x, 1.0, 20.0, grad_input=out),
        keeps_zero=False,
    ),
    'softplus': _Definition(
        F.softplus,
        _softplus_into,
        lambda grad, x, y, beta, threshold, out: _aten.softplus_backward.grad_input(
            grad, x, beta, threshold, grad_input=out
        ),
        lambda beta, threshold: beta > 0.0 and threshold >= 20.0,
        keeps_zero=False,
    ),
}


@dataclasses.dataclass(frozen=True)
class Activation:
    """An activation with its numbers.

    Attributes:
        name: ``'relu'``, ``'leaky_relu'`` (slope), ``'elu'`` (alpha, scale), ``'silu'``, ``'gelu'``, ``'gelu_tanh'``,
            ``'tanh'``, ``'sigmoid'``, ``'shifted_softplus'`` (shift) or ``'softplus'`` (beta, threshold).
        numbers: What it takes beside the values.

    Example:
        >>> Activation('leaky_relu', (0.5,))(torch.tensor([-2.0, 2.0]))
        tensor([-1.,  2.])
    """

    name: str
    numbers: tuple[float, ...] = ()

    @property
    def named_numbers(self) -> dict[str, float]:
        """Its numbers under the names that programs have for them."""
        # no `zip`: that of the compiler of torch 2.9 is strict
        return {name: self.numbers[i] for i, name in enumerate(('first', 'second')[: len(self.numbers)])}

    def __call__(self, x: Tensor) -> Tensor:
        """The activation of a tensor, differentiable."""
        return self.of(x)

    def of(self, x: Tensor) -> Tensor:
        """The same, as a method: the compiler of torch 2.9 fails where an object that it made is called."""
        return _DEFINITIONS[self.name].function(x, *self.numbers)

    @property
    def rises(self) -> bool:
        """Whether it never falls, so that a maximum may be taken before it."""
        return _DEFINITIONS[self.name].rises(*self.numbers)

    @property
    def keeps_zero(self) -> bool:
        """Whether it takes 0 to 0."""
        return _DEFINITIONS[self.name].keeps_zero

    def into(self, x: Tensor, out: Tensor) -> None:
        """Writes the activation of `x` to `out`."""
        _DEFINITIONS[self.name].into(x, *self.numbers, out=out)

    def adjoint(self, grad: Tensor, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Writes the gradient of `x`, given that of ``y = self(x)``, to `out`, which may be `grad`."""
        _DEFINITIONS[self.name].adjoint(grad, x, y, *self.numbers, out=out)
